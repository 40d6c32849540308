"""A Flink job for the rules: the transactions that its newest checkpoint decided to commit. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fenceline.engines.flink.restore import CommitFate


class DecidedTransaction(NamedTuple):
    """A transaction that a checkpoint decided to commit, with its fate at its coordinator."""

    transactional_id: str
    fate: CommitFate
    #: When its coordinator will abort it; None if it is not open, or never times out (KIP-939).
    expires_ms: int | None = None
    #: When it was aborted; None if it was not.
    aborted_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FlinkJobFacts:
    """A job whose newest checkpoint decided to commit transactions that are not committed."""

    ident: str
    name: str
    #: The folder of that checkpoint, and its completion by the store's clock, None if unknown.
    checkpoint: str
    completed_ms: int | None
    #: Prefixes of transactional ids of its sinks.
    prefixes: tuple[str, ...]
    #: Its pending or lost transactions, by id.
    transactions: tuple[DecidedTransaction, ...]
    #: A job with the same prefix that has completed a checkpoint since; "" without one.
    newer_job: str = ""

    @property
    def subject(self) -> str:
        """Return the subject of findings about the job."""
        return f"flink_job:{self.ident}"

    def of_fate(self, fate: CommitFate) -> tuple[DecidedTransaction, ...]:
        """Return the transactions with one fate."""
        return tuple(transaction for transaction in self.transactions if transaction.fate is fate)
