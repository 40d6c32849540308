"""The protocol, for any host: open, begin, commit, abort (spark.md §3.5, design.md §10).

One rule makes it exactly-once: nobody ends a transaction of a batch before a decision about that batch is in
the ledger, created exclusively. A prepared decision is the last one about its batch, and whoever finds it
commits; an aborted one ends its round, and the batch may be begun again in the next.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from fenceline.decode.ledger import Names, Round
from fenceline.spark import Decided, Decision, Done, Ledger, Outcome, SinkTransaction
from fenceline.words import count
from spark_pipeline.sink import names
from spark_pipeline.sink.checkpoint import QueryFiles
from spark_pipeline.sink.errors import LostTransactions, Refused, SinkError, input_text, named
from spark_pipeline.sink.ledger import LedgerFolder
from spark_pipeline.sink.steps import Observer, Step
from spark_pipeline.sink.storage import Storage, refuse_weak
from spark_pipeline.sink.transactions import Bad, Transactions
from transaction_admin.api import TransactionAdmin

log = logging.getLogger(__name__)

DRIVER = "driver"
#: A task that was killed, or a late attempt, leaves a transaction that holds readers back until its timeout.
#: They are looked for after a batch: at once where attempts were repeated, else so often, and never so often
#: that it costs more than a hundredth of the time (a coordinator looks through all of its ids).
SWEEP_EVERY_S, SWEEP_COST = 60.0, 100
#: How often the files of old batches are removed, in batches.
_PURGE_EVERY = 10


class Settings(NamedTuple):
    """How a sink is to behave, whoever hosts it."""

    #: How its transactional ids begin; the ledger's own wins where the user names none.
    prefix: str
    prefix_chosen: bool
    timeout_ms: int
    warning_ratio: float = 0.8
    accept_loss: frozenset[int] = frozenset()
    adopt: bool = False
    #: Whether more attempts of a task than one may run at once.
    speculation: bool = False


class Attempt(NamedTuple):
    """One attempt to write a batch. It travels to tasks, and from one driver-side process to the next."""

    batch_id: int
    round: int
    generation: int
    ledger_id: str
    query_id: str
    run_id: str
    #: How its transactional ids begin.
    stem: str
    timeout_ms: int
    #: By the driver machine's monotonic clock, in seconds.
    begun_s: float


class Coordinator:
    """The sink of one query, on its driver."""

    def __init__(
        self,
        settings: Settings,
        checkpoint: Storage,
        admin: TransactionAdmin,
        observer: Observer | None = None,
    ) -> None:
        self._settings, self._observer = settings, observer
        self._transactions = Transactions(admin)
        self._query = QueryFiles(checkpoint)
        self._ledger = LedgerFolder(checkpoint)
        self._identity: Ledger | None = None
        self._generation = 0
        self._run_id = ""
        self._sweep_at_s = 0.0

    @property
    def generation(self) -> int:
        """The generation that this run has claimed; 0 before it is opened."""
        return self._generation

    def planned(self) -> tuple[str, int]:
        """Return the query's id and its newest planned batch, as the checkpoint tells them."""
        query_id = self._refuse_stranger("")
        batch_id = self._query.planned()
        if batch_id is None:
            raise Refused(
                f"{self._query.path}/offsets is empty while a batch is planned: exactly-once is impossible "
                "with asyncProgressTrackingEnabled and in real-time mode"
            )
        return query_id, batch_id

    def open(self, query_id: str, run_id: str, batch_id: int) -> None:
        """Take the query over: refuse what would break it, claim a generation, end what is left open.

        `batch_id` is the first batch that Spark asks for. Raises `Refused`, `LostTransactions`, `SinkError`.
        """
        self._refuse_stranger(query_id)
        self._identity = self._own_ledger(query_id, batch_id)
        self._refuse_batch(batch_id, self._ledger.names())
        self._generation, self._run_id = self._ledger.claim(run_id, _now_ms()), run_id
        self._recover()

    def begin(self, batch_id: int) -> Attempt | None:
        """Begin a batch; None when it is committed already, or was prepared and is committed now."""
        ledger = self._opened()
        found = self._ledger.names()
        self._refuse_taken_over(found, self._generation)
        prepared = self._refuse_batch(batch_id, found)
        self._carry_out_open(found)
        if prepared is not None and prepared.batch_id == batch_id:
            log.info("batch %d is committed already", batch_id)
            return None
        rounds = found.rounds(batch_id)
        attempt = Attempt(
            batch_id,
            rounds[-1].round + 1 if rounds else 0,
            self._generation,
            ledger.ledger_id,
            ledger.query_id,
            self._run_id,
            names.stem(ledger.prefix, ledger.ledger_id),
            self._settings.timeout_ms,
            time.monotonic(),
        )
        self._tell(Step.BEFORE_WRITE, batch_id)
        return attempt

    def commit(self, attempt: Attempt, written: Sequence[SinkTransaction]) -> None:
        """Commit a batch whose tasks have all flushed. Raises `SinkError`; then Spark runs the batch again.

        A batch that somebody has prepared in the meantime is finished as it was prepared.
        """
        self._tell(Step.WRITTEN, attempt.batch_id)
        if not self._is_decided(attempt):
            self._refuse_bad(attempt, written, self._transactions.verify(written, self._open_s(attempt)))
            self._tell(Step.VERIFIED, attempt.batch_id)
        held = self._decide(attempt, Decided.PREPARED, written)
        if held.decided is Decided.ABORTED:
            self._transactions.abort(written)
            raise SinkError(
                f"batch {attempt.batch_id} was rolled back by {held.by} before it was prepared: "
                f"{held.reason}. Nothing of it is visible; it runs again when the query starts"
            )
        kept = {each[2:5] for each in held.transactions}
        self._transactions.abort([each for each in written if each[2:5] not in kept])
        self._tell(Step.PREPARED, attempt.batch_id)
        self._carry_out(held)
        self._after(attempt, written)

    def abort(self, attempt: Attempt, written: Collection[SinkTransaction], reason: str) -> None:
        """Give a batch up, unless it is prepared: then it is committed at the next start."""
        held = self._decide(attempt, Decided.ABORTED, tuple(written), reason)
        if held.decided is Decided.PREPARED:
            log.warning("batch %d has failed after it was prepared: it stays prepared", attempt.batch_id)
            return
        self._transactions.abort(written)
        parity = attempt.batch_id % 2
        self._transactions.sweep(
            attempt.stem, lambda parts: parts.generation == attempt.generation and parts.parity == parity
        )
        self._finish(held, Outcome.ABORTED)

    def unknown_attempt(self, batch_id: int) -> Attempt | None:
        """Return the newest generation's attempt at a batch, for a host that has nothing left of it."""
        ledger = self._ledger.identity()
        found = self._ledger.names()
        if ledger is None or not found.generations:
            return None
        rounds = found.rounds(batch_id)
        last = self._ledger.last(found, batch_id)
        chained = last is not None and last.decided is Decided.ABORTED
        return Attempt(
            batch_id,
            (rounds[-1].round + chained) if rounds else 0,
            found.generation,
            ledger.ledger_id,
            ledger.query_id,
            "",
            names.stem(ledger.prefix, ledger.ledger_id),
            self._settings.timeout_ms,
            time.monotonic(),
        )

    # Opening.

    def _refuse_stranger(self, query_id: str) -> str:
        found = self._query.query_id()
        if found is None:
            raise Refused(
                f"{self._query.path} is no checkpoint: it has no file metadata. It must be the query's own "
                "checkpointLocation, with its scheme (hdfs://…) where that is not the local one"
            )
        if query_id and found != query_id:
            raise Refused(
                f"{self._query.path} is the checkpoint of query {found}, and this is query {query_id}: "
                "checkpoint must be the query's own checkpointLocation"
            )
        return found

    def _own_ledger(self, query_id: str, batch_id: int) -> Ledger:
        ledger = self._ledger.identity()
        if ledger is None:
            self._refuse_history(batch_id)
        refuse_weak(self._ledger.files)
        if ledger is None:
            ledger = self._ledger.begin(
                Ledger(uuid.uuid4().hex, query_id, self._settings.prefix, _now_ms(), batch_id)
            )
        if ledger.query_id != query_id:
            raise Refused(
                f"the ledger in {self._ledger.path} belongs to query {ledger.query_id}, and the "
                f"checkpoint's metadata names {query_id}. If metadata was lost (Spark 4.1 then makes up "
                f'another id), write {{"id":"{ledger.query_id}"}} to {self._query.path}/metadata. If the '
                f"checkpoint was reset on purpose, remove {self._ledger.path} as well"
            )
        if self._settings.prefix_chosen and ledger.prefix != self._settings.prefix:
            raise Refused(
                f"the ledger in {self._ledger.path} has transactional ids that begin with {ledger.prefix!r}, "
                f"and the option prefix says {self._settings.prefix!r}: keep the first. Transactions under "
                "another prefix would not be found again"
            )
        return ledger

    def _refuse_history(self, batch_id: int) -> None:
        finished = self._query.finished()
        if (batch_id == 0 and finished is None) or self._settings.adopt:
            return
        raise Refused(
            f"{self._query.path} has batches (batch {batch_id} is next) and no ledger in "
            f"{self._ledger.path}. If the ledger was deleted, restore it: prepared transactions may be "
            "waiting for it. If another "
            "sink has written until now, start once with adopt=True: the ledger begins with this batch"
        )

    def _refuse_batch(self, batch_id: int, found: Names) -> Decision | None:
        """Return the last prepared decision; raise `Refused` if this batch cannot come after it."""
        prepared = self._ledger.last_prepared(found)
        last = prepared.batch_id if prepared is not None else self._opened().first_batch - 1
        if not self._query.is_planned(batch_id):
            raise Refused(
                f"batch {batch_id} runs and {self._query.path}/offsets/{batch_id} is not there: with "
                "asyncProgressTrackingEnabled, or in real-time mode, a batch may read another range when it "
                "is run again. Exactly-once needs the default: turn it off"
            )
        if prepared is not None and batch_id == last:
            self._refuse_other_range(prepared)
            return prepared
        skipped = range(last + 1, batch_id)
        if batch_id <= last or not all(map(self._query.is_control, skipped)):
            raise Refused(
                f"Spark asks for batch {batch_id}, and the ledger in {self._ledger.path} has committed batch "
                f"{last}: the next one must be {last + 1}. The checkpoint was reset, edited or restored. "
                "Restore checkpoint and ledger of one moment, or, to begin anew, remove both: records of "
                "batches that are run again would be doubled"
            )
        return prepared

    def _refuse_other_range(self, prepared: Decision) -> None:
        now = self._query.input(prepared.batch_id)
        before = {each.source: each for each in prepared.input}
        if all(each.source not in before or each == before[each.source] for each in now):
            return
        raise Refused(
            f"batch {prepared.batch_id} is committed, and was to read something else now. It has read\n"
            f"{input_text(prepared.input)}\nand {self._query.path}/offsets says now\n{input_text(now)}\n"
            "The checkpoint was reset or edited. Restore checkpoint and ledger of one moment, or remove both"
        )

    def _recover(self) -> None:
        """End what drivers before have left, before the first batch. To repeat it is safe."""
        found = self._ledger.names()
        self._carry_out_open(found)
        if self._generation == 1:
            return
        barrier = self._bar_older_drivers(found)
        stem = names.stem(self._opened().prefix, self._opened().ledger_id)
        self._transactions.sweep(stem, lambda parts: parts.generation < self._generation)
        if barrier is not None:
            self._finish(barrier, Outcome.ABORTED)

    def _bar_older_drivers(self, found: Names) -> Decision | None:
        """Decide against the batch that an older driver may still write: it can never prepare it then."""
        ledger = self._opened()
        prepared = self._ledger.last_prepared(found)
        batch_id = prepared.batch_id + 1 if prepared is not None else ledger.first_batch
        rounds = found.rounds(batch_id)
        which = Round(batch_id, rounds[-1].round + 1 if rounds else 0)
        held = self._ledger.decide(self._decision(which, Decided.ABORTED, (), "the driver before is gone"))
        if held.decided is Decided.PREPARED:
            # It was faster. It learns that it was taken over when it begins the next one.
            self._carry_out(held)
            return None
        return held

    # Deciding and carrying out.

    def _is_decided(self, attempt: Attempt) -> bool:
        """Whether somebody has decided about this attempt; raise if another driver has taken over."""
        found = self._ledger.names()
        if Round(attempt.batch_id, attempt.round) in found.decisions:
            return True
        self._refuse_taken_over(found, attempt.generation)
        return False

    def _decide(
        self, attempt: Attempt, decided: Decided, transactions: Sequence[SinkTransaction], reason: str = ""
    ) -> Decision:
        which = Round(attempt.batch_id, attempt.round)
        return self._ledger.decide(
            Decision(
                which.batch_id, which.round, decided, DRIVER, _now_ms(), attempt.ledger_id, attempt.query_id,
                attempt.run_id, attempt.generation, tuple(transactions), self._query.input(which.batch_id),
                reason,
            )
        )  # fmt: skip

    def _decision(
        self, which: Round, decided: Decided, transactions: Sequence[SinkTransaction], reason: str
    ) -> Decision:
        ledger = self._opened()
        return Decision(
            which.batch_id, which.round, decided, DRIVER, _now_ms(), ledger.ledger_id, ledger.query_id,
            self._run_id, self._generation, tuple(transactions), self._query.input(which.batch_id), reason,
        )  # fmt: skip

    def _refuse_bad(self, attempt: Attempt, written: Sequence[SinkTransaction], bad: Sequence[Bad]) -> None:
        if not bad:
            return
        reasons = "; ".join(f"{each.transactional_id}: {each.reason}" for each in bad[:3])
        self.abort(attempt, written, f"not all of its transactions could be prepared: {reasons}")
        raise SinkError(
            f"batch {attempt.batch_id} was rolled back, nothing of it is visible: {len(bad)} of its "
            f"{count(len(written), 'transaction')} cannot be committed ({reasons}). "
            f"Transactional ids: {named([each.transactional_id for each in bad])}\n"
            f"What it read:\n{input_text(self._query.input(attempt.batch_id))}\n"
            "Start the query again: the batch runs again. If batches take that long, raise "
            "transaction_timeout_ms (and the broker's transaction.max.timeout.ms) or make them smaller"
        )

    def _carry_out_open(self, found: Names) -> None:
        for which in found.open():
            self._carry_out(self._ledger.decision(which))

    def _carry_out(self, decision: Decision) -> None:
        """Do what a decision says and note it; to repeat it is safe."""
        if decision.decided is Decided.ABORTED:
            self._transactions.abort(decision.transactions)
            self._finish(decision, Outcome.ABORTED)
            return
        on_first = None if self._observer is None else lambda: self._tell(Step.ENDING, decision.batch_id)
        lost = self._transactions.commit(decision.transactions, on_first)
        if lost.transactions:
            report = LostTransactions(decision, lost.transactions, lost.why)
            if decision.batch_id not in self._settings.accept_loss:
                raise report
            log.error("accepted by accept_loss: %s", report)
        self._tell(Step.ENDED, decision.batch_id)
        ids = tuple(each.transactional_id for each in lost.transactions)
        self._finish(decision, Outcome.LOST if ids else Outcome.COMMITTED, ids)
        self._tell(Step.DONE, decision.batch_id)

    def _finish(self, decision: Decision, outcome: Outcome, lost: tuple[str, ...] = ()) -> None:
        self._ledger.finish(Done(decision.batch_id, decision.round, outcome, _now_ms(), DRIVER, lost))

    def _after(self, attempt: Attempt, written: Sequence[SinkTransaction]) -> None:
        """Tidy up after a batch that is done."""
        self._warn_of_timeout(attempt)
        if attempt.batch_id % _PURGE_EVERY == 0:
            self._ledger.purge()
        repeated = self._settings.speculation or any(each.attempt > 0 for each in written)
        now_s = time.monotonic()
        if not repeated and now_s < self._sweep_at_s:
            return
        # No batch runs now: whatever this ledger has open is nobody's.
        self._transactions.sweep(attempt.stem, lambda parts: parts.generation <= attempt.generation)
        ended_s = time.monotonic()
        self._sweep_at_s = ended_s + max(SWEEP_EVERY_S, SWEEP_COST * (ended_s - now_s))

    def _warn_of_timeout(self, attempt: Attempt) -> None:
        took_s, timeout_s = self._open_s(attempt), attempt.timeout_ms / 1000
        if took_s > self._settings.warning_ratio * timeout_s:
            log.warning(
                "batch %d took %.1f s, more than %g of the transaction timeout (%g s): raise "
                "transaction_timeout_ms or make batches smaller, before one is lost",
                attempt.batch_id, took_s, self._settings.warning_ratio, timeout_s,
            )  # fmt: skip

    def _refuse_taken_over(self, found: Names, generation: int) -> None:
        if found.generation > generation:
            raise SinkError(
                f"another driver took over: generation {found.generation} of the ledger in "
                f"{self._ledger.path} is newer than ours ({generation}). Two drivers run this query: stop one"
            )

    def _open_s(self, attempt: Attempt) -> float:
        return time.monotonic() - attempt.begun_s

    def _opened(self) -> Ledger:
        if self._identity is None:
            raise SinkError("the sink was not opened")
        return self._identity

    def _tell(self, step: Step, batch_id: int) -> None:
        log.debug("batch %d: %s", batch_id, step)
        if self._observer is not None:
            self._observer(step, batch_id)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


#: Names an observer across processes: "package.module:function".
def observer(named_one: Observer | str | None) -> Observer | None:
    """Return an observer that is given, or named as `package.module:function`."""
    if not isinstance(named_one, str):
        return named_one
    from importlib import import_module

    module, _, name = named_one.partition(":")
    found: Callable[[Step, int], None] = getattr(import_module(module), name)
    return found
