"""Proves that the record lens tells the fate of an offset as Kafka's own consumers see it: of records that
are committed, aborted, open, hanging, outside transactions, compacted or deleted, and of markers."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic

from collectors.kafka.record_lens import RecordLook, look_at_offset
from fenceline.facts import TopicPartition
from fenceline.kafka.record_fate import RecordFate, fate_of, is_visible
from sandbox.kafka import Broker
from sandbox.scenes.wire import Identity
from tests.brokers import configure_topic
from tests.kafka.producers import open_in
from tests.kafka.stray_records import write_stray_records
from tests.kafka.topic_records import end_offset, raw_records
from tests.waiting import wait_for
from transaction_admin.api import Unseen
from transaction_admin.kafka_reads import ClusterReads

pytestmark = pytest.mark.kafka

#: The cleaner looks often, and cleans each segment that is closed.
_OFTEN = {
    "transaction.partition.verification.enable": "false",
    "log.cleaner.backoff.ms": "200",
}
_COMPACTED = {"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.001"}
_NO_MORE = {"min.compaction.lag.ms": "3600000"}
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_NEVER = 1_000_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("lens"), properties=_OFTEN) as running:
        yield running


@pytest.fixture(scope="module")
def reads(broker: Broker) -> Iterator[ClusterReads]:
    made = ClusterReads({"bootstrap.servers": broker.bootstrap}, 20)
    yield made
    made.close()


def make_topic(broker: Broker, name: str, settings: Mapping[str, str]) -> TopicPartition:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1, config=dict(settings))])[name].result(30)
    return TopicPartition(name, 0)


def fill(broker: Broker, topic: str, dice: random.Random, transactions: int) -> None:
    """Write transactions that take turns, some aborted, with records outside of any between them."""
    writers = [make_writer(broker, f"{topic}-{codec}", codec) for codec in _CODECS]
    plain = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for _ in range(transactions):
        together = dice.sample(writers, dice.randint(1, 3))
        for writer in together:
            writer.begin_transaction()
        for _ in range(dice.randint(1, 4)):
            for writer in [*together, *[plain][: dice.randrange(2)]]:
                write(writer, topic, dice)
        for writer in dice.sample(together, len(together)):
            writer.commit_transaction(30) if dice.random() < 0.6 else writer.abort_transaction(30)


def make_writer(broker: Broker, name: str, codec: str) -> Producer:
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "compression.type": codec}
    writer = Producer(settings)
    writer.init_transactions(30)
    return writer


def write(writer: Producer, topic: str, dice: random.Random) -> None:
    for _ in range(dice.randint(1, 20)):
        writer.produce(topic, b"x" * dice.randint(1, 200), f"k{dice.randrange(50)}".encode(), partition=0)
    assert writer.flush(30) == 0


def visible(broker: Broker, topic: str, *, committed: bool) -> set[int]:
    """Return the offsets of all records that a consumer gets."""
    return {record.offset for record in raw_records(broker.bootstrap, topic, committed=committed)}


def compare(
    broker: Broker,
    reads: ClusterReads,
    where: TopicPartition,
    dice: random.Random,
    number: int,
    always: Iterable[int] = (),
) -> Counter[RecordFate]:
    """Look at random offsets, and at some always; each must be as both consumers see it."""
    committed, uncommitted = (visible(broker, where.topic, committed=level) for level in (True, False))
    end = reads.list_offsets([where])[where]
    assert not isinstance(end, Unseen)
    every = range(end.high_watermark + 3)
    fates: Counter[RecordFate] = Counter()
    for offset in {*dice.sample(every, min(number, len(every))), *always}:
        seen = look_at_offset(reads, where, offset)
        assert isinstance(seen, RecordLook)
        views = is_visible(seen.look, committed=False), is_visible(seen.look, committed=True)
        assert views == (offset in uncommitted, offset in committed), (offset, fate_of(seen.look), seen.look)
        fates[fate_of(seen.look)] += 1
        # There are records of nothing but what consumers can read.
        assert (seen.record is not None) == (offset in uncommitted), offset
    return fates


def check_all_fates(broker: Broker, reads: ClusterReads, seed: int, number: int, size: int) -> None:
    dice = random.Random(seed)
    where = make_topic(broker, f"lens-{seed:x}", {})
    fill(broker, where.topic, dice, size)
    deleted = dice.randint(10, 60)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_records([Position(where.topic, 0, deleted)])[Position(where.topic, 0, deleted)].result(30)
    stray = write_stray_records(broker, f"{where.topic}-none", Identity(_NEVER, 0), where, records=3)
    opened = open_in(broker.bootstrap, f"{where.topic}-open", where.topic, 0, records=5)
    # What comes behind waits for them, though it is committed.
    fill(broker, where.topic, dice, 3)
    fates = compare(broker, reads, where, dice, number, (0, stray, stray + 3, stray + 4))
    assert set(fates) >= {RecordFate.COMMITTED, RecordFate.ABORTED, RecordFate.OPEN, RecordFate.DELETED}
    assert RecordFate.UNKNOWN not in fates
    # Other files of this worker use the same broker: nothing may stay open.
    opened.abort()


def check_compacted(broker: Broker, reads: ClusterReads, seed: int, number: int, size: int) -> None:
    dice = random.Random(seed)
    where = make_topic(broker, f"compacted-{seed:x}", _COMPACTED)
    fill(broker, where.topic, dice, size)

    def left() -> int:
        return len(visible(broker, where.topic, committed=False))

    end = end_offset(broker.bootstrap, where.topic, committed=False)
    wait_for(lambda: left() < end * 0.8, "records are compacted away", 240)
    configure_topic(broker.bootstrap, where.topic, _NO_MORE)
    wait_for(lambda: left() == left(), "the cleaner is done", 60)
    fates = compare(broker, reads, where, dice, number)
    assert fates[RecordFate.COMPACTED]
    assert RecordFate.UNKNOWN not in fates


def test_it_tells_what_consumers_see(broker: Broker, reads: ClusterReads) -> None:
    check_all_fates(broker, reads, random.getrandbits(40), 150, 10)


def test_it_tells_what_is_compacted(broker: Broker, reads: ClusterReads) -> None:
    check_compacted(broker, reads, random.getrandbits(40), 150, 40)


@pytest.mark.matrix
def test_it_tells_what_consumers_see_of_5000_offsets(broker: Broker, reads: ClusterReads) -> None:
    check_all_fates(broker, reads, random.getrandbits(40), 5_000, 250)


@pytest.mark.matrix
def test_it_tells_what_is_compacted_of_5000_offsets(broker: Broker, reads: ClusterReads) -> None:
    check_compacted(broker, reads, random.getrandbits(40), 5_000, 400)
