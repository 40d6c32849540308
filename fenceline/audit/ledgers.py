"""The sink's ledger as an audit asks it: which batches are settled, and who wrote what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fenceline.spark.records import Decided, Decision, DecisionOutcome, Done, LedgerState


class ProducerKey(NamedTuple):
    """Who wrote a run: a producer id with its epoch is one transaction of the sink."""

    producer_id: int
    producer_epoch: int


class LedgerIndex:
    """Decisions by batch and by producer."""

    def __init__(self, state: LedgerState) -> None:
        self._done: Mapping[tuple[int, int], Done] = {
            (done.batch_id, done.round): done for done in state.done
        }
        self._dropped = state.dropped
        self._prepared: dict[int, Decision] = {}
        self._owners: dict[ProducerKey, Decision] = {}
        for decision in state.decisions:
            if decision.decided is Decided.PREPARED:
                self._prepared[decision.batch_id] = decision
            for transaction in decision.transactions:
                self._owners[ProducerKey(transaction.producer_id, transaction.producer_epoch)] = decision

    @property
    def batch_ids(self) -> tuple[int, ...]:
        """Batches that were prepared, ascending."""
        return tuple(sorted(self._prepared))

    def topics(self) -> frozenset[str]:
        """Return the topics that prepared batches have written to."""
        transactions = (
            transaction for decision in self._prepared.values() for transaction in decision.transactions
        )
        return frozenset(where.topic for transaction in transactions for where in transaction.partitions)

    def decision(self, batch_id: int) -> Decision | None:
        """Return the decision that a batch was prepared by, None without any."""
        return self._prepared.get(batch_id)

    def dropped(self, batch_id: int) -> int | None:
        """Return how many rows the query dropped in a batch, None where its progress does not count them."""
        return self._dropped.get(batch_id)

    def outcome(self, batch_id: int) -> DecisionOutcome | None:
        """Return how a prepared batch ended, None while it has not."""
        decision = self._prepared.get(batch_id)
        done = self._done.get((batch_id, decision.round)) if decision else None
        return done.outcome if done else None

    def owner(self, producer_id: int, producer_epoch: int) -> Decision | None:
        """Return the decision about a producer's transaction, None for a producer that no decision names."""
        return self._owners.get(ProducerKey(producer_id, producer_epoch))

    def settled(self, first: int, finished: Iterable[int]) -> tuple[int, ...]:
        """Return the batches from `first` on that have ended, up to the first one that has not, ascending.

        `finished` are batches in Spark's commit log: one of them that no decision names is among them.
        """
        found = []
        for batch_id in sorted({*self._prepared, *finished}):
            if batch_id < first:
                continue
            if batch_id in self._prepared and self.outcome(batch_id) is None:
                break
            found.append(batch_id)
        return tuple(found)
