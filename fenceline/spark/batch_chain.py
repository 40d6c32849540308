"""The chain of a micro-batch: planned, written, prepared, committed, recorded, checkpointed.

Spark writes `offsets/N` before it runs batch N and `commits/N` after its sink is done (MicroBatchExecution).
Between them the exactly-once sink writes its transactions, decides (`N.R.decision`, the point of no return),
makes the coordinators commit, and records that (`N.R.done`). Other sinks lack the links in between.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from fenceline.formatting import count_noun, format_clock, is_are, list_names
from fenceline.spark.records import Decided, Decision, DecisionOutcome, Done
from fenceline.spark.safe_to_restart import EXACTLY_ONCE
from fenceline.spark.sink_fates import EndedTransaction, TransactionFate

#: The two recoveries of the sink, and the word for an unrecoverable loss.
RECOVER_AND_COMMIT, RECOVER_AND_ABORT, LOST = "recoverAndCommit", "recoverAndAbort", "lost"


class BatchStep(StrEnum):
    """A step of a batch, in order."""

    PLANNED = "planned"
    WRITTEN = "written"
    PREPARED = "prepared"
    COMMITTED = "committed"
    RECORDED = "recorded"
    CHECKPOINTED = "checkpointed"


_BETWEEN = (BatchStep.PREPARED, BatchStep.COMMITTED, BatchStep.RECORDED)


class LinkState(StrEnum):
    """The state of a link."""

    DONE = "done"
    WAITING = "waiting"
    BROKEN = "broken"
    #: Unknown.
    UNKNOWN = "unknown"
    #: The sink has no such link.
    ABSENT = "absent"


class ChainLink(NamedTuple):
    link: BatchStep
    state: LinkState
    at_ms: int | None = None
    #: A short sentence.
    evidence: str = ""
    #: The recovery of a broken link: `recoverAndCommit`, `recoverAndAbort`, or `lost`.
    recovery: str = ""


@dataclass(frozen=True, slots=True)
class BatchFacts:
    batch_id: int
    #: `Query.sink`.
    sink: str
    #: Whether `offsets/N` exists, and when it was planned.
    planned: bool = False
    planned_ms: int | None = None
    #: Whether `commits/N` exists, and when it was written.
    checkpointed: bool = False
    checkpointed_ms: int | None = None
    #: Its end by its progress event; None without one.
    progress_ended_ms: int | None = None
    #: The newest round's decision, and its outcome.
    decision: Decision | None = None
    done: Done | None = None
    #: The decision's transactions, in their order.
    ended: tuple[EndedTransaction, ...] = ()
    #: Whether a driver runs the query; None if unknown.
    alive: bool | None = None
    #: Its driver's last heartbeat, if the next one is overdue.
    silent_since_ms: int | None = None
    #: Whether its decision has been open for so long that its driver no longer carries it out.
    overdue: bool = False

    def ids_of(self, fate: TransactionFate) -> Sequence[str]:
        return [transaction.transactional_id for transaction in self.ended if transaction.fate is fate]

    @property
    def is_over(self) -> bool:
        """Whether Spark has finished it."""
        return self.checkpointed or self.progress_ended_ms is not None

    @property
    def abandoned_reason(self) -> str:
        """Return why nobody carries out its decision, as the end of a sentence; "" if a driver may."""
        if self.alive is False:
            return "its driver is gone"
        if not self.overdue or self.decision is None:
            return ""
        if self.silent_since_ms is not None:
            return f"its driver is gone (no heartbeat since {format_clock(self.silent_since_ms)})"
        return f"nobody has gone on with it since {format_clock(self.decision.at_ms)}"

    @property
    def in_progress(self) -> str:
        """Return the known facts about the driver while the batch is not finished."""
        if self.silent_since_ms is not None:
            return f"its driver has had no heartbeat since {format_clock(self.silent_since_ms)}"
        return "in progress" if self.alive else "no listener reports whether its driver runs"


def chain_links(batch: BatchFacts) -> tuple[ChainLink, ...]:
    if batch.sink != EXACTLY_ONCE:
        return _planned(batch), *_foreign(batch), _checkpointed_alone(batch)
    if batch.decision is None:
        return _planned(batch), *_undecided(batch), _checkpointed_alone(batch)
    if batch.decision.decided is Decided.ABORTED:
        return _planned(batch), *_aborted(batch, batch.decision), _checkpointed_alone(batch)
    return _prepared(batch, batch.decision)


def no_chain(sink: str) -> tuple[ChainLink, ...]:
    """Return the chain of a query without a known batch."""
    between = LinkState.WAITING if sink in (EXACTLY_ONCE, "") else LinkState.ABSENT
    states = dict.fromkeys(_BETWEEN, between)
    return tuple(
        ChainLink(link, states.get(link, LinkState.WAITING), None, "no batch is known yet")
        for link in BatchStep
    )


def first_broken_link(links: Sequence[ChainLink]) -> ChainLink | None:
    return next((link for link in links if link.state is LinkState.BROKEN), None)


def _planned(batch: BatchFacts) -> ChainLink:
    name = f"offsets/{batch.batch_id}"
    if batch.planned:
        return ChainLink(BatchStep.PLANNED, LinkState.DONE, batch.planned_ms, f"{name} is there")
    if batch.is_over or batch.decision is not None:
        words = f"{name} was not seen, but {'its end' if batch.is_over else 'its decision'} was"
        return ChainLink(BatchStep.PLANNED, LinkState.DONE, None, words)
    return ChainLink(BatchStep.PLANNED, LinkState.UNKNOWN, None, f"{name} was not seen")


def _foreign(batch: BatchFacts) -> tuple[ChainLink, ...]:
    """Return the links between offsets and commit for a query without our sink."""
    state, words = (
        (LinkState.UNKNOWN, "its sink is unknown")
        if batch.sink == ""
        else (LinkState.ABSENT, "its sink takes part in no two-phase commit")
    )
    reason = batch.in_progress
    if batch.is_over:
        reason = f"commits/{batch.batch_id} is written only after its sink is done"
    elif batch.alive is False:
        reason = "its driver is gone: a restart runs it again and may write rows twice"
    written = LinkState.DONE if batch.is_over else LinkState.WAITING
    return ChainLink(BatchStep.WRITTEN, written, None, reason), *_between(state, words)


def _between(state: LinkState, words: str) -> Iterator[ChainLink]:
    return (ChainLink(link, state, None, words) for link in _BETWEEN)


def _checkpointed_alone(batch: BatchFacts) -> ChainLink:
    name = f"commits/{batch.batch_id}"
    if batch.checkpointed:
        return ChainLink(BatchStep.CHECKPOINTED, LinkState.DONE, batch.checkpointed_ms, f"{name} is there")
    if batch.progress_ended_ms is not None:
        words = f"its progress event came, which Spark sends after {name}"
        return ChainLink(BatchStep.CHECKPOINTED, LinkState.DONE, batch.progress_ended_ms, words)
    return ChainLink(BatchStep.CHECKPOINTED, LinkState.WAITING, None, f"{name} is not there")


def _undecided(batch: BatchFacts) -> tuple[ChainLink, ...]:
    """Return the middle links while the ledger has no decision."""
    if batch.is_over:
        words = "the ledger keeps no decision of it, and Spark has gone on: nothing of it is open"
        written = ChainLink(BatchStep.WRITTEN, LinkState.DONE, None, "its sink was done with it")
        return written, *_between(LinkState.UNKNOWN, words)
    if batch.alive is False:
        words = "its driver is gone before anything was decided: a restart aborts what is open, writes again"
        written = ChainLink(BatchStep.WRITTEN, LinkState.BROKEN, None, words, RECOVER_AND_ABORT)
    else:
        written = ChainLink(BatchStep.WRITTEN, LinkState.WAITING, None, batch.in_progress)
    return written, *_between(LinkState.WAITING, "nothing is decided yet")


def _aborted(batch: BatchFacts, decision: Decision) -> tuple[ChainLink, ...]:
    """Return the middle links after an aborted newest round: the batch runs again, now or at a restart."""
    why = f" ({decision.reason})" if decision.reason else ""
    aborted = f"round {decision.round} was aborted by the {decision.by}{why}"
    open_ids = batch.ids_of(TransactionFate.OPEN)
    if batch.alive is not False:
        written = ChainLink(
            BatchStep.WRITTEN, LinkState.WAITING, decision.at_ms, f"{aborted}: it is to run again"
        )
    elif open_ids and batch.done is None:
        words = f"{aborted}, and {list_names(open_ids)} is still open"
        written = ChainLink(BatchStep.WRITTEN, LinkState.BROKEN, decision.at_ms, words, RECOVER_AND_ABORT)
    else:
        words = f"{aborted}: a restart writes it again"
        written = ChainLink(BatchStep.WRITTEN, LinkState.WAITING, decision.at_ms, words)
    return written, *_between(LinkState.WAITING, "the next round decides anew")


def _prepared(batch: BatchFacts, decision: Decision) -> tuple[ChainLink, ...]:
    committed = _committed(batch, decision)
    recorded = _recorded(batch, committed)
    return (
        _planned(batch),
        _written(decision),
        ChainLink(
            BatchStep.PREPARED,
            LinkState.DONE,
            decision.at_ms,
            f"{decision.by} decided to commit (round {decision.round})",
        ),
        committed,
        recorded,
        _checkpointed(batch, recorded),
    )


def _written(decision: Decision) -> ChainLink:
    records = sum(transaction.records for transaction in decision.transactions)
    words = f"{count_noun(len(decision.transactions), 'transaction')}, {count_noun(records, 'record')}"
    begun = max((transaction.started_ms for transaction in decision.transactions), default=None)
    return ChainLink(BatchStep.WRITTEN, LinkState.DONE, begun, words)


def _committed(batch: BatchFacts, decision: Decision) -> ChainLink:
    """Return whether the batch is committed, by the strongest evidence."""
    aborted, committed = batch.ids_of(TransactionFate.ABORTED), batch.ids_of(TransactionFate.COMMITTED)
    whole = count_noun(len(decision.transactions), "transaction")
    at_ms = max(
        (transaction.at_ms for transaction in batch.ended if transaction.at_ms is not None), default=None
    )
    if aborted:
        words = f"{list_names(aborted)} of {whole} {is_are(len(aborted))} aborted"
        return ChainLink(BatchStep.COMMITTED, LinkState.BROKEN, at_ms, words, LOST)
    if batch.done is not None and batch.done.outcome is DecisionOutcome.LOST:
        return _recorded_loss(batch.done, whole)
    if not decision.transactions:
        return ChainLink(BatchStep.COMMITTED, LinkState.DONE, decision.at_ms, "it has nothing to commit")
    if len(committed) == len(decision.transactions):
        return ChainLink(BatchStep.COMMITTED, LinkState.DONE, at_ms, _all_complete(decision))
    if batch.done is not None:
        return _by_done_mark(batch, batch.done, whole)
    open_ids = batch.ids_of(TransactionFate.OPEN)
    if open_ids or batch.ids_of(TransactionFate.COMMITTING):
        return _under_commit(batch, open_ids, len(committed), whole)
    words = "; ".join(_coordinator_part(batch.ended))
    return ChainLink(BatchStep.COMMITTED, LinkState.UNKNOWN, None, f"{whole}: {words}")


def _all_complete(decision: Decision) -> str:
    """Return the words for a commit confirmed by all coordinators, with first offsets from the ledger."""
    number = len(decision.transactions)
    words = f"{number} of {count_noun(number, 'coordinator')}: CompleteCommit"
    firsts: dict[str, int] = {}
    for records in (
        written for transaction in decision.transactions for written in transaction.written or ()
    ):
        name = f"{records.topic}-{records.partition}"
        firsts[name] = min(records.first_offset, firsts.get(name, records.first_offset))
    if not firsts:
        return words
    return (
        f"{words}; records from offsets {list_names([f'{name}: {at:,}' for name, at in firsts.items()], 2)}"
    )


def with_markers(links: Iterable[ChainLink], markers: Mapping[str, int]) -> tuple[ChainLink, ...]:
    """Return the links of a batch with an audit's commit markers, by partition."""
    if not markers:
        return tuple(links)
    words = f"markers at {list_names([f'{name}: {at}' for name, at in markers.items()])}, by the audit"
    return tuple(
        link._replace(evidence=f"{link.evidence}; {words}") if link.link is BatchStep.COMMITTED else link
        for link in links
    )


def _by_done_mark(batch: BatchFacts, done: Done, whole: str) -> ChainLink:
    """Return the link that the ledger's done mark proves if coordinators do not show all of it."""
    name = f"{done.batch_id}.{done.round}.done"
    words = (
        f"EndTxn was answered for {whole} ({name} by the {done.by})"
        if done.by
        else f"Spark went on after {whole}; {name} was not seen"
    )
    if all(transaction.fate is TransactionFate.UNKNOWN for transaction in batch.ended):
        words = f"ledger only: {words}"
    words = "; ".join([words, *_coordinator_part(batch.ended)])
    contradicted = batch.overdue and batch.ids_of(TransactionFate.OPEN)
    state = LinkState.UNKNOWN if contradicted else LinkState.DONE
    return ChainLink(BatchStep.COMMITTED, state, done.at_ms, words)


def _coordinator_part(ended: Sequence[EndedTransaction]) -> Iterator[str]:
    """Yield the coordinators' view of a batch's transactions; missing parts come last."""
    parts = (
        (TransactionFate.COMMITTED, "{} CompleteCommit at the coordinator"),
        (TransactionFate.COMMITTING, "{} PrepareCommit: markers are being written"),
        (TransactionFate.OPEN, "{} still Ongoing in the coordinator's newest record"),
    )
    for fate, words in parts:
        if number := sum(transaction.fate is fate for transaction in ended):
            yield words.format(number)
    unknown = [transaction for transaction in ended if transaction.fate is TransactionFate.UNKNOWN]
    again = sum(transaction.id_used_again for transaction in unknown)
    if again:
        yield f"{again} not confirmed by a coordinator: {_ids(again)} used again since"
    if unseen := len(unknown) - again:
        yield f"{unseen} not confirmed by a coordinator: no record of {_ids(unseen)} is known"


def _ids(number: int) -> str:
    return "its id" if number == 1 else "their ids"


def _recorded_loss(done: Done, whole: str) -> ChainLink:
    gone = list_names(done.lost) or "some"
    words = f"{gone} of {whole} {is_are(len(done.lost))} lost: gone before the commit"
    return ChainLink(BatchStep.COMMITTED, LinkState.BROKEN, done.at_ms, words, LOST)


def _under_commit(batch: BatchFacts, open_ids: Sequence[str], ended: int, whole: str) -> ChainLink:
    words = f"{ended} of {whole} committed" + (f", {list_names(open_ids, 1)} still open" if open_ids else "")
    if batch.abandoned_reason and open_ids:
        abandoned = f"{words}, and {batch.abandoned_reason}"
        return ChainLink(BatchStep.COMMITTED, LinkState.BROKEN, None, abandoned, RECOVER_AND_COMMIT)
    return ChainLink(BatchStep.COMMITTED, LinkState.WAITING, None, words)


def _recorded(batch: BatchFacts, committed: ChainLink) -> ChainLink:
    name = f"{batch.batch_id}.{batch.decision.round if batch.decision else 0}.done"
    if batch.done is not None:
        by = f" by the {batch.done.by}" if batch.done.by else ", swept away since"
        words = f"{name}{by}: {batch.done.outcome}"
        return ChainLink(BatchStep.RECORDED, LinkState.DONE, batch.done.at_ms, words)
    if committed.state is LinkState.DONE and batch.abandoned_reason:
        words = f"{name} is not there, and {batch.abandoned_reason}"
        return ChainLink(BatchStep.RECORDED, LinkState.BROKEN, None, words, RECOVER_AND_COMMIT)
    if batch.is_over:
        words = f"{name} is not there, although commits/{batch.batch_id} is: was it deleted?"
        return ChainLink(BatchStep.RECORDED, LinkState.BROKEN, None, words, RECOVER_AND_COMMIT)
    return ChainLink(BatchStep.RECORDED, LinkState.WAITING, None, f"{name} is not there")


def _checkpointed(batch: BatchFacts, recorded: ChainLink) -> ChainLink:
    checkpointed = _checkpointed_alone(batch)
    if (
        checkpointed.state is LinkState.DONE
        or recorded.state is not LinkState.DONE
        or batch.alive is not False
    ):
        return checkpointed
    words = f"{checkpointed.evidence}, and its driver is gone: a restart runs it again and writes nothing"
    return ChainLink(BatchStep.CHECKPOINTED, LinkState.BROKEN, None, words, RECOVER_AND_COMMIT)
