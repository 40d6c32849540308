"""Proves that the ledger has what each transaction wrote to each partition, as readers find it there, also
where tasks write the same partitions by turns, and that what a leader does not report stays unknown."""

from collections import defaultdict
from collections.abc import Mapping

import pytest

from fenceline.facts import TopicPartition
from fenceline.kafka.partitions import ProducerState
from fenceline.spark.records import PartitionRecords, SinkTransaction
from spark_pipeline.sink.cluster import PartitionCounts, Producers, records_of
from tests.cases import cases
from tests.spark.sink.queries import FakeQuery
from tests.spark.topic_records import read_messages
from transaction_admin.api import Unseen

WHERE = TopicPartition("out", 0), TopicPartition("out", 1)
TRANSACTION = SinkTransaction(0, 0, "orders-0a1b2c3d-p0-g1-b0-s0", 4_000, 3, WHERE, 7, 1_000, 60_000)
OTHER = ProducerState(4_001, 3, 90, 0, None, 5)


def own(last: int, start: int | None, *, epoch: int = 3) -> ProducerState:
    return ProducerState(4_000, epoch, last, 0, None, start)


@cases(
    (1, ((OTHER, own(4, 10)), (own(1, 20),)), (("out", 0, 10, 5), ("out", 1, 20, 2))),
    (2, ((OTHER,), (own(1, 20),)), None),
    (3, ((own(4, 10),), (own(1, None),)), None),
    (4, ((own(4, 10, epoch=2),), (own(1, 20),)), None),
    (5, ((own(4, 10),), (own(2, 20),)), None),
    (6, (Unseen("out-0", "it has no leader"), (own(1, 20),)), None),
)
def test_records_by_partition_are_known_only_where_all_are(
    number: int, told: tuple[tuple[ProducerState, ...] | Unseen, ...], wanted: object
) -> None:
    producers: Producers = dict(zip(WHERE, told, strict=True))
    assert records_of(TRANSACTION, producers) == wanted, f"case {number}"


@pytest.mark.kafka
def test_the_ledger_has_what_readers_find_in_each_partition(query: FakeQuery) -> None:
    driver = query.driver(0)
    for batch_id in range(3):
        attempt = query.begin(driver, batch_id)
        values = ([f"{batch_id}-{task}-{number}" for number in range(50)] for task in range(3))
        written = [query.run_task(attempt, task, some) for task, some in enumerate(values)]
        driver.commit(attempt, [each for each in written if each is not None])
    messages = read_messages(query.options["kafka.bootstrap.servers"], query.topic)
    found = {(each.partition(), each.offset()): (each.value() or b"").decode() for each in messages}
    for decision in query.ledger.read_state().decisions:
        for each in decision.transactions:
            prefix = f"{decision.batch_id}-{each.partition}-"
            assert each.written == in_partitions(query.topic, found, prefix), prefix


@pytest.mark.kafka
def test_a_cluster_that_cannot_be_asked_leaves_them_unknown() -> None:
    counts = PartitionCounts({"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": "500"})
    assert counts.add_to([TRANSACTION]) == [TRANSACTION]
    assert counts.add_to([]) == []


def in_partitions(
    topic: str, found: Mapping[tuple[int, int], str], prefix: str
) -> tuple[PartitionRecords, ...]:
    offsets: dict[int, list[int]] = defaultdict(list)
    for (partition, offset), value in found.items():
        if value.startswith(prefix):
            offsets[partition].append(offset)
    return tuple(
        PartitionRecords(topic, number, min(some), len(some)) for number, some in sorted(offsets.items())
    )
