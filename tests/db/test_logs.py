"""Proves how the log reads: text or JSON with an instant and its zone, one line for an outage, a traceback
for a fault of the program, and a repeated failure once a minute with a count."""

import io
import json
import logging
from datetime import UTC, datetime, timedelta

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from dashboard.runtime.logs import MOST_FAILURES, JsonFormatter, OncePerMinute, Repeats, TextFormatter
from sandbox.ports import free_port
from tests.db.conftest import run_python


class Log:
    """A logger that is set up as Celery's or as the others, and what it writes."""

    def __init__(self, formatter: logging.Formatter, *, first_line: bool = False) -> None:
        self.written = io.StringIO()
        self.handler = OncePerMinute(first_line=first_line)
        self.handler.setStream(self.written)
        self.handler.setFormatter(formatter)
        self.logger = logging.Logger("celery.beat" if first_line else "dashboard.runtime.loop")
        self.logger.addHandler(self.handler)

    def lines(self) -> list[str]:
        """Return the lines without their instants, each of which must be one."""
        found = []
        for line in self.written.getvalue().splitlines():
            stamp, _, rest = line.partition(" ")
            assert datetime.fromisoformat(stamp).utcoffset() == timedelta(0)
            found.append(rest)
        return found


@pytest.fixture
def celery() -> Log:
    return Log(TextFormatter(), first_line=True)


@pytest.fixture
def as_json() -> Log:
    return Log(JsonFormatter())


def fail(logger: logging.Logger, error: Exception, message: str = "Message Error: %s\n%s") -> None:
    try:
        raise error
    except Exception as caught:
        logger.error(message, caught, ["a", "whole", "stack"], exc_info=True)


def test_an_outage_is_one_line_and_a_fault_keeps_its_traceback(celery: Log) -> None:
    fail(celery.logger, RedisConnectionError("refused"))
    wrapped = ValueError("cannot schedule")
    wrapped.__cause__ = RedisConnectionError("refused")
    fail(celery.logger, wrapped)
    line = "ERROR celery.beat: Message Error"
    assert celery.lines() == [f"{line}: refused", f"{line}: cannot schedule"]
    fail(celery.logger, ZeroDivisionError("x / 0"), "Task failed: %s\n%s")
    assert "Traceback" in celery.written.getvalue()
    assert "ZeroDivisionError: x / 0" in celery.written.getvalue()


def test_a_json_record_is_one_line_with_its_exception_and_what_was_added(as_json: Log) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    try:
        raise ZeroDivisionError("x / 0")
    except ZeroDivisionError:
        as_json.logger.exception("a\n%s", "b", extra={"cluster": "prod", "key": set})
    (line,) = as_json.written.getvalue().splitlines()
    found = json.loads(line)
    assert datetime.fromisoformat(found.pop("time")) > before
    assert "ZeroDivisionError: x / 0" in found.pop("exception").splitlines()[-1]
    assert found == {
        "level": "ERROR",
        "logger": "dashboard.runtime.loop",
        "message": "a\nb",
        "cluster": "prod",
        "key": "<class 'set'>",
    }


def test_a_repeated_failure_is_counted_when_the_log_is_closed(celery: Log, as_json: Log) -> None:
    for _ in range(3):
        fail(celery.logger, OSError("refused"))
        as_json.logger.warning("prod: lease lost")
    celery.handler.close()
    as_json.handler.close()
    line = "ERROR celery.beat: Message Error: refused"
    assert celery.lines() == [line, f"{line} (repeated 2 times)"]
    assert [json.loads(each).get("repeated") for each in as_json.written.getvalue().splitlines()] == [None, 2]


class Minutes:
    """Repeats by a clock that only moves when a test moves it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.repeats = Repeats(lambda: self.now_s)

    def due_messages(self, text: str, level: int = logging.ERROR, *values: object) -> list[tuple[str, int]]:
        record = logging.LogRecord("a", level, "", 0, text, values, None)
        return [(due.getMessage(), getattr(due, "repeated", 0)) for due in self.repeats.due_records(record)]


def test_a_failure_is_written_once_a_minute_with_a_count() -> None:
    minutes = Minutes()
    found = []
    for second in range(0, 181, 2):
        minutes.now_s = second
        due = minutes.due_messages("Redis is away: trying again in %.2f s", 40, second)
        found += [(second, *each) for each in due]
    texts = {(second, repeated) for second, _, repeated in found}
    assert texts == {(0, 0), (60, 29), (120, 30), (180, 30)}


def test_the_count_is_written_with_the_next_record_and_those_below_errors_always_are() -> None:
    minutes = Minutes()
    minutes.due_messages("refused")
    minutes.due_messages("refused")
    minutes.now_s = 61
    assert minutes.due_messages("ready", logging.INFO) == [("refused", 1), ("ready", 0)]
    assert minutes.due_messages("ready", logging.INFO) == [("ready", 0)]


def test_different_failures_do_not_hide_each_other_and_take_no_room() -> None:
    minutes = Minutes()
    for text in ("prod-1: refused", "prod-2: refused", "action 7 died", "action 8 died"):
        assert minutes.due_messages(text) == [(text, 0)]
    task = "Task a[%s] raised: %s"
    assert minutes.due_messages(task, 40, "7d2f0a44-5b1e-4a53-9f40-0d6a3c1b2e4f", "x")
    assert not minutes.due_messages(task, 40, "0d6a3c1b-5b1e-4a53-9f40-7d2f0a442e4f", "x")
    for number in range(MOST_FAILURES * 2):
        minutes.due_messages(f"action {number} died")
    assert len(minutes.repeats._failures) <= MOST_FAILURES + 1


def test_an_unknown_format_is_refused_in_one_line_and_uvicorn_writes_the_same() -> None:
    refused = run_python("import dashboard.settings", LOG_FORMAT="xml")
    assert refused.stderr == "fenceline: LOG_FORMAT=xml: give text or json.\n"
    command = "import django, logging; django.setup(); logging.getLogger('uvicorn.error').error('full')"
    uvicorn = f"from uvicorn.config import Config; Config('dashboard.asgi:application', port={free_port()})"
    found = json.loads(run_python(f"{uvicorn}; {command}", LOG_FORMAT="json").stderr)
    assert (found["logger"], found["message"]) == ("uvicorn.error", "full")
