"""The time range of a page: `?from=&to=`, or `?last=` for one that ends now; without them the page is Live.

Each page shows its range in the header and keeps it in its links. Lists with instants are read with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest

from fenceline.history.time_range import (
    LAST,
    InvalidTimeRange,
    TimeRange,
    format_instant,
    named_instant,
    read_time_range,
)

PARAMETERS = ("from", "to", "last")
#: The length of the time that a Live page shows.
DEFAULT_LAST = "1h"
_WORDS = {
    "15m": "15 min", "1h": "1 h", "6h": "6 h", "24h": "24 h",
    "7d": "7 d", "30d": "30 d", "90d": "90 d", "1y": "1 year",
}  # fmt: skip
#: Places in a list: another range drops them.
_PLACES = ("before", "page")
#: Interval at which a range that ends now renews a page.
_MOVES_MS = 5_000


@dataclass(frozen=True, slots=True)
class PageRange:
    """The range of a page in ms since 1970; Live if neither `last` nor an instant is set.

    Without `start_ms` it begins with the oldest stored row, without `end_ms` it ends now.
    """

    now_ms: int
    start_ms: int | None = None
    end_ms: int | None = None
    last: str = ""
    #: A text on the invalid parts of the address, with which the page is Live; "" for a valid one.
    problem: str = ""

    @property
    def is_live(self) -> bool:
        return self.start_ms is None and self.end_ms is None

    @property
    def is_past(self) -> bool:
        """Return whether it ended in the past: pages of the present cannot show it."""
        return self.end_ms is not None and self.end_ms <= self.now_ms

    @property
    def bounds(self) -> Mapping[str, str]:
        """Return its instants as parameters of a list."""
        instants = {"from": self.start_ms, "to": self.end_ms}
        return {name: format_instant(ms) for name, ms in instants.items() if ms is not None}

    @property
    def parameters(self) -> Mapping[str, str]:
        """Return the parameters that links keep; a range that ends now continues to end now."""
        return {"last": self.last} if self.last else self.bounds

    @property
    def query(self) -> str:
        """Return the parameters as a query string, without its question mark."""
        return urlencode(self.parameters, safe=":")

    @property
    def moved(self) -> int:
        """Return a value that changes with the range: an end of now moves with the clock."""
        return 0 if self.is_live or self.end_ms is not None else self.now_ms // _MOVES_MS

    def window(self, last: str = DEFAULT_LAST) -> TimeRange:
        """Return it with both ends; without a start it is `last` long."""
        end_ms = self.now_ms if self.end_ms is None else self.end_ms
        start_ms = end_ms - LAST[last] if self.start_ms is None else self.start_ms
        return TimeRange(start_ms, end_ms, live=self.end_ms is None)

    def words(self, last: str = DEFAULT_LAST) -> str:
        """Return it for a sentence: "in the last 6 h"; for Live, with the length `last`."""
        return f"in the last {_WORDS[self.last or last]}" if self.last or self.is_live else "in this range"


def read_page_range(asked: Mapping[str, str], *, now_ms: int) -> PageRange:
    start, end, last = (asked.get(name, "").strip() for name in PARAMETERS)
    try:
        if start or (last and not end):
            span = read_time_range(start, end, last, now_ms=now_ms)
            return PageRange(now_ms, span.from_ms, span.to_ms if end else None, "" if start else last)
        return PageRange(now_ms, end_ms=named_instant("to", end) if end else None)
    except InvalidTimeRange as error:
        return PageRange(now_ms, problem=str(error))


def range_headline(number: int, noun: str, asked: PageRange, *, more: bool = False, plural: str = "") -> str:
    """Return the number of rows in a range as a sentence; `more`: whether the list continues."""
    words = noun if number == 1 else plural or f"{noun}s"
    if not number:
        return f"No {words} {asked.words()}."
    return f"{'More than ' if more else ''}{number:,} {words} {asked.words()}."


def picker_context(request: HttpRequest, asked: PageRange, *, whole: bool) -> Mapping[str, Any]:
    """Return the context of `components/time_range.html`; `whole`: whether Live shows all stored rows."""
    shown = asked.window()
    rest = {name: value for name, value in request.GET.items() if name not in (*PARAMETERS, *_PLACES)}
    return {
        "lasts": list(_WORDS.items()),
        "last_words": _WORDS.get(asked.last, ""),
        "fields": (
            ("from", "From", _field_value(shown.from_ms // 1_000)),
            ("to", "To", _field_value(-(-shown.to_ms // 1_000))),
        ),
        "rest": list(rest.items()),
        # The length of the range in a copied link; "" for all stored rows.
        "length_ms": "" if whole and asked.is_live else shown.length_ms,
    }


def list_parameters(values: Mapping[str, str], asked: PageRange) -> dict[str, str]:
    return {name: value for name, value in values.items() if name not in PARAMETERS} | dict(asked.bounds)


def _field_value(at_s: int) -> str:
    """Return an instant in seconds since 1970 as the value of a field in UTC: `2026-11-24 02:00:00`."""
    return datetime.fromtimestamp(at_s, UTC).replace(tzinfo=None).isoformat(" ")
