"""How Celery's log reads: one line for a cause, not a screen for each time it is met.

Celery writes whole stacks while Redis is away, every two seconds. An outage is not a fault of the program:
its type and text say all. Other exceptions keep their traceback.
"""

from __future__ import annotations

import logging
import time

from django.db import DatabaseError
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

_OUTAGES = (OSError, RedisError, OperationalError, DatabaseError)
_REPEAT_AFTER_S = 30.0


class FirstLine(logging.Formatter):
    """Write the first line of a message, and a traceback only where something is wrong with the program."""

    def __init__(self) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the record in a copy's words: other handlers see it as it was."""
        short = logging.makeLogRecord(record.__dict__)
        short.msg, short.args = next(iter(record.getMessage().strip().splitlines()), ""), ()
        if short.exc_info and _is_outage(short.exc_info[1]):
            short.exc_info = short.exc_text = None
        return super().format(short)


def _is_outage(error: BaseException | None) -> bool:
    """Whether an outage is what an error came from, wrapped as it may be."""
    while error is not None and not isinstance(error, _OUTAGES):
        error = error.__cause__ or error.__context__
    return error is not None


class Unrepeated(logging.Filter):
    """Let a message through once in 30 s."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell messages apart by their text before figures are filled in."""
        now = time.monotonic()
        said = self._last.get(str(record.msg))
        if said is not None and now - said < _REPEAT_AFTER_S:
            return False
        self._last[str(record.msg)] = now
        return True
