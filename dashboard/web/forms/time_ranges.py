"""The range of time of a page: `?from=&to=`, or `?last=` for one that ends now."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest
from pydantic import Field

from dashboard.runtime.criteria import Name
from dashboard.web.forms.lists import ListQuery
from fenceline.time_range import LAST, InvalidTimeRange, TimeRange, last_range, read_time_range

#: What a page shows that was asked for no range.
DEFAULT_LAST = "1h"
_WORDS = {"15m": "15 min", "1h": "1 h", "6h": "6 h", "24h": "24 h", "7d": "7 d", "30d": "30 d"}


class RangedList(ListQuery):
    """A list of what happened in a range of time."""

    start: Name = Field("", alias="from")
    end: Name = Field("", alias="to")
    last: Name = DEFAULT_LAST

    @property
    def narrowed(self) -> bool:
        """Whether anything but the cluster and the range narrows the list."""
        whole = {"start": "", "end": ""}
        return super(RangedList, self.model_copy(update=whole)).narrowed


def time_range_of(wanted: RangedList, *, now_ms: int) -> tuple[TimeRange, str]:
    """Return the range that a page shows, and in words what of the one it was asked for is wrong."""
    try:
        return read_time_range(wanted.start, wanted.end, wanted.last, now_ms=now_ms), ""
    except InvalidTimeRange as error:
        return last_range(DEFAULT_LAST, now_ms=now_ms), str(error)


def last_words(wanted: RangedList) -> str:
    """Return how long a range without `from` is, in words."""
    return _WORDS.get(wanted.last, _WORDS[DEFAULT_LAST])


def picker(request: HttpRequest, shown: TimeRange, wanted: RangedList) -> Mapping[str, Any]:
    """Return what `components/time_range.html` needs."""
    start, end = _input(shown.from_ms), _input(shown.to_ms)
    rest = {key: value for key, value in request.GET.items() if key not in ("from", "to", "last", "before")}
    return {
        "range": shown,
        "lasts": _WORDS.items(),
        "last": "" if wanted.start else (wanted.last if wanted.last in LAST else DEFAULT_LAST),
        "from_value": start,
        "to_value": end,
        "rest": rest.items(),
        "link": f"{request.build_absolute_uri(request.path)}?"
        + urlencode({**rest, "from": f"{start}Z", "to": f"{end}Z"}),
    }


def _input(ms: int) -> str:
    """Return an instant as a field of type datetime-local takes it, in UTC."""
    return datetime.fromtimestamp(ms // 1_000, UTC).replace(tzinfo=None).isoformat()
