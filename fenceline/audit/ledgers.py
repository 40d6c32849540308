"""The sink's ledger for an audit: the settled batches, and the writer of each run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fenceline.spark.records import Decided, Decision, DecisionOutcome, Done, LedgerState


class LedgerIndex:
    """Decisions by batch and by producer."""

    def __init__(self, state: LedgerState) -> None:
        self._done: Mapping[tuple[int, int], Done] = {
            (done.batch_id, done.round): done for done in state.done
        }
        self._dropped = state.dropped
        self._prepared: dict[int, Decision] = {}
        #: A producer id with its epoch is one transaction of the sink.
        self._owners: dict[tuple[int, int], Decision] = {}
        for decision in state.decisions:
            if decision.decided is Decided.PREPARED:
                self._prepared[decision.batch_id] = decision
            for transaction in decision.transactions:
                self._owners[transaction.producer_id, transaction.producer_epoch] = decision

    @property
    def batch_ids(self) -> tuple[int, ...]:
        """Prepared batches, ascending."""
        return tuple(sorted(self._prepared))

    def topics(self) -> frozenset[str]:
        transactions = (
            transaction for decision in self._prepared.values() for transaction in decision.transactions
        )
        return frozenset(where.topic for transaction in transactions for where in transaction.partitions)

    def decision(self, batch_id: int) -> Decision | None:
        """Return the decision that prepared a batch, None without one."""
        return self._prepared.get(batch_id)

    def dropped(self, batch_id: int) -> int | None:
        """Return the number of rows that the query dropped in a batch, None if progress has none."""
        return self._dropped.get(batch_id)

    def outcome(self, batch_id: int) -> DecisionOutcome | None:
        """Return the outcome of a prepared batch, None before it."""
        decision = self._prepared.get(batch_id)
        done = self._done.get((batch_id, decision.round)) if decision else None
        return done.outcome if done else None

    def owner(self, producer_id: int, producer_epoch: int) -> Decision | None:
        """Return the decision about a producer's transaction, None for a producer without one."""
        return self._owners.get((producer_id, producer_epoch))

    def settled(self, first: int, finished: Iterable[int]) -> tuple[int, ...]:
        """Return the ended batches from `first` on, ascending, up to the first one that has not ended.

        `finished` are batches in Spark's commit log: one of them without a decision counts as ended.
        """
        ended = []
        for batch_id in sorted({*self._prepared, *finished}):
            if batch_id < first:
                continue
            if batch_id in self._prepared and self.outcome(batch_id) is None:
                break
            ended.append(batch_id)
        return tuple(ended)
