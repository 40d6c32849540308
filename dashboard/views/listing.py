"""What a list of transactions is asked for: the query string, parsed without ever failing. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashboard.queries import SORTS, Filter
from fenceline.facts import State

SIZES = (50, 100, 200)
#: The words of the state filter, in the order of its chips.
STATES = ("open", *(state.value for state in State))
_LONGEST_SEARCH = 1_000
#: Ages beyond this (about 30 years) and pages beyond any table are slips.
_OLDEST_S = 10**9
_LAST_PAGE = 10**7


@dataclass(frozen=True, slots=True)
class Wanted:
    """A parsed query string; `ignored` says in words what in it could not be used."""

    filter: Filter
    page: int
    size: int
    ignored: Sequence[str]

    @property
    def narrowed(self) -> bool:
        """Return whether anything but the cluster narrows the list."""
        return bool(self.filter.state or self.filter.q or self.filter.min_age_s is not None)


def parse(query: Mapping[str, str], cluster: str, clusters: Sequence[str]) -> Wanted:
    """Return what a query string asks for. What it gets wrong falls back to the default and is told."""
    ignored: list[str] = []
    state = _one_of("state", query, STATES, "", ignored)
    # Ids stay where they are while their states change; open ones are asked for by age.
    sort = _one_of("sort", query, tuple(SORTS), "started" if state == "open" else "id", ignored)
    if (asked := query.get("cluster", "")) and asked not in clusters:
        ignored.append(f"cluster “{_clip(asked)}” is not configured")
    wanted = Filter(
        cluster=cluster,
        state=state,
        q=query.get("q", "").replace("\0", "")[:_LONGEST_SEARCH].strip(),
        min_age_s=_age(query, ignored),
        sort=sort,
        descending=_one_of("dir", query, ("asc", "desc"), "asc", ignored) == "desc",
    )
    size = int(_one_of("size", query, tuple(map(str, SIZES)), str(SIZES[0]), ignored))
    return Wanted(wanted, _page(query, ignored), size, ignored)


def _one_of(
    key: str, query: Mapping[str, str], known: Sequence[str], default: str, ignored: list[str]
) -> str:
    value = query.get(key, "")
    if value and value not in known:
        ignored.append(f"{key} “{_clip(value)}” is none of {', '.join(known)}")
    return value if value in known else default


def _age(query: Mapping[str, str], ignored: list[str]) -> float | None:
    value = query.get("min_age_s", "")
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if 0 <= seconds <= _OLDEST_S:
        return seconds
    ignored.append(f"min_age_s “{_clip(value)}” is not a number of seconds")
    return None


def _page(query: Mapping[str, str], ignored: list[str]) -> int:
    value = query.get("page", "1") or "1"
    if value.isascii() and value.isdigit() and len(value) <= len(str(_LAST_PAGE)):
        return max(1, int(value))
    ignored.append(f"page “{_clip(value)}” is not a page number")
    return 1


def _clip(value: str) -> str:
    shown = "".join(char if char.isprintable() else "�" for char in value)
    return shown if len(shown) <= 40 else f"{shown[:40]}…"
