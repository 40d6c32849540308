"""Ranges of time in addresses: `from` and `to` as ISO 8601, or the last minutes. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
#: The choices of a picker, in ms.
LAST: Mapping[str, int] = {
    "15m": 15 * _MINUTE_MS,
    "1h": _HOUR_MS,
    "6h": 6 * _HOUR_MS,
    "24h": _DAY_MS,
    "7d": 7 * _DAY_MS,
    "30d": 30 * _DAY_MS,
    "90d": 90 * _DAY_MS,
    "1y": 365 * _DAY_MS,
}
#: The longest range: nothing is stored for longer.
LONGEST_MS = 400 * _DAY_MS
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class InvalidTimeRange(ValueError):
    """A range that cannot be parsed; its text names the parameter and a valid form."""


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From `from_ms` to before `to_ms`, in ms since 1970; a `live` one ends now and moves with the clock."""

    from_ms: int
    to_ms: int
    live: bool = False

    @property
    def length_ms(self) -> int:
        return self.to_ms - self.from_ms


def last_range(last: str, *, now_ms: int) -> TimeRange:
    """Return the range of a key of `LAST` that ends now."""
    return TimeRange(now_ms - LAST[last], now_ms, live=True)


def read_time_range(start: str, end: str, last: str, *, now_ms: int) -> TimeRange:
    """Return the range in `from` and `to`, or without both the last one by default; raises InvalidTimeRange.

    Without `to` the range ends now, and moves with the clock. An instant without a zone is UTC.
    """
    if not start and not end:
        if last not in LAST:
            raise InvalidTimeRange(f"last: “{last[:40]}” is none of {', '.join(LAST)}.")
        return last_range(last, now_ms=now_ms)
    if not start:
        raise InvalidTimeRange("from: missing; a range that has an end needs a start.")
    from_ms = named_instant("from", start)
    to_ms = named_instant("to", end) if end else now_ms
    if from_ms >= min(to_ms, now_ms):
        later = "to" if end and from_ms >= to_ms else "now"
        raise InvalidTimeRange(f"from: “{start}” is not before {later}; the earlier instant comes first.")
    if to_ms - from_ms > LONGEST_MS:
        raise InvalidTimeRange(
            f"to: the range is longer than {LONGEST_MS // _DAY_MS} days; choose a shorter one."
        )
    return TimeRange(from_ms, to_ms, live=not end)


def format_instant(ms: int) -> str:
    """Return an instant in the form of addresses: `2026-11-24T02:00:00Z`, with milliseconds if it has any."""
    precision = "milliseconds" if ms % 1_000 else "seconds"
    return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec=precision).replace("+00:00", "Z")


def read_instant(value: str) -> int:
    """Return an ISO 8601 instant in ms since 1970, without a zone as UTC; raises InvalidTimeRange."""
    # In a hand-written address, the `+` of a zone is a space.
    text = value.strip().replace(" ", "+") if "T" in value else value.strip()
    try:
        moment = datetime.fromisoformat(text)
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        parsed_ms = (aware - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        raise InvalidTimeRange(f"“{value[:40]}” is no instant such as 2026-11-24T02:00:00Z.") from None
    if parsed_ms < 0:
        raise InvalidTimeRange(f"“{value[:40]}” lies before 1970.")
    return parsed_ms


def named_instant(name: str, value: str) -> int:
    """Return the instant of a parameter in ms since 1970; raises InvalidTimeRange with its name."""
    try:
        return read_instant(value)
    except InvalidTimeRange as error:
        raise InvalidTimeRange(f"{name}: {error}") from None
