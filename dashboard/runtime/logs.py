"""Format logs: one line or JSON object for each record, with its time.

LOG_FORMAT is `text` or `json`. A repeated failure is written once a minute with its count, because Celery
writes a whole stack every two seconds while Redis is unreachable. An outage is written without a traceback,
because it is not a fault of the program; other exceptions keep theirs.
"""

import json
import logging
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import DatabaseError
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

FORMATS = ("text", "json")
#: Seconds within which a failure is written once.
REPEAT_AFTER_S = 60.0
#: Maximum remembered failures; the oldest is written and dropped beyond it.
MOST_FAILURES = 500

_OUTAGES = (OSError, RedisError, OperationalError, DatabaseError)
#: Parts that differ between reports of the same failure: ids of tasks, addresses, durations.
_VARYING = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|0x[0-9a-f]+|\d+(?:\.\d+)?(?= ?(?:ms|s|seconds)\b)"
)
_STANDARD = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName", "color_message"}


def _instant(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class TextFormatter(logging.Formatter):
    """Write `2026-01-31T12:00:00.000+00:00 LEVEL logger: message`, and a traceback below it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """Return the instant in UTC, with its offset."""
        return _instant(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line, with the number of repeats since the failure was last written."""
        repeated = getattr(record, "repeated", 0)
        return super().formatMessage(record) + (f" (repeated {repeated} times)" if repeated else "")


class JsonFormatter(logging.Formatter):
    """Write one JSON object a line: time, level, logger, message, `extra`, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the JSON object; other values are written as text."""
        fields = {
            "time": _instant(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        known = {*_STANDARD, *fields}
        fields |= {name: value for name, value in record.__dict__.items() if name not in known}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = record.stack_info
        return json.dumps(fields, default=str, ensure_ascii=False)


class OncePerMinute(logging.StreamHandler):  # type: ignore[type-arg]
    """Write to stderr, each failure once a minute; with `first_line`, only the first line of a message."""

    def __init__(self, *, first_line: bool = False) -> None:
        super().__init__()
        self._first_line = first_line
        self._repeats = Repeats()

    def emit(self, record: logging.LogRecord) -> None:
        """Write the due records, and the counts of failures after their minute."""
        try:
            for due in self._repeats.due_records(_shortened(record) if self._first_line else record):
                super().emit(due)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Write the remaining counts, while the stream is open."""
        for due in self._repeats.remaining_counts():
            if not self.stream.closed:
                super().emit(due)
        super().close()


@dataclass(slots=True)
class _Failure:
    written_at_s: float
    suppressed: int = 0
    last: logging.LogRecord | None = None


class Repeats:
    """Select the records to write: all below WARNING, and a failure once in `REPEAT_AFTER_S`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[tuple[object, ...], _Failure] = {}

    def due_records(self, record: logging.LogRecord) -> Iterator[logging.LogRecord]:
        """Yield the records to write when `record` arrives."""
        now_s = self._clock()
        yield from self._expired(now_s)
        if record.levelno < logging.WARNING:
            yield record
            return
        failure = self._failures.get(key := _identity(record))
        if failure is None:
            self._failures[key] = _Failure(now_s)
            yield record
        else:
            failure.suppressed += 1
            failure.last = record

    def remaining_counts(self) -> Iterator[logging.LogRecord]:
        """Yield the count of every suppressed failure, and forget all."""
        failures, self._failures = self._failures, {}
        for failure in failures.values():
            yield from _count(failure)

    def _expired(self, now_s: float) -> Iterator[logging.LogRecord]:
        """Yield the counts of failures after their minute; a new minute begins for repeated failures."""
        for key, failure in list(self._failures.items()):  # oldest first
            is_over = now_s - failure.written_at_s >= REPEAT_AFTER_S
            if not is_over and len(self._failures) <= MOST_FAILURES:
                return
            del self._failures[key]
            if is_over and failure.suppressed:
                self._failures[key] = _Failure(now_s)
            yield from _count(failure)


def _count(failure: _Failure) -> Iterator[logging.LogRecord]:
    if failure.last is not None:
        record = logging.makeLogRecord(failure.last.__dict__)
        record.repeated = failure.suppressed
        yield record


def _identity(record: logging.LogRecord) -> tuple[object, ...]:
    """Return the identity of a failure, equal for its repeats: its name in `extra`, else its text."""
    raised = record.exc_info[0] if record.exc_info else None
    text = getattr(record, "failure", None) or _VARYING.sub("#", record.getMessage())
    return record.name, record.levelno, raised, text


def _shortened(record: logging.LogRecord) -> logging.LogRecord:
    """Return a copy with the first line of its message, without the traceback of an outage."""
    short = logging.makeLogRecord(record.__dict__)
    short.msg, short.args = next(iter(record.getMessage().strip().splitlines()), ""), ()
    if short.exc_info and _is_outage(short.exc_info[1]):
        short.exc_info = short.exc_text = None
    return short


def _is_outage(error: BaseException | None) -> bool:
    """Whether an outage caused an error, even if wrapped."""
    while error is not None and not isinstance(error, _OUTAGES):
        error = error.__cause__ or error.__context__
    return error is not None
