"""Proves that an outage is one line in Celery's log, and that a fault of the program keeps its traceback."""

from __future__ import annotations

import io
import logging

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from dashboard.logs import FirstLine, Unrepeated


@pytest.fixture
def logged() -> tuple[logging.Logger, io.StringIO]:
    """A logger that is set up as Celery's, and what it writes."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(FirstLine())
    handler.addFilter(Unrepeated())
    logger = logging.Logger("celery.beat")
    logger.addHandler(handler)
    return logger, written


def fail(logger: logging.Logger, error: Exception, message: str) -> None:
    try:
        raise error
    except Exception as caught:
        logger.error(message, caught, ["a", "whole", "stack"], exc_info=True)


def test_an_outage_is_one_line(logged: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = logged
    fail(logger, RedisConnectionError("refused"), "Message Error: %s\n%s")
    assert written.getvalue() == "ERROR celery.beat: Message Error: refused\n"


def test_a_wrapped_outage_is_one_line_too(logged: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = logged
    wrapped = ValueError("cannot schedule")
    wrapped.__cause__ = RedisConnectionError("refused")
    fail(logger, wrapped, "Message Error: %s\n%s")
    assert written.getvalue() == "ERROR celery.beat: Message Error: cannot schedule\n"


def test_an_outage_is_not_told_again_at_once(logged: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = logged
    for _ in range(3):
        fail(logger, OSError("refused"), "Message Error: %s\n%s")
    assert written.getvalue().count("\n") == 1


def test_a_fault_keeps_its_traceback(logged: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = logged
    fail(logger, ZeroDivisionError("x / 0"), "Task failed: %s\n%s")
    assert "Traceback" in written.getvalue()
    assert "ZeroDivisionError: x / 0" in written.getvalue()
