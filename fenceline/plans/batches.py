"""Finish and roll back: end a batch that a dead driver of our exactly-once sink left.

The decision in the ledger is binding. Finishing a prepared batch is idempotent, and a prepared batch is never
rolled back. A batch without a prepared decision is rolled back, and runs again (docs/acting.md,
docs/sink.md).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fenceline.formatting import count_noun, format_clock, format_duration, is_are, list_names, upper_first
from fenceline.kafka.reconcile import Described
from fenceline.plans.impact import HeldLog, Reach, compute_reach, own_effects
from fenceline.plans.plan import Bound, Effect, PlanStep, Refusal, RefusalReason, Seen, SubjectPlan
from fenceline.spark.records import Decided, Decision, Done, InputRange, SinkTransaction
from fenceline.spark.sink_fates import TransactionFate

#: Maximum ids, and maximum sources of a lost range, in a sentence.
_NAMED = 3
#: The state of a batch that re-verification compares.
_SEEN = ("checkpoint", "root", "ledger_id", "query_id", "batch_id", "generation")
#: Maximum characters of a source's offsets in a sentence.
_LONGEST = 200


_LOST = (TransactionFate.ABORTED, TransactionFate.UNKNOWN)


@dataclass(frozen=True, slots=True)
class SinkBatchFacts:
    """One batch of a query with our sink: its ledger and its transactions, just read."""

    ident: str
    #: The query's display name.
    name: str
    batch_id: int
    #: The checkpoint as a URL, and its root in the configuration.
    checkpoint: str = ""
    root: str = ""
    #: Why the ledger cannot be read, in words; "" if it can.
    trouble: str = ""
    ledger_id: str = ""
    query_id: str = ""
    #: The newest claimed generation.
    generation: int = 0
    first_batch: int = 0
    #: The decisions about this batch, the first round first, and the outcome of the last one.
    rounds: tuple[Decision, ...] = ()
    done: Done | None = None
    #: The newest prepared batch, and the prepared batches that are and are not done.
    last_prepared: int | None = None
    prepared: tuple[int, ...] = ()
    #: The newest batch in the offset log.
    planned: int | None = None
    #: The transactions of the last decision, and their fates.
    written: Mapping[SinkTransaction, TransactionFate] = field(default_factory=dict)
    #: Open transactions of this ledger that are in no open decision.
    undecided: tuple[Described, ...] = ()
    #: Why coordinators could not be asked for all of them; "" if they could.
    unseen: str = ""
    #: The partitions that these transactions block.
    logs: tuple[HeldLog, ...] = ()
    #: Whether its listener reports a running driver, and the time of the last report.
    alive: bool | None = None
    heard_ms: int | None = None

    @property
    def decision(self) -> Decision | None:
        return self.rounds[-1] if self.rounds else None

    @property
    def subject(self) -> str:
        """Return `IDENT@BATCH`, the subject of an action."""
        return f"{self.ident}@{self.batch_id}"

    @property
    def title(self) -> str:
        return f"{self.name}, batch {self.batch_id}"

    @property
    def confirm(self) -> str:
        """Return the text that confirms an action."""
        return f"{self.name}@{self.batch_id}"

    @property
    def open_transactions(self) -> tuple[SinkTransaction, ...]:
        return tuple(written for written, fate in self.written.items() if fate is TransactionFate.OPEN)


def plan_finish(batch: SinkBatchFacts) -> SubjectPlan:
    """Return the plan to finish a prepared batch: commit its open transactions, and record the commit."""
    refusals = tuple(_against_finish(batch))
    decision = batch.decision
    if decision is None or refusals:
        return SubjectPlan(f"query:{batch.ident}", batch.title, _named(batch), refusals=refusals)
    opened = batch.open_transactions
    reach = compute_reach(batch.logs, frozenset(transaction.producer_id for transaction in opened))
    seen, steps = _seen(batch, decision.round, opened), _finish_steps(batch, decision)
    effects = _finish_effects(batch, decision, reach)
    return reach.plan(f"query:{batch.ident}", batch.title, seen, steps, effects)


def plan_roll_back(batch: SinkBatchFacts, *, now_ms: int) -> SubjectPlan:
    """Plan to roll a batch back: decide against it, then abort its open transactions."""
    refusals = tuple(_against_roll_back(batch, now_ms))
    if any(not refusal.forceable for refusal in refusals):
        return SubjectPlan(f"query:{batch.ident}", batch.title, _named(batch), refusals=refusals)
    reach = compute_reach(batch.logs, frozenset(transaction.producer_id for transaction in batch.undecided))
    round_ = batch.rounds[-1].round + 1 if batch.rounds else 0
    seen, steps = _seen(batch, round_, batch.undecided), _roll_back_steps(batch, round_)
    effects = _roll_back_effects(batch, reach)
    return reach.plan(f"query:{batch.ident}", batch.title, seen, steps, effects, refusals)


def finish_warnings(batches: Sequence[SinkBatchFacts], *, now_ms: int) -> Iterator[str]:
    """Yield a warning for each batch with a live driver, and for each finish that accepts a loss."""
    for batch in batches:
        if batch.alive:
            yield (
                f"The driver of {batch.name} lives ({_last_heartbeat(batch, now_ms)}): it finishes the batch "
                "itself. To do it twice does no harm."
            )
        lost = sum(fate in _LOST for fate in batch.written.values())
        if lost:
            yield (
                f"{count_noun(lost, 'transaction')} of batch {batch.batch_id} of {batch.name} "
                f"{is_are(lost)} gone: to finish the batch accepts that loss, and the "
                f"query goes on with batch {batch.batch_id + 1}."
            )


def roll_back_warnings(batches: Sequence[SinkBatchFacts]) -> Iterator[str]:
    """Yield a warning for each batch whose driver may be running."""
    for batch in batches:
        if batch.alive is None and batch.undecided:
            yield (
                f"Whether the driver of {batch.name} is running is unknown: if it is, its batch fails and "
                "runs again."
            )


def _named(batch: SinkBatchFacts) -> Seen:
    return {"query": batch.ident, "batch_id": batch.batch_id}


def _seen(
    batch: SinkBatchFacts, round_: int, transactions: Sequence[SinkTransaction] | Sequence[Described]
) -> Seen:
    return {
        **{name: getattr(batch, name) for name in _SEEN},
        "query": batch.ident,
        "round": round_,
        "transactions": [
            [opened.transactional_id, opened.producer_id, opened.producer_epoch, opened.started_ms]
            for opened in transactions
        ],
    }


def _against_finish(batch: SinkBatchFacts) -> Iterator[Refusal]:
    decision, what = batch.decision, f"batch {batch.batch_id} of {batch.name}"
    if batch.trouble:
        yield _unreadable(batch)
    elif decision is None:
        words = f"Nothing is decided about {what}, so nothing of it may be committed."
        if batch.undecided:
            words += f" Its open transactions are rolled back (roll_back_batch {batch.subject})."
        yield Refusal(RefusalReason.NOT_PREPARED, words)
    elif decision.decided is Decided.ABORTED:
        words = (
            f"Round {decision.round} of {what} was aborted by the {decision.by} at "
            f"{format_clock(decision.at_ms)}: there is nothing to finish. The batch runs again when its "
            "query starts."
        )
        yield Refusal(RefusalReason.NOT_PREPARED, words)
    elif batch.done is not None:
        yield Refusal(RefusalReason.ALREADY_ENDED, _ended(what, batch.done))
    elif batch.unseen:
        yield Refusal(RefusalReason.NOT_SEEN, f"The transactions of {what} cannot be seen: {batch.unseen}.")


def _against_roll_back(batch: SinkBatchFacts, now_ms: int) -> Iterator[Refusal]:
    decision, what = batch.decision, f"batch {batch.batch_id} of {batch.name}"
    if batch.trouble:
        yield _unreadable(batch)
    elif decision is not None and decision.decided is Decided.PREPARED:
        yield Refusal(RefusalReason.PREPARED, _is_prepared(batch, what))
    elif _is_behind(batch):
        yield Refusal(RefusalReason.ALREADY_ENDED, f"{upper_first(what)} is over: {_what_is_behind(batch)}.")
    elif batch.prepared:
        words = (
            f"Batch {batch.prepared[0]} of {batch.name} is prepared and not done: finish that first "
            f"(finish_batch {batch.ident}@{batch.prepared[0]})."
        )
        yield Refusal(RefusalReason.PREPARED, words)
    elif batch.unseen:
        yield Refusal(
            RefusalReason.NOT_SEEN, f"The open transactions of {what} cannot be seen: {batch.unseen}."
        )
    elif batch.planned is None or batch.batch_id > batch.planned:
        newest = "none" if batch.planned is None else f"batch {batch.planned}"
        words = f"{upper_first(what)} is not planned: the newest one in the offset log is {newest}."
        yield Refusal(RefusalReason.NOTHING_OPEN, words)
    elif not batch.undecided:
        words = f"No transaction of {what} is open: nothing is to be rolled back."
        yield Refusal(RefusalReason.NOTHING_OPEN, words)
    elif batch.alive:
        words = (
            f"The driver of {batch.name} lives ({_last_heartbeat(batch, now_ms)}) and may be about to "
            f"prepare {what}: rolled back, the batch fails there and runs again. Stop the query first, or "
            "wait."
        )
        yield Refusal(RefusalReason.DRIVER_LIVES, words, forceable=True)


def _is_behind(batch: SinkBatchFacts) -> bool:
    """Whether a batch precedes the one that the sink writes next."""
    if batch.last_prepared is None:
        return batch.batch_id < batch.first_batch
    return batch.batch_id <= batch.last_prepared


def _what_is_behind(batch: SinkBatchFacts) -> str:
    if batch.last_prepared is None:
        return f"its sink begins with batch {batch.first_batch}"
    return f"batch {batch.last_prepared} is prepared already"


def _unreadable(batch: SinkBatchFacts) -> Refusal:
    words = f"The ledger of {batch.name} cannot be read, so its batches cannot be ended: {batch.trouble}"
    return Refusal(RefusalReason.LEDGER_UNREADABLE, words if words.endswith(".") else f"{words}.")


def _is_prepared(batch: SinkBatchFacts, what: str) -> str:
    if batch.done is not None:
        return _ended(what, batch.done)
    return (
        f"{upper_first(what)} is prepared: from there on it can only be committed, or output would be lost. "
        f"Finish it instead (finish_batch {batch.subject})."
    )


def _ended(what: str, done: Done) -> str:
    return f"{upper_first(what)} is {done.outcome} since {format_clock(done.at_ms)}, by the {done.by}."


def _last_heartbeat(batch: SinkBatchFacts, now_ms: int) -> str:
    if batch.heard_ms is None:
        return "reported by its listener"
    return f"last heartbeat {format_duration(max(0, now_ms - batch.heard_ms))} ago"


def _finish_steps(batch: SinkBatchFacts, decision: Decision) -> Iterator[PlanStep]:
    if batch.open_transactions:
        yield _end_step("Commit", batch.open_transactions)
    file = f"{decision.batch_id}.{decision.round}.done"
    yield PlanStep("ledger", f"Create {file} in the ledger of {batch.name}: nobody carries it out again.")


def _finish_effects(batch: SinkBatchFacts, decision: Decision, reach: Reach) -> Iterator[Effect]:
    opened = batch.open_transactions
    if opened:
        records = sum(transaction.records for transaction in opened)
        words = (
            f"{count_noun(records, 'record')} in {count_noun(len(opened), 'transaction')} of batch "
            f"{batch.batch_id} {is_are(records)} committed{_readable(reach, records)}."
        )
        yield Effect("records_committed", records, words)
    ended = (TransactionFate.COMMITTED, TransactionFate.COMMITTING)
    before = sum(fate in ended for fate in batch.written.values())
    if before:
        words = f"{count_noun(before, 'transaction')} of it {is_are(before)} committed."
        yield Effect("committed_before", before, words)
    yield from reach.effects
    lost = {written: fate for written, fate in batch.written.items() if fate in _LOST}
    if lost:
        yield _lost(lost, decision)
    words = f"The batch is recorded: {batch.name} goes on with batch {batch.batch_id + 1} when it starts."
    yield Effect("batch_recorded", None, words)


def _readable(reach: Reach, records: int) -> str:
    """Return that the records become readable; "" if another transaction may still block them."""
    if any(effect.name in ("lso_stays", "unseen") for effect in reach.effects):
        return ""
    return f", and {'becomes' if records == 1 else 'become'} readable"


def _lost(lost: Mapping[SinkTransaction, TransactionFate], decision: Decision) -> Effect:
    """Return the lost records of a prepared batch: aborted, or not known to be committed."""
    records = sum(written.records for written in lost)
    bound = "at most " if TransactionFate.UNKNOWN in lost.values() else ""
    names = list_names([written.transactional_id for written in lost], _NAMED)
    ranges = "; ".join(map(_range, decision.input[:_NAMED])) or "not known"
    them = "it" if records == 1 else "them"
    words = (
        f"{bound}{count_noun(records, 'record')} of it {is_are(records)} lost: {names} ended before the "
        f"commit. Write {them} again from what the batch read: {ranges}."
    )
    return Effect("records_lost", records, upper_first(words), Bound.AT_MOST if bound else Bound.EXACT)


def _range(read: InputRange) -> str:
    start, end = (_short(offsets) for offsets in (read.start or "its beginning", read.end or "nothing"))
    return f"source {read.source} from {start} to {end}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _roll_back_steps(batch: SinkBatchFacts, round_: int) -> Iterator[PlanStep]:
    file = f"{batch.batch_id}.{round_}.decision"
    yield PlanStep(
        "ledger",
        f'Create {file} in the ledger of {batch.name} with "aborted", exclusively: a driver that comes back '
        "cannot prepare that round any more.",
    )
    yield _end_step("Abort", batch.undecided)
    yield PlanStep("ledger", f"Create {batch.batch_id}.{round_}.done: nobody carries it out again.")


def _end_step(verb: str, transactions: Sequence[SinkTransaction] | Sequence[Described]) -> PlanStep:
    names = [transaction.transactional_id for transaction in transactions]
    coordinators = "its coordinator" if len(names) == 1 else "their coordinators"
    number = count_noun(len(names), "transaction")
    return PlanStep("EndTxn", f"{verb} {number} at {coordinators}: {list_names(names, _NAMED)}.")


def _roll_back_effects(batch: SinkBatchFacts, reach: Reach) -> Iterator[Effect]:
    yield from own_effects("records_aborted", reach.own, "aborted")
    yield from reach.effects
    words = f"Nothing is lost: {batch.name} runs batch {batch.batch_id} again when it starts."
    yield Effect("batch_runs_again", None, words)
