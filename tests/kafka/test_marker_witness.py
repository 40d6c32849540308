"""Proves that markers in topics and the coordinators' log agree on every end, as two witnesses do."""

import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
from py4j.java_gateway import JavaGateway

from collectors.kafka.internal_topics import Tail
from collectors.kafka.markers import MarkerTail
from fenceline.decode.transaction_state import decode_key, decode_value
from fenceline.facts import Records, TopicPartition, TransactionRecord, TransactionState
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.java.clients import JavaAdmin
from tests.kafka.random_transactions import ClientCluster, run_clients
from tests.kafka.transactional_ids import initialise_ids
from tests.waiting import wait_for
from transaction_admin.kafka_reads import ClusterReads

pytestmark = pytest.mark.kafka

#: An end in one partition: where, producer id and epoch, and whether it is a commit.
End = tuple[TopicPartition, int, int, bool]
_DECIDED = {TransactionState.PREPARE_COMMIT: True, TransactionState.PREPARE_ABORT: False}


class Witnesses:
    """The ends in some topics by the log and by their markers, each as often as it was written."""

    def __init__(self, bootstrap: str, topics: tuple[str, ...]) -> None:
        properties = {"bootstrap.servers": bootstrap}
        self._partitions = [TopicPartition(topic, number) for topic in topics for number in range(3)]
        self._tail = Tail(properties)
        self._markers = MarkerTail(ClusterReads(properties), megabytes=1_000)
        self._tail.seek("", {})
        self._markers.follow(self._partitions)
        self.by_log: Counter[End] = Counter()
        self.by_markers: Counter[End] = Counter()

    def close(self) -> None:
        """Close the connections."""
        self._tail.close()
        self._markers.close()

    def read(self) -> int:
        """Read on from both; return how many ends were found."""
        before = self.by_log.total() + self.by_markers.total()
        batch = self._tail.poll(0.1)
        for records in batch.records.values():
            self.by_log.update(end for end in ends_in_log(records) if end[0] in self._partitions)
        self._tail.mark_saved(batch)
        self._markers.follow(self._partitions)
        for markers in self._markers.read().values():
            self.by_markers.update(
                (marker.where, marker.producer_id, marker.producer_epoch, marker.is_commit)
                for marker in markers
            )
        assert self._markers.blind == {}
        return self.by_log.total() + self.by_markers.total() - before


def ends_in_log(records: Records) -> Iterator[End]:
    """Yield the decisions in records of the log, one for each partition."""
    for key, raws in records.items():
        for raw in raws:
            record = raw.value and decode_value(str(decode_key(key)), raw.value)
            if isinstance(record, TransactionRecord) and record.state in _DECIDED:
                for topic, numbers in record.partitions or ():
                    for number in numbers:
                        where = TopicPartition(topic, number)
                        yield where, record.producer_id, record.producer_epoch, _DECIDED[record.state]


@pytest.mark.parametrize("transactions", [400, pytest.param(100_000, marks=pytest.mark.soak)])
def test_markers_and_log_agree_on_every_end(kafka: Broker, java: JavaGateway, transactions: int) -> None:
    seed = int(os.environ.get("FENCELINE_SEED", random.getrandbits(24)))
    print(f"seed {seed}")
    topics = tuple(f"witness-{seed}-{number}" for number in range(3))
    create_topics(kafka.bootstrap, *topics)
    ids = [f"witness-{seed}-{number}" for number in range(max(16, transactions // 500))]
    initialise_ids(kafka.bootstrap, ids[:1])  # So that the log exists.
    witnesses = Witnesses(kafka.bootstrap, topics)
    with JavaAdmin(java, kafka.bootstrap) as admin, ThreadPoolExecutor(1) as pool:
        cluster = ClientCluster(kafka.bootstrap, java, admin, topics)
        running = pool.submit(run_clients, cluster, ids, transactions, seed)
        while not running.done():
            witnesses.read()
        outcomes: Mapping[str, int] = running.result()
    wait_for(
        lambda: not witnesses.read() and witnesses.by_log == witnesses.by_markers, "both witnesses agree"
    )
    witnesses.close()
    assert sum(outcomes.values()) >= transactions
    assert len({end[1:3] for end in witnesses.by_log}) > len(ids)
