"""The range of time of a page: `?from=&to=`, or `?last=` for one that ends now; without any it is Live.

Each page has it in its header and keeps it in its links; lists that take a range are read with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest

from fenceline.time_range import (
    LAST,
    InvalidTimeRange,
    TimeRange,
    format_instant,
    named_instant,
    read_time_range,
)

#: What names a range in an address.
PARAMETERS = ("from", "to", "last")
#: What a page shows of time that is Live.
DEFAULT_LAST = "1h"
_WORDS = {
    "15m": "15 min", "1h": "1 h", "6h": "6 h", "24h": "24 h",
    "7d": "7 d", "30d": "30 d", "90d": "90 d", "1y": "1 year",
}  # fmt: skip
#: Pages that show the present only, by their route: the note of each on a range that ended.
AS_OF_NOW: Mapping[str, str] = {
    "transactions": "The history of transactional ids' states is not kept.",
    "transaction": "Its event history is of the range that you chose.",
    "partitions": "The history of offsets and verdicts is not kept.",
    "partition": "Its offsets over time are of the range that you chose.",
    "groups": "The history of lag and status is not kept.",
    "group": "Its lag over time is of the range that you chose.",
    "queries": "The history of states and lag is not kept.",
    "query": "Its batches are of the range that you chose.",
    "flink-jobs": "Former checkpoints are not kept.",
    "flink-job": "Former checkpoints are not kept.",
    "system": "Events name the blind spots of the range that you chose.",
    "scenes": "Which scenes were played is in the audit log.",
    "channels": "Changes of channels are in the audit log.",
    "silences": "Changes of silences are in the audit log.",
    "rules": "Findings of the range that you chose are among the events.",
    "rule": "Findings of the range that you chose are among the events.",
}
#: Places in a list, which belong to the range that they were read with.
_PLACES = ("before", "page")
#: A range that moves makes a page new so often.
_MOVES_MS = 5_000


@dataclass(frozen=True, slots=True)
class PageRange:
    """The range of a page, in ms since 1970: Live where neither `last` nor an instant is set.

    Without `start_ms` all that is kept before `end_ms` is asked for, without `end_ms` all until now.
    """

    now_ms: int
    start_ms: int | None = None
    end_ms: int | None = None
    last: str = ""
    #: In words what of the address cannot be used; the page is Live then.
    problem: str = ""

    @property
    def is_live(self) -> bool:
        """Return whether no range is asked for."""
        return self.start_ms is None and self.end_ms is None

    @property
    def is_past(self) -> bool:
        """Return whether it ended: what is known as of now alone is nothing of it."""
        return self.end_ms is not None and self.end_ms <= self.now_ms

    @property
    def bounds(self) -> Mapping[str, str]:
        """Return its instants as parameters of a list."""
        instants = {"from": self.start_ms, "to": self.end_ms}
        return {name: format_instant(ms) for name, ms in instants.items() if ms is not None}

    @property
    def parameters(self) -> Mapping[str, str]:
        """Return what links keep of it; one that ends now goes on to end now."""
        return {"last": self.last} if self.last else self.bounds

    @property
    def query(self) -> str:
        """Return the same as a query string, without its question mark."""
        return urlencode(self.parameters, safe=":")

    @property
    def moved(self) -> int:
        """Return what changes as the range does: an end that is now moves with the clock."""
        return 0 if self.is_live or self.end_ms is not None else self.now_ms // _MOVES_MS

    def window(self, last: str = DEFAULT_LAST) -> TimeRange:
        """Return it with both ends, for what needs them; where it has no begin it is `last` long."""
        end_ms = self.now_ms if self.end_ms is None else self.end_ms
        start_ms = end_ms - LAST[last] if self.start_ms is None else self.start_ms
        return TimeRange(start_ms, end_ms, live=self.end_ms is None)

    def words(self, last: str = DEFAULT_LAST) -> str:
        """Return it in a sentence: "in the last 6 h"; Live is the `last` so long."""
        return f"in the last {_WORDS[self.last or last]}" if self.last or self.is_live else "in this range"


def read_page_range(asked: Mapping[str, str], *, now_ms: int) -> PageRange:
    """Return the range that a query string asks for."""
    start, end, last = (asked.get(name, "").strip() for name in PARAMETERS)
    try:
        if start or (last and not end):
            found = read_time_range(start, end, last, now_ms=now_ms)
            return PageRange(now_ms, found.from_ms, found.to_ms if end else None, "" if start else last)
        return PageRange(now_ms, end_ms=named_instant("to", end) if end else None)
    except InvalidTimeRange as error:
        return PageRange(now_ms, problem=str(error))


def range_headline(number: int, noun: str, asked: PageRange, *, more: bool = False, plural: str = "") -> str:
    """Return how much a list has of a range, in a sentence; `more` is whether it goes on."""
    words = noun if number == 1 else plural or f"{noun}s"
    if not number:
        return f"No {words} {asked.words()}."
    return f"{'More than ' if more else ''}{number:,} {words} {asked.words()}."


def picker_context(request: HttpRequest, asked: PageRange, *, whole: bool) -> Mapping[str, Any]:
    """Return what `components/time_range.html` needs; `whole` is whether Live means all that is kept."""
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
        # How much before the instant of a copy its link begins; "" for all that is kept.
        "length_ms": "" if whole and asked.is_live else shown.length_ms,
    }


def list_parameters(values: Mapping[str, str], asked: PageRange) -> dict[str, str]:
    """Return the parameters of a list that takes a range, read with the page's."""
    return {name: value for name, value in values.items() if name not in PARAMETERS} | dict(asked.bounds)


def _field_value(at_s: int) -> str:
    """Return an instant, in seconds since 1970, as a field of type datetime-local takes it, in UTC."""
    return datetime.fromtimestamp(at_s, UTC).replace(tzinfo=None).isoformat()
