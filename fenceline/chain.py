"""The chain of a micro-batch: planned, written, prepared, committed, recorded, checkpointed.

Spark writes `offsets/N` before it runs batch N and `commits/N` after its sink is done (spark.md §1.4).
Between them the exactly-once sink writes its transactions, decides (`N.R.decision`, the point of no return),
has the coordinators commit, and records that (`N.R.done`). Of other sinks the links in between are not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from fenceline.facts import ABORTS, Kind, State, Transition
from fenceline.safe import EXACTLY_ONCE
from fenceline.spark import Decided, Decision, Done, Outcome, SinkTransaction
from fenceline.words import clock, count, some

#: The two recoveries of the sink, and the word for what none mends.
RECOVER_AND_COMMIT, RECOVER_AND_ABORT, LOST = "recoverAndCommit", "recoverAndAbort", "lost"


class Link(StrEnum):
    """A step of a batch, in their order."""

    PLANNED = "planned"
    WRITTEN = "written"
    PREPARED = "prepared"
    COMMITTED = "committed"
    RECORDED = "recorded"
    CHECKPOINTED = "checkpointed"


class LinkState(StrEnum):
    """How a link stands."""

    DONE = "done"
    WAITING = "waiting"
    BROKEN = "broken"
    #: Nothing tells.
    UNKNOWN = "unknown"
    #: This sink has no such link.
    ABSENT = "absent"


class ChainLink(NamedTuple):
    """One link of the chain of one batch."""

    link: Link
    state: LinkState
    at_ms: int | None = None
    #: One short sentence.
    evidence: str = ""
    #: Which recovery mends it, where it is broken: `recoverAndCommit`, `recoverAndAbort`, or `lost`.
    recovery: str = ""


class Coordinated(NamedTuple):
    """The newest that is known of a transactional id: its coordinator's own words."""

    state: State
    producer_id: int
    producer_epoch: int
    #: By its coordinator's clock.
    updated_ms: int
    #: When its newest transaction began; None where the record has no start.
    started_ms: int | None = None
    #: 2 where its last writer spoke transaction protocol 2 (KIP-890).
    client_version: int = 0


class Fate(StrEnum):
    """What became of one transaction of a batch."""

    OPEN = "open"
    #: Decided by its coordinator, its markers are being written.
    COMMITTING = "committing"
    COMMITTED = "committed"
    #: Aborted, or being aborted: whatever it wrote is not read by anybody who reads committed.
    ABORTED = "aborted"
    #: The id has gone on, or nothing is known of it.
    UNKNOWN = "unknown"


#: A commit that is decided is never undone, and neither is an abort.
_FATES = {
    State.ONGOING: Fate.OPEN,
    State.PREPARE_COMMIT: Fate.COMMITTING,
    State.COMPLETE_COMMIT: Fate.COMMITTED,
    State.PREPARE_ABORT: Fate.ABORTED,
    State.COMPLETE_ABORT: Fate.ABORTED,
}
_ENDS = {Kind.COMMIT: Fate.COMMITTED, **dict.fromkeys(ABORTS, Fate.ABORTED)}
_ABORTS = (State.PREPARE_ABORT, State.COMPLETE_ABORT)


class Ended(NamedTuple):
    """A transaction of the batch, what became of it, and when by its coordinator's clock."""

    transactional_id: str
    fate: Fate
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What is known of one batch, as plain values."""

    batch_id: int
    #: `Query.sink`.
    sink: str
    #: Whether `offsets/N` is there, and when it was planned.
    planned: bool = False
    planned_ms: int | None = None
    #: Whether `commits/N` is there, and when that was written.
    checkpointed: bool = False
    checkpointed_ms: int | None = None
    #: When its progress event says that it ended; None where none came.
    told_ms: int | None = None
    #: The newest round's decision, and how it ended.
    decision: Decision | None = None
    done: Done | None = None
    #: Of the decision's transactions, in their order.
    ended: tuple[Ended, ...] = ()
    #: Whether a driver runs the query; None where nothing tells.
    alive: bool | None = None
    #: Whether its decision stands for so long that whoever made it does not carry it out any more.
    overdue: bool = False

    @property
    def is_over(self) -> bool:
        """Whether Spark is done with it."""
        return self.checkpointed or self.told_ms is not None

    @property
    def forsaken(self) -> str:
        """Return why nobody carries out its decision, in words that end a sentence; "" where somebody may."""
        if self.alive is False:
            return "its driver is gone"
        if self.overdue and self.decision is not None:
            return f"nobody has gone on with it since {clock(self.decision.at_ms)}"
        return ""


def fate_of(written: SinkTransaction, now: Coordinated | None) -> Ended:
    """Return what became of a transaction, by the newest that its coordinator says of its id.

    A client of protocol 2 commits under the next epoch, and a coordinator aborts under it. Clients of older
    ones keep theirs from transaction to transaction: it is ours only if it began when ours did.
    """
    name = written.transactional_id
    if now is None or now.producer_id != written.producer_id:
        return Ended(name, Fate.UNKNOWN)
    if now.started_ms is not None and now.started_ms != written.started_ms:
        return Ended(name, Fate.UNKNOWN)
    steps = now.producer_epoch - written.producer_epoch
    bumps = 1 if now.client_version >= 2 or now.state in _ABORTS else 0
    if not 0 <= steps <= bumps:
        return Ended(name, Fate.UNKNOWN)
    return Ended(name, _FATES.get(now.state, Fate.UNKNOWN), now.updated_ms)


def fate_in(written: SinkTransaction, past: Iterable[Transition]) -> Ended:
    """Return what became of a transaction by the history of its id: the end of what began when it did."""
    for each in past:
        fate = _ENDS.get(each.kind)
        if fate is None or each.open_ms is None or each.producer_id != written.producer_id:
            continue
        if each.at_ms - each.open_ms == written.started_ms:
            return Ended(written.transactional_id, fate, each.completed_ms or each.at_ms)
    return Ended(written.transactional_id, Fate.UNKNOWN)


def chain(batch: BatchFacts) -> tuple[ChainLink, ...]:
    """Return the six links of a batch, in their order."""
    if batch.sink != EXACTLY_ONCE:
        return _planned(batch), *_foreign(batch), _checkpointed_alone(batch)
    if batch.decision is None:
        return _planned(batch), *_undecided(batch), _checkpointed_alone(batch)
    if batch.decision.decided is Decided.ABORTED:
        return _planned(batch), *_aborted(batch, batch.decision), _checkpointed_alone(batch)
    return _prepared(batch, batch.decision)


def no_chain(sink: str) -> tuple[ChainLink, ...]:
    """Return the chain of a query of which no batch is known."""
    between = LinkState.WAITING if sink in (EXACTLY_ONCE, "") else LinkState.ABSENT
    states = dict.fromkeys((Link.PREPARED, Link.COMMITTED, Link.RECORDED), between)
    return tuple(
        ChainLink(link, states.get(link, LinkState.WAITING), None, "no batch is known yet") for link in Link
    )


def broken(links: Sequence[ChainLink]) -> ChainLink | None:
    """Return the first broken link of a chain."""
    return next((each for each in links if each.state is LinkState.BROKEN), None)


def _planned(batch: BatchFacts) -> ChainLink:
    if batch.planned:
        return ChainLink(Link.PLANNED, LinkState.DONE, batch.planned_ms, f"offsets/{batch.batch_id} is there")
    if batch.is_over or batch.decision is not None:
        what = "its end" if batch.is_over else "its decision"
        words = f"offsets/{batch.batch_id} was not seen, but {what} was"
        return ChainLink(Link.PLANNED, LinkState.DONE, None, words)
    words = f"offsets/{batch.batch_id} was not seen"
    return ChainLink(Link.PLANNED, LinkState.UNKNOWN, None, words)


def _foreign(batch: BatchFacts) -> tuple[ChainLink, ...]:
    """Return what lies between in a query without our sink."""
    state, words = (
        (LinkState.UNKNOWN, "nothing tells which sink it has")
        if batch.sink == ""
        else (LinkState.ABSENT, "its sink takes part in no two-phase commit")
    )
    if batch.is_over:
        said = f"commits/{batch.batch_id} is written only after its sink is done"
        written = ChainLink(Link.WRITTEN, LinkState.DONE, None, said)
    elif batch.alive is False:
        said = "its driver is gone: a restart runs it again and may write rows twice"
        written = ChainLink(Link.WRITTEN, LinkState.WAITING, None, said)
    else:
        written = ChainLink(Link.WRITTEN, LinkState.WAITING, None, _under_way(batch))
    between = (Link.PREPARED, Link.COMMITTED, Link.RECORDED)
    return written, *(ChainLink(link, state, None, words) for link in between)


def _checkpointed_alone(batch: BatchFacts) -> ChainLink:
    if batch.checkpointed:
        words = f"commits/{batch.batch_id} is there"
        return ChainLink(Link.CHECKPOINTED, LinkState.DONE, batch.checkpointed_ms, words)
    if batch.told_ms is not None:
        words = f"its progress event came, which Spark sends after commits/{batch.batch_id}"
        return ChainLink(Link.CHECKPOINTED, LinkState.DONE, batch.told_ms, words)
    return ChainLink(Link.CHECKPOINTED, LinkState.WAITING, None, f"commits/{batch.batch_id} is not there")


def _undecided(batch: BatchFacts) -> tuple[ChainLink, ...]:
    """Return what lies between while the ledger has no decision of it."""
    between = (Link.PREPARED, Link.COMMITTED, Link.RECORDED)
    if batch.is_over:
        words = "the ledger keeps no decision of it, and Spark has gone on: nothing of it is open"
        written = ChainLink(Link.WRITTEN, LinkState.DONE, None, "its sink was done with it")
        return written, *(ChainLink(link, LinkState.UNKNOWN, None, words) for link in between)
    if batch.alive is False:
        words = "its driver is gone before anything was decided: a restart aborts what is open, writes again"
        written = ChainLink(Link.WRITTEN, LinkState.BROKEN, None, words, RECOVER_AND_ABORT)
    else:
        written = ChainLink(Link.WRITTEN, LinkState.WAITING, None, _under_way(batch))
    return written, *(ChainLink(link, LinkState.WAITING, None, "nothing is decided yet") for link in between)


def _aborted(batch: BatchFacts, decision: Decision) -> tuple[ChainLink, ...]:
    """Return what lies between where the newest round was aborted: the batch is written again, or stands."""
    why = f" ({decision.reason})" if decision.reason else ""
    said = f"round {decision.round} was aborted by the {decision.by}{why}"
    open_ids = [each.transactional_id for each in batch.ended if each.fate is Fate.OPEN]
    if batch.alive is not False:
        written = ChainLink(Link.WRITTEN, LinkState.WAITING, decision.at_ms, f"{said}: it is to run again")
    elif open_ids and batch.done is None:
        words = f"{said}, and {some(open_ids)} is still open"
        written = ChainLink(Link.WRITTEN, LinkState.BROKEN, decision.at_ms, words, RECOVER_AND_ABORT)
    else:
        words = f"{said}: a restart writes it again"
        written = ChainLink(Link.WRITTEN, LinkState.WAITING, decision.at_ms, words)
    between = (Link.PREPARED, Link.COMMITTED, Link.RECORDED)
    return written, *(
        ChainLink(link, LinkState.WAITING, None, "the next round decides anew") for link in between
    )


def _prepared(batch: BatchFacts, decision: Decision) -> tuple[ChainLink, ...]:
    committed = _committed(batch, decision)
    recorded = _recorded(batch, committed)
    return (
        _planned(batch),
        _written(decision),
        ChainLink(
            Link.PREPARED,
            LinkState.DONE,
            decision.at_ms,
            f"round {decision.round} is decided by the {decision.by}: it will be committed",
        ),
        committed,
        recorded,
        _checkpointed(batch, recorded),
    )


def _written(decision: Decision) -> ChainLink:
    records = sum(each.records for each in decision.transactions)
    words = f"{count(len(decision.transactions), 'transaction')}, {count(records, 'record')}"
    begun = max((each.started_ms for each in decision.transactions), default=None)
    return ChainLink(Link.WRITTEN, LinkState.DONE, begun, words)


def _committed(batch: BatchFacts, decision: Decision) -> ChainLink:
    """Return whether the coordinators have committed; what they say themselves outweighs the ledger."""
    by_fate = {fate: [each.transactional_id for each in batch.ended if each.fate is fate] for fate in Fate}
    at_ms = max((each.at_ms for each in batch.ended if each.at_ms is not None), default=None)
    whole = count(len(decision.transactions), "transaction")
    if by_fate[Fate.ABORTED]:
        words = f"{some(by_fate[Fate.ABORTED])} of {whole} {_are(by_fate[Fate.ABORTED])} aborted"
        return ChainLink(Link.COMMITTED, LinkState.BROKEN, at_ms, words, LOST)
    if batch.done is not None:
        return _told_ended(batch.done, whole)
    if not decision.transactions:
        return ChainLink(Link.COMMITTED, LinkState.DONE, decision.at_ms, "it has nothing to commit")
    ended = len(by_fate[Fate.COMMITTED])
    if ended == len(decision.transactions):
        words = f"{'its one transaction is' if ended == 1 else f'all {whole} are'} committed"
        return ChainLink(Link.COMMITTED, LinkState.DONE, at_ms, words)
    if by_fate[Fate.OPEN] or by_fate[Fate.COMMITTING]:
        return _under_commit(batch, by_fate[Fate.OPEN], ended, whole)
    words = f"of {whole} {len(by_fate[Fate.UNKNOWN])} cannot be told: no newest state speaks of them"
    return ChainLink(Link.COMMITTED, LinkState.UNKNOWN, None, words)


def _told_ended(done: Done, whole: str) -> ChainLink:
    """Return what the ledger says where no coordinator contradicts it."""
    if done.outcome is Outcome.COMMITTED:
        return ChainLink(Link.COMMITTED, LinkState.DONE, done.at_ms, f"the ledger says so of {whole}")
    gone = some(done.lost) or "some"
    words = f"{gone} of {whole} {_are(done.lost)} lost: gone before the commit"
    return ChainLink(Link.COMMITTED, LinkState.BROKEN, done.at_ms, words, LOST)


def _under_commit(batch: BatchFacts, open_ids: Sequence[str], ended: int, whole: str) -> ChainLink:
    words = f"{ended} of {whole} committed" + (f", {some(open_ids)} still open" if open_ids else "")
    if batch.forsaken and open_ids:
        said = f"{words}, and {batch.forsaken}"
        return ChainLink(Link.COMMITTED, LinkState.BROKEN, None, said, RECOVER_AND_COMMIT)
    return ChainLink(Link.COMMITTED, LinkState.WAITING, None, words)


def _recorded(batch: BatchFacts, committed: ChainLink) -> ChainLink:
    name = f"{batch.batch_id}.{batch.decision.round if batch.decision else 0}.done"
    if batch.done is not None:
        by = f" by the {batch.done.by}" if batch.done.by else ", swept away since"
        words = f"{name}{by}: {batch.done.outcome}"
        return ChainLink(Link.RECORDED, LinkState.DONE, batch.done.at_ms, words)
    if committed.state is LinkState.DONE and batch.forsaken:
        words = f"{name} is not there, and {batch.forsaken}"
        return ChainLink(Link.RECORDED, LinkState.BROKEN, None, words, RECOVER_AND_COMMIT)
    if batch.is_over:
        words = f"{name} is not there, although commits/{batch.batch_id} is: was it deleted?"
        return ChainLink(Link.RECORDED, LinkState.BROKEN, None, words, RECOVER_AND_COMMIT)
    return ChainLink(Link.RECORDED, LinkState.WAITING, None, f"{name} is not there")


def _checkpointed(batch: BatchFacts, recorded: ChainLink) -> ChainLink:
    found = _checkpointed_alone(batch)
    if found.state is LinkState.DONE or recorded.state is not LinkState.DONE or batch.alive is not False:
        return found
    words = f"{found.evidence}, and its driver is gone: a restart runs it again and writes nothing"
    return ChainLink(Link.CHECKPOINTED, LinkState.BROKEN, None, words, RECOVER_AND_COMMIT)


def _under_way(batch: BatchFacts) -> str:
    return "it is under way" if batch.alive else "whether its driver lives is not known"


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
