"""What a list is asked for: the query string, parsed without ever failing. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dashboard.transactions.queries import SORTS, TransactionCriteria
from fenceline.facts import TransactionState

SIZES = (50, 100, 200)
#: The words of the state filter, in the order of its chips.
STATES = ("open", *(state.value for state in TransactionState))
_LONGEST_SEARCH = 1_000
LONGEST_APPLICATION = 200
#: Ages beyond this (about 30 years) and pages beyond any table are slips.
_OLDEST_S = 10**9
_LAST_PAGE = 10**7


@dataclass(frozen=True, slots=True)
class TransactionListQuery:
    """A parsed query string; `ignored` says in words what in it could not be used."""

    filter: TransactionCriteria
    page: int
    size: int
    ignored: Sequence[str]

    @property
    def narrowed(self) -> bool:
        """Return whether anything but the cluster narrows the list."""
        wanted = self.filter
        return bool(wanted.state or wanted.q or wanted.application or wanted.min_age_s is not None)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `sorted` is "ascending", "descending" or "", `dir` what a click asks for."""

    words: str
    sort: str
    css: str
    sorted: str
    dir: str


#: Words of a column, sort key or "", class, and the direction that puts the interesting end first.
Heading = tuple[str, str, str, str]


def columns(headings: Iterable[Heading], sort: str, *, descending: bool) -> Sequence[Column]:
    """Return a table's columns; a click on the sorted one turns it round."""
    found = []
    for words, by, css, first in headings:
        here = bool(by) and by == sort
        turned = "asc" if descending else "desc"
        order = ("descending" if descending else "ascending") if here else ""
        found.append(Column(words, by, css, order, turned if here else first))
    return found


def parse(query: Mapping[str, str], cluster: str, clusters: Sequence[str]) -> TransactionListQuery:
    """Return what a query string asks for. What it gets wrong falls back to the default and is told."""
    ignored: list[str] = []
    state = one_of("state", query, STATES, "", ignored)
    # Ids stay where they are while their states change; open ones are asked for by age.
    sort = one_of("sort", query, tuple(SORTS), "started" if state == "open" else "id", ignored)
    check_cluster(query, clusters, ignored)
    wanted = TransactionCriteria(
        cluster=cluster,
        state=state,
        q=searched(query),
        min_age_s=_age(query, ignored),
        application=query.get("application", "").replace("\0", "")[:LONGEST_APPLICATION],
        sort=sort,
        descending=one_of("dir", query, ("asc", "desc"), "asc", ignored) == "desc",
    )
    return TransactionListQuery(wanted, page_number(query, ignored), size_of(query, ignored), ignored)


def searched(query: Mapping[str, str]) -> str:
    """Return what is searched for: a part of a transactional id."""
    return query.get("q", "").replace("\0", "")[:_LONGEST_SEARCH].strip()


def check_cluster(query: Mapping[str, str], clusters: Sequence[str], ignored: list[str]) -> None:
    """Tell in `ignored` of a cluster that is not configured."""
    if (asked := query.get("cluster", "")) and asked not in clusters:
        ignored.append(f"cluster “{clip(asked)}” is not configured")


def one_of(key: str, query: Mapping[str, str], known: Sequence[str], default: str, ignored: list[str]) -> str:
    """Return a parameter that has to be one of some words; what is not is told in `ignored`."""
    value = query.get(key, "")
    if value and value not in known:
        ignored.append(f"{key} “{clip(value)}” is none of {', '.join(known)}")
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
    ignored.append(f"min_age_s “{clip(value)}” is not a number of seconds")
    return None


def size_of(query: Mapping[str, str], ignored: list[str]) -> int:
    """Return how many rows a page is to have."""
    return int(one_of("size", query, tuple(map(str, SIZES)), str(SIZES[0]), ignored))


def page_number(query: Mapping[str, str], ignored: list[str]) -> int:
    """Return which page is asked for; what is no number is told in `ignored`."""
    value = query.get("page", "1") or "1"
    if value.isascii() and value.isdigit() and len(value) <= len(str(_LAST_PAGE)):
        return max(1, int(value))
    ignored.append(f"page “{clip(value)}” is not a page number")
    return 1


def place_of(query: Mapping[str, str], ignored: list[str]) -> tuple[int, int] | None:
    """Return the instant and the row behind which a list goes on; what is none is told in `ignored`."""
    value = query.get("before", "")
    if not value:
        return None
    at_ms, _, row = value.partition("-")
    if value.isascii() and at_ms.isdigit() and row.isdigit() and max(len(at_ms), len(row)) <= 18:
        return int(at_ms), int(row)
    ignored.append(f"before “{clip(value)}” is not a place in this list")
    return None


def clip(value: str) -> str:
    """Return a value that somebody wrote into an address, fit for a sentence."""
    shown = "".join(char if char.isprintable() else "�" for char in value)
    return shown if len(shown) <= 40 else f"{shown[:40]}…"
