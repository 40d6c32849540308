"""What the rules know of a Flink job: the transactions that its newest checkpoint decided to commit. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fenceline.engines.flink.restore import CommitFate


class DecidedTransaction(NamedTuple):
    """A transaction that a checkpoint decided to commit, by its coordinator's newest state."""

    transactional_id: str
    fate: CommitFate
    #: When its coordinator aborts it; None where it is not open, or is never aborted (KIP-939).
    expires_ms: int | None = None
    #: When it was aborted; None where it was not.
    aborted_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FlinkJobFacts:
    """A job with transactions that are not committed though its newest checkpoint decided it."""

    ident: str
    name: str
    #: The folder of that checkpoint, and when it was completed by the store's clock, None where unknown.
    checkpoint: str
    completed_ms: int | None
    #: Prefixes of transactional ids of its sinks.
    prefixes: tuple[str, ...]
    #: Those that are pending or lost, by id.
    transactions: tuple[DecidedTransaction, ...]
    #: A job with the same prefix that has completed a checkpoint since; "" where none has.
    newer_job: str = ""

    @property
    def subject(self) -> str:
        """Return what findings about the job name."""
        return f"flink_job:{self.ident}"

    def of_fate(self, fate: CommitFate) -> tuple[DecidedTransaction, ...]:
        """Return the transactions with one fate."""
        return tuple(transaction for transaction in self.transactions if transaction.fate is fate)
