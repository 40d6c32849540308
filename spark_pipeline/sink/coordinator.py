"""The protocol, for any host: open, begin, commit, abort (docs/design/spark.md §3.5, docs/sink.md).

One rule makes it exactly-once: a transaction of a batch may end only after a decision about that batch is in
the ledger, created exclusively. A prepared decision is the last one about its batch, and every driver that
finds it commits. An aborted decision ends its round, and the next round may begin the batch again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from fenceline.decode.ledger import Names, Round
from fenceline.formatting import count_noun
from fenceline.spark.records import Decided, Decision, DecisionOutcome, Done, Ledger, SinkTransaction
from spark_pipeline.sink import names
from spark_pipeline.sink.cluster import PartitionCounts
from spark_pipeline.sink.errors import LostTransactions, Refused, SinkError, id_list, input_text
from spark_pipeline.sink.ledger import LedgerFolder, QueryFiles
from spark_pipeline.sink.startup_checks import SinkSettings, StartupChecks, now_ms
from spark_pipeline.sink.steps import Observer, Step
from spark_pipeline.sink.storage import Storage
from spark_pipeline.sink.transactions import DriverLease, Transactions
from transaction_admin.kafka_python import TransactionAdmin

log = logging.getLogger(__name__)

DRIVER = "driver"
#: A killed task, or a late attempt, leaves a transaction that blocks readers until its timeout.
#: The sink searches for such transactions after a batch: for some seconds after repeated attempts, else so
#: rarely that it takes a hundredth of the time (a coordinator searches all of its ids).
SWEEP_COST = 100
#: Pause between two searches for transactions of dying tasks.
_DYING_PAUSE_S = 1.0
#: Batches between two removals of old batches' files.
_PURGE_EVERY = 10


class Attempt(NamedTuple):
    """One attempt to write a batch. It is sent to tasks, and from one driver-side process to the next."""

    batch_id: int
    round: int
    generation: int
    ledger_id: str
    query_id: str
    run_id: str
    #: The prefix of its transactional ids.
    stem: str
    timeout_ms: int
    #: By the driver machine's monotonic clock, in seconds.
    begun_s: float
    #: None in a process that has not taken the lease, and starts no tasks.
    lease: DriverLease | None = None


class SinkCoordinator:
    """The sink of one query, on its driver."""

    def __init__(
        self,
        settings: SinkSettings,
        checkpoint: Storage,
        admin: TransactionAdmin,
        observer: Observer | None = None,
        counts: PartitionCounts | None = None,
    ) -> None:
        self._settings, self._observer, self._counts = settings, observer, counts
        self._transactions = Transactions(admin, settings.patience_s)
        self._query = QueryFiles(checkpoint)
        self._ledger = LedgerFolder(checkpoint)
        self._checks = StartupChecks(settings, self._query, self._ledger)
        self._identity: Ledger | None = None
        self._generation = 0
        self._lease: DriverLease | None = None
        self._run_id = ""
        self._sweep_at_s = 0.0

    @property
    def generation(self) -> int:
        """The generation that this run has claimed; 0 before `open`."""
        return self._generation

    def planned_batch(self) -> tuple[str, int]:
        """Return the query's id and its newest planned batch from the checkpoint."""
        query_id = self._checks.refuse_stranger("")
        batch_id = self._query.newest_planned()
        if batch_id is None:
            raise Refused(
                f"{self._query.path}/offsets is empty while a batch is planned: exactly-once is impossible "
                "with asyncProgressTrackingEnabled and in real-time mode"
            )
        return query_id, batch_id

    def open(self, query_id: str, run_id: str, batch_id: int) -> None:
        """Take the query over: run the startup checks, claim a generation, end leftover transactions.

        `batch_id` is Spark's first batch of this run. Raises `Refused`, `LostTransactions`, `SinkError`.
        """
        self._checks.refuse_stranger(query_id)
        self._identity = self._checks.own_ledger(query_id, batch_id)
        self._checks.refuse_batch(batch_id, self._ledger.read_names(), self._identity.first_batch)
        self._generation, self._run_id = self._ledger.claim_generation(run_id, now_ms()), run_id
        self._take_lease()
        self._recover()
        self._tell(Step.OPENED, batch_id)

    def finish_prepared(self) -> None:
        """Commit batches that earlier drivers prepared; decide nothing. Safe for any process at any time."""
        for round_ in self._ledger.read_names().open_rounds():
            decision = self._ledger.read_decision(round_)
            if decision.decided is Decided.PREPARED:
                self._carry_out(decision)

    def begin(self, batch_id: int) -> Attempt | None:
        """Begin a batch; None if it was committed already, or was prepared and is now committed."""
        ledger = self._opened()
        file_names = self._ledger.read_names()
        self._refuse_taken_over(file_names, self._generation)
        prepared = self._checks.refuse_batch(batch_id, file_names, ledger.first_batch)
        self._carry_out_open(file_names)
        if prepared is not None and prepared.batch_id == batch_id:
            log.info("batch %d is committed already", batch_id)
            return None
        if self._settings.speculation or (prepared is not None and _has_repeats(prepared.transactions)):
            # Another attempt of the last batch may still be about to take an id.
            self._take_lease()
        attempt = self._next_attempt(file_names, batch_id)
        self._tell(Step.BEFORE_WRITE, batch_id)
        return attempt

    def commit(self, attempt: Attempt, written: Sequence[SinkTransaction]) -> None:
        """Commit a batch whose tasks have all flushed. Raises `SinkError`; then Spark runs the batch again.

        A batch that another process has prepared in the meantime is committed as prepared.
        """
        self._tell(Step.WRITTEN, attempt.batch_id)
        if not self._is_decided(attempt):
            self._refuse_bad(attempt, written, self._transactions.verify(written, self._open_s(attempt)))
            written = written if self._counts is None else self._counts.add_to(written)
            self._tell(Step.VERIFIED, attempt.batch_id)
        held = self._decide(attempt, Decided.PREPARED, written)
        if held.decided is Decided.ABORTED:
            self._transactions.abort(written)
            self.refuse_taken_over(attempt)
            raise SinkError(
                f"batch {attempt.batch_id} was rolled back by {held.by} before it was prepared: "
                f"{held.reason}. Nothing of it is visible; it runs again when the query starts"
            )
        kept = {held_transaction[2:5] for held_transaction in held.transactions}
        self._transactions.abort([transaction for transaction in written if transaction[2:5] not in kept])
        self._tell(Step.PREPARED, attempt.batch_id)
        self._carry_out(held)
        self._after(attempt, written)

    def abort(self, attempt: Attempt, written: Collection[SinkTransaction], reason: str) -> None:
        """Abort a batch, unless it is prepared: the next start commits a prepared batch."""
        held = self._decide(attempt, Decided.ABORTED, tuple(written), reason)
        if held.decided is Decided.PREPARED:
            log.warning("batch %d has failed after it was prepared: it stays prepared", attempt.batch_id)
            return
        self._transactions.abort(written)
        self._sweep_dying(attempt)
        self._finish(held, DecisionOutcome.ABORTED)

    def refuse_taken_over(self, attempt: Attempt) -> None:
        """Raise `SinkError` if another driver has claimed the ledger since this attempt began."""
        self._refuse_taken_over(self._ledger.read_names(), attempt.generation)

    def unknown_attempt(self, batch_id: int) -> Attempt | None:
        """Return the newest generation's attempt at a batch, for a host process that lost its own."""
        ledger = self._ledger.read_identity()
        file_names = self._ledger.read_names()
        if ledger is None or not file_names.generations:
            return None
        rounds = file_names.rounds_of(batch_id)
        last = self._ledger.last_decision(file_names, batch_id)
        chained = last is not None and last.decided is Decided.ABORTED
        return Attempt(
            batch_id,
            (rounds[-1].round + chained) if rounds else 0,
            file_names.generation,
            ledger.ledger_id,
            ledger.query_id,
            "",
            names.id_stem(ledger.prefix, ledger.ledger_id),
            self._settings.timeout_ms,
            time.monotonic(),
        )

    # Opening.

    def _take_lease(self) -> None:
        """Take the lease: tasks of earlier drivers then detect the takeover."""
        self._lease = self._transactions.take_lease(self._stem(), self._settings.timeout_ms)

    def _next_attempt(self, file_names: Names, batch_id: int) -> Attempt:
        ledger = self._opened()
        rounds = file_names.rounds_of(batch_id)
        return Attempt(
            batch_id,
            rounds[-1].round + 1 if rounds else 0,
            self._generation,
            ledger.ledger_id,
            ledger.query_id,
            self._run_id,
            self._stem(),
            self._settings.timeout_ms,
            time.monotonic(),
            self._lease,
        )

    def _stem(self) -> str:
        ledger = self._opened()
        return names.id_stem(ledger.prefix, ledger.ledger_id)

    def _recover(self) -> None:
        """End the transactions of earlier drivers before the first batch. Repeating it is safe."""
        file_names = self._ledger.read_names()
        self._carry_out_open(file_names)
        if self._generation == 1:
            return
        barrier = self._bar_older_drivers(file_names)
        _log_fenced(self._fence_leftovers(self._stem(), self._generation, self._generation - 1))
        if barrier is not None:
            self._finish(barrier, DecisionOutcome.ABORTED)

    def _bar_older_drivers(self, file_names: Names) -> Decision | None:
        """Decide to abort the batch that an older driver may still write, so that it can never prepare it."""
        ledger = self._opened()
        prepared = self._ledger.last_prepared(file_names)
        batch_id = prepared.batch_id + 1 if prepared is not None else ledger.first_batch
        reason = f"another driver took over (generation {self._generation})"
        held = self._decide(self._next_attempt(file_names, batch_id), Decided.ABORTED, (), reason)
        if held.decided is Decided.PREPARED:
            # The older driver was faster. It detects the takeover when it begins its next batch.
            self._carry_out(held)
            return None
        return held

    def _fence_leftovers(self, stem: str, generation: int, of: int) -> list[str]:
        """Fence open transactions of drivers up to generation `of`; return the ids."""

        def is_newest() -> bool:
            return self._ledger.read_names().generation <= generation

        return self._transactions.fence_leftovers(stem, lambda parts: parts.may_be_of(of), is_newest)

    # Deciding and carrying out.

    def _is_decided(self, attempt: Attempt) -> bool:
        """Whether this attempt has a decision; raise if another driver has taken over."""
        file_names = self._ledger.read_names()
        if Round(attempt.batch_id, attempt.round) in file_names.decisions:
            return True
        self._refuse_taken_over(file_names, attempt.generation)
        return False

    def _decide(
        self, attempt: Attempt, decided: Decided, transactions: Sequence[SinkTransaction], reason: str = ""
    ) -> Decision:
        return self._ledger.decide(
            Decision(
                attempt.batch_id, attempt.round, decided, DRIVER, now_ms(), attempt.ledger_id,
                attempt.query_id, attempt.run_id, attempt.generation, tuple(transactions),
                self._query.input_ranges(attempt.batch_id), reason,
            )
        )  # fmt: skip

    def _refuse_bad(
        self, attempt: Attempt, written: Sequence[SinkTransaction], bad: Mapping[str, str]
    ) -> None:
        if not bad:
            return
        reasons = "; ".join([f"{name}: {reason}" for name, reason in bad.items()][:3])
        self.abort(attempt, written, f"not all of its transactions could be prepared: {reasons}")
        raise SinkError(
            f"batch {attempt.batch_id} was rolled back, nothing of it is visible: {len(bad)} of its "
            f"{count_noun(len(written), 'transaction')} cannot be committed ({reasons}). "
            f"Transactional ids: {id_list(list(bad))}\n"
            f"What it read:\n{input_text(self._query.input_ranges(attempt.batch_id))}\n"
            "Start the query again: the batch runs again. If batches take that long, raise "
            "transaction_timeout_ms (and the broker's transaction.max.timeout.ms) or make them smaller"
        )

    def _carry_out_open(self, file_names: Names) -> None:
        for round_ in file_names.open_rounds():
            self._carry_out(self._ledger.read_decision(round_))

    def _carry_out(self, decision: Decision) -> None:
        """Carry out a decision and record its completion; repeating it is safe."""
        if decision.decided is Decided.ABORTED:
            self._transactions.abort(decision.transactions)
            self._finish(decision, DecisionOutcome.ABORTED)
            return
        on_first = None if self._observer is None else lambda: self._tell(Step.ENDING, decision.batch_id)
        lost, why = self._transactions.commit(decision.transactions, on_first)
        if lost:
            if self._ledger.read_outcome(Round(decision.batch_id, decision.round)) is not None:
                return  # A living driver was faster, and is using its transactional ids again.
            report = LostTransactions(decision, lost, why)
            if decision.batch_id not in self._settings.accept_loss:
                raise report
            log.error("accepted by accept_loss: %s", report)
        self._tell(Step.ENDED, decision.batch_id)
        ids = tuple(transaction.transactional_id for transaction in lost)
        self._finish(decision, DecisionOutcome.LOST if ids else DecisionOutcome.COMMITTED, ids)
        self._tell(Step.DONE, decision.batch_id)

    def _finish(self, decision: Decision, outcome: DecisionOutcome, lost: tuple[str, ...] = ()) -> None:
        self._ledger.mark_done(Done(decision.batch_id, decision.round, outcome, now_ms(), DRIVER, lost))

    def _after(self, attempt: Attempt, written: Sequence[SinkTransaction]) -> None:
        self._warn_of_timeout(attempt)
        if attempt.batch_id % _PURGE_EVERY == 0:
            self._ledger.purge()
        if _has_repeats(written):
            # The attempt that this one replaced may still live, and be about to open its transaction.
            self._sweep_dying(attempt)
            return
        now_s = time.monotonic()
        if self._settings.speculation or now_s >= self._sweep_at_s:
            _log_fenced(self._sweep(attempt))
            ended_s = time.monotonic()
            self._sweep_at_s = ended_s + SWEEP_COST * (ended_s - now_s)

    def _sweep(self, attempt: Attempt) -> list[str]:
        """Fence all open transactions of this ledger while no batch runs; return the ids."""
        return self._fence_leftovers(attempt.stem, attempt.generation, attempt.generation)

    def _sweep_dying(self, attempt: Attempt) -> None:
        """Sweep until all tasks that Spark has killed must be dead, and log one line."""
        until = time.monotonic() + self._settings.dying_s
        fenced = []
        try:
            while True:
                fenced += self._sweep(attempt)
                if time.monotonic() >= until:
                    return
                time.sleep(_DYING_PAUSE_S)
        finally:
            _log_fenced(fenced)

    def _warn_of_timeout(self, attempt: Attempt) -> None:
        took_s, timeout_s = self._open_s(attempt), attempt.timeout_ms / 1000
        if took_s > self._settings.warning_ratio * timeout_s:
            log.warning(
                "batch %d took %.1f s, more than %g of the transaction timeout (%g s): raise "
                "transaction_timeout_ms or make batches smaller, before one is lost",
                attempt.batch_id, took_s, self._settings.warning_ratio, timeout_s,
            )  # fmt: skip

    def _refuse_taken_over(self, file_names: Names, generation: int) -> None:
        if file_names.generation > generation:
            raise SinkError(
                f"another driver took over: generation {file_names.generation} of the ledger in "
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


def _log_fenced(ids: Sequence[str]) -> None:
    if ids:
        log.warning(
            "fenced %s of tasks that were given up: %s", count_noun(len(ids), "transaction"), id_list(ids)
        )


def _has_repeats(transactions: Sequence[SinkTransaction]) -> bool:
    """Whether a task ran more than once: another attempt may still be alive."""
    return any(transaction.attempt > 0 for transaction in transactions)
