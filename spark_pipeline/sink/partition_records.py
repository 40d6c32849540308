"""Ask partition leaders, before the decision, for the number of records in each transaction.

A leader reports the start of a producer's open transaction, and the producer's last sequence number
(DescribeProducers, KIP-664). Sequence numbers begin at 0 with the epoch from `init_transactions`, so they
count the records. Missing or inconsistent counts stay None: they fail no batch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Union

from fenceline.facts import TopicPartition
from fenceline.kafka.partitions import ProducerState
from fenceline.spark.records import PartitionRecords, SinkTransaction
from transaction_admin.api import AdminUnavailable, Unseen
from transaction_admin.kafka_reads import ClusterReads

log = logging.getLogger(__name__)

#: Seconds until a leader must have answered while a batch waits for its decision.
_PATIENCE_S = 5.0

#: The leaders' reports by partition.
Producers = Mapping[TopicPartition, Union[tuple[ProducerState, ...], Unseen]]

_reads: dict[tuple[tuple[str, str], ...], ClusterReads] = {}


class PartitionCounts:
    """Adds the number of records by partition to transactions. It needs READ on the topics."""

    def __init__(self, connection: Mapping[str, str]) -> None:
        self._connection = connection

    def add_to(self, transactions: Sequence[SinkTransaction]) -> Sequence[SinkTransaction]:
        """Return open transactions with their number of records by partition, as far as leaders report it."""
        partitions = {where for transaction in transactions for where in transaction.partitions}
        if not partitions:
            return transactions
        try:
            producers = reads_for(self._connection).describe_producers(partitions)
        except AdminUnavailable as error:
            log.info("records by partition stay unknown: %s", error)
            return transactions
        return [
            transaction._replace(written=records_of(transaction, producers)) for transaction in transactions
        ]


def reads_for(connection: Mapping[str, str]) -> ClusterReads:
    """Return this process's connection for reads of a cluster."""
    key = tuple(sorted(connection.items()))
    if key not in _reads:
        _reads[key] = ClusterReads(connection, _PATIENCE_S)
    return _reads[key]


def records_of(transaction: SinkTransaction, producers: Producers) -> tuple[PartitionRecords, ...] | None:
    """Return a transaction's number of records by partition; None unless all records are accounted for."""
    counts = [_in_partition(transaction, where, producers[where]) for where in sorted(transaction.partitions)]
    known = tuple(records for records in counts if records is not None)
    if len(known) < len(counts) or sum(records.records for records in known) != transaction.records:
        log.info("%s: records by partition stay unknown", transaction.transactional_id)
        return None
    return known


def _in_partition(
    transaction: SinkTransaction, where: TopicPartition, states: tuple[ProducerState, ...] | Unseen
) -> PartitionRecords | None:
    if isinstance(states, Unseen):
        return None
    wanted = transaction.producer_id, transaction.producer_epoch
    for state in states:
        if (state.producer_id, state.producer_epoch) == wanted and state.start_offset is not None:
            return PartitionRecords(*where, state.start_offset, state.last_sequence + 1)
    return None
