"""Errors of the sink. Each names the batch, the paths or ids, and the remedy."""

from __future__ import annotations

from collections.abc import Sequence

from fenceline.formatting import count_noun
from fenceline.spark.records import Decision, InputRange, SinkTransaction

#: Maximum ids in a message; the ledger and the exception have all ids.
_NAMED = 5


class SinkError(Exception):
    """The sink cannot continue. Undecided transactions stay invisible to readers of committed records."""


class Refused(SinkError):
    """The sink does not start because exactly-once would break. It has written nothing."""


class LostTransactions(SinkError):
    """Transactions of a prepared batch ended before their commit: their records are lost.

    Raised at each start until the loss is accepted (`accept_loss`); the batch is never marked committed.
    """

    def __init__(self, decision: Decision, lost: Sequence[SinkTransaction], why: str) -> None:
        self.batch_id = decision.batch_id
        self.input: tuple[InputRange, ...] = decision.input
        self.transactional_ids = tuple(transaction.transactional_id for transaction in lost)
        self.records = sum(transaction.records for transaction in lost)
        super().__init__(_loss(decision, lost, why))

    def __reduce__(self) -> tuple[type[SinkError], tuple[str]]:
        # Spark's processes pass it on as text.
        return SinkError, (str(self),)


def id_list(ids: Sequence[str]) -> str:
    """Return ids as text, the first few by name."""
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return ", ".join(ids[:_NAMED]) + more


def input_text(ranges: Sequence[InputRange]) -> str:
    """Return a batch's input as text, one line per source."""
    lines = [
        f"  source {range_.source}: from {range_.start or 'its beginning'} to {range_.end or 'nothing'}"
        for range_ in ranges
    ]
    return "\n".join(lines) or "  (not known: the checkpoint's offsets could not be read)"


def _loss(decision: Decision, lost: Sequence[SinkTransaction], why: str) -> str:
    batch, records = decision.batch_id, sum(transaction.records for transaction in lost)
    total = len(decision.transactions)
    return (
        f"batch {batch} has lost {count_noun(records, 'record')}: {len(lost)} of its "
        f"{count_noun(total, 'transaction')} "
        f"ended before the decision to commit could be carried out ({why}).\n"
        f"Transactional ids: {id_list([transaction.transactional_id for transaction in lost])}\n"
        f"What the batch read:\n{input_text(decision.input)}\n"
        f"The other transactions of the batch are committed. To go on: keep this text, then start the query "
        f"with accept_loss=[{batch}], which records the loss in the ledger and continues with batch "
        f"{batch + 1}; write the records again from the range above where they matter (readers have those "
        "of the committed transactions already). To prevent it: a longer transaction_timeout_ms (up to the "
        "broker's transaction.max.timeout.ms) than the longest stop of the driver between two starts."
    )
