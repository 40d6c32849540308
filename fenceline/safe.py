"""Whether a query may be stopped now: what a stop would leave behind, and how long that can wait.

Spark's own sinks have nothing to wait for between batches. The exactly-once sink has a decided batch to carry
out, whose transactions time out; and any sink that does not commit with its batch may write it twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fenceline.facts import Severity
from fenceline.words import clock, count, some

#: The kinds of sinks that `Query.sink` names.
EXACTLY_ONCE, KAFKA, OTHER = "exactly_once", "kafka", "other"


class SafeToStop(NamedTuple):
    """A verdict with its reasons, worst first."""

    #: None where too little is seen to tell.
    safe: bool | None
    #: One sentence.
    sentence: str
    reasons: tuple[str, ...] = ()
    #: Decisions that are prepared and not carried out.
    prepared: int = 0
    #: When the first of their transactions times out, by its coordinator's clock.
    expires_ms: int | None = None
    #: Transactional ids of the query's sink that are open, as escaped text.
    open_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stopping:
    """What there is to say of one query at this moment."""

    name: str
    sink: str
    #: Why it cannot be seen, "" where it can: its checkpoint, or its collector.
    unseen: str = ""
    #: Whether a driver runs it; None where nothing tells.
    alive: bool | None = None
    #: The newest batch that is planned and not finished; None between batches.
    under_way: int | None = None
    #: Batches with a prepared decision that is not carried out, ascending.
    prepared: Sequence[int] = ()
    expires_ms: int | None = None
    open_ids: Sequence[str] = ()
    #: What a restart would do, to follow "a restart", and how bad that is; None where it is harmless.
    restart: str = ""
    severity: Severity | None = None


@dataclass(slots=True)
class _Case:
    against: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def safe_to_stop(query: Stopping, *, now_ms: int) -> SafeToStop:
    """Return whether one query may be stopped now."""
    case = _Case()
    if query.unseen:
        case.unknown.append(query.unseen)
    _weigh_prepared(query, case, now_ms)
    _weigh_batch(query, case)
    _weigh_restart(query, case)
    safe = False if case.against else None if case.unknown else True
    reasons = (*case.against, *case.unknown, *case.notes)
    return SafeToStop(
        safe,
        _sentence(query, safe, reasons),
        reasons,
        len(query.prepared),
        query.expires_ms,
        tuple(query.open_ids),
    )


def safe_together(cluster: str, verdicts: Iterable[tuple[str, SafeToStop]]) -> SafeToStop:
    """Return whether all queries of a cluster, each with its name, may be stopped now."""
    found = list(verdicts)
    against = [(name, each) for name, each in found if each.safe is False]
    unknown = [(name, each) for name, each in found if each.safe is None]
    told = against or unknown
    safe = False if against else None if unknown else True
    expiries = [each.expires_ms for _, each in found if each.expires_ms is not None]
    return SafeToStop(
        safe,
        _together(cluster, safe, [name for name, _ in told], len(found)),
        tuple(f"{name}: {each.sentence}" for name, each in (*against, *unknown)),
        sum(each.prepared for _, each in found),
        min(expiries, default=None),
        tuple(name for _, each in found for name in each.open_ids),
    )


def _weigh_prepared(query: Stopping, case: _Case, now_ms: int) -> None:
    if not query.prepared:
        return
    batches = some([f"batch {each}" for each in query.prepared])
    words = f"{batches} {'is' if len(query.prepared) == 1 else 'are'} prepared and not committed"
    if query.expires_ms is None:
        case.against.append(words)
    elif query.expires_ms <= now_ms:
        case.against.append(f"{words}, and may be lost since {clock(query.expires_ms)}")
    else:
        case.against.append(f"{words}; lost at {clock(query.expires_ms)} unless that is done before")


def _weigh_batch(query: Stopping, case: _Case) -> None:
    if query.sink == EXACTLY_ONCE:
        _weigh_open(query, case)
        return
    if query.under_way is None:
        return
    if query.alive is False:
        case.notes.append(f"batch {query.under_way} was not finished: a restart runs it again")
    elif query.sink == "":
        case.unknown.append(
            f"batch {query.under_way} is under way, and nothing tells what its sink does when it runs again"
        )
    else:
        case.against.append(
            f"batch {query.under_way} is under way: a restart runs it again and may write its rows twice"
        )


def _weigh_open(query: Stopping, case: _Case) -> None:
    """Open transactions without a prepared decision are lost work, never lost data."""
    if query.prepared:
        return
    if query.open_ids:
        number = len(query.open_ids)
        case.notes.append(
            f"{count(number, 'transaction')} of it {'is' if number == 1 else 'are'} open: read_committed "
            "consumers wait until the restart aborts them or they time out"
        )
    if query.under_way is not None:
        case.notes.append(f"batch {query.under_way} is under way: a restart runs it again, exactly once")


def _weigh_restart(query: Stopping, case: _Case) -> None:
    if query.severity is Severity.CRITICAL and query.restart:
        case.against.append(f"a restart {query.restart}")


def _sentence(query: Stopping, safe: bool | None, reasons: Sequence[str]) -> str:
    if safe is None:
        return f"Whether {query.name} may be stopped cannot be told: {reasons[0]}."
    if not safe:
        return f"Do not stop {query.name} now: {_plain(reasons[0])}."
    return f"{query.name} may be stopped now." if query.alive is not False else f"{query.name} is stopped."


def _plain(reason: str) -> str:
    return reason.rstrip(".")


def _together(cluster: str, safe: bool | None, names: Sequence[str], number: int) -> str:
    if not number:
        return f"No query of {cluster} is known."
    if safe is None:
        return f"Whether the queries of {cluster} may be stopped cannot be told: see {some(names)}."
    if not safe:
        return f"Do not stop the queries of {cluster} now: see {some(names)}."
    return f"{'The one query' if number == 1 else f'All {number} queries'} of {cluster} may be stopped now."
