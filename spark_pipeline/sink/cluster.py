"""The sink's questions to a cluster: the brokers' maximum timeout before it starts; before each decision,
the number of records in each transaction.

For the latter a partition's leader reports the start of a producer's open transaction, and the producer's
last sequence number (DescribeProducers, KIP-664). Sequence numbers begin at 0 with the epoch from
`init_transactions`, so they count the records. Missing or inconsistent counts stay None: they fail no batch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Union

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from fenceline.authentication.mechanisms import CannotAuthenticate, explain_refusal
from fenceline.facts import TopicPartition
from fenceline.kafka.partitions import ProducerState
from fenceline.spark.records import PartitionRecords, SinkTransaction
from spark_pipeline.sink.errors import Refused
from spark_pipeline.sink.options import PREFIX
from spark_pipeline.sink.patience import PATIENCE_S, Outage
from transaction_admin.api import AdminUnavailable, Unseen
from transaction_admin.authentication.librdkafka import librdkafka_settings
from transaction_admin.kafka_reads import ClusterReads

log = logging.getLogger(__name__)

MAX_TIMEOUT = "transaction.max.timeout.ms"
#: Kafka's default, for principals without access to the brokers' configuration.
DEFAULT_MAX_TIMEOUT_MS = 900_000
#: Seconds until an answer must have come.
_ANSWER_S = 10.0
#: Client errors for unreachable brokers.
_AWAY = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
)
#: Seconds until a leader must have answered while a batch waits for its decision.
_PATIENCE_S = 5.0

#: The leaders' reports by partition.
Producers = Mapping[TopicPartition, Union[tuple[ProducerState, ...], Unseen]]

_reads: dict[tuple[tuple[str, str], ...], ClusterReads] = {}


def timeout_ms(connection: Mapping[str, str], wanted: int | None, patience_s: float = PATIENCE_S) -> int:
    """Return the transaction timeout: the wanted one, else the brokers' maximum.

    Raises `Refused` if the brokers do not allow the wanted one.
    """
    most = _max_timeout_ms(connection, patience_s)
    if wanted is None:
        return most or DEFAULT_MAX_TIMEOUT_MS
    if wanted < 1_000:
        raise Refused(f"transaction_timeout_ms is {wanted}: a second (1000) is the least")
    if most is not None and wanted > most:
        raise Refused(
            f"transaction_timeout_ms is {wanted}, and the brokers at {connection['bootstrap.servers']} take "
            f"{most} at most ({MAX_TIMEOUT}): lower the one or raise the other"
        )
    return wanted


def make_client(connection: Mapping[str, str], **more: Any) -> AdminClient:
    """Return a client of the cluster; raises `Refused` for properties that cannot authenticate."""
    try:
        return AdminClient({**librdkafka_settings(connection), "log_level": "3"}, **more)
    except CannotAuthenticate as error:
        raise Refused(f'option "{PREFIX}{error.key}" {error.reason}') from error
    except KafkaException as error:
        raise Refused(f"the options are refused: {explain_refusal(error.args[0].str())}") from error


def _max_timeout_ms(connection: Mapping[str, str], patience_s: float) -> int | None:
    """Return the lowest maximum of the brokers, None without access to it."""
    client = make_client(connection)
    outage = Outage(patience_s)
    while True:
        try:
            return _described_maximum(client)
        except (KafkaException, KeyError, TypeError, ValueError) as error:
            away = isinstance(error, KafkaException) and error.args[0].code() in _AWAY
            if not away or outage.is_over:
                log.info("%s cannot be seen (%s): taken as %d", MAX_TIMEOUT, error, DEFAULT_MAX_TIMEOUT_MS)
                return None
            outage.wait(error)


def _described_maximum(client: AdminClient) -> int:
    brokers = client.list_topics("", timeout=_ANSWER_S).brokers
    asked = [ConfigResource(ResourceType.BROKER, str(number)) for number in brokers]
    answers = client.describe_configs(asked, request_timeout=_ANSWER_S).values()
    return min(int(answer.result(_ANSWER_S)[MAX_TIMEOUT].value) for answer in answers)


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
