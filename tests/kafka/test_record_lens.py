"""Proves that the record lens tells the fate of an offset as Kafka's own consumers see it: of records that
are committed, aborted, open, hanging, outside transactions, compacted or deleted, and of markers.

The page and the API of a record name its fate and its transaction; keys and values are shown to those alone
who may see them; bad addresses are refused in plain words.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic
from django.test import Client

from collectors.kafka.record_lens import look_at_offset, read_writers
from dashboard.config import ClusterConfig, Config
from dashboard.models import AuditEntry, Cluster
from fenceline.decode.record_batches import BatchWriters
from fenceline.facts import TopicPartition
from fenceline.kafka.record_fate import RecordFate, fate_of, is_visible
from sandbox.kafka import Broker
from sandbox.scenes.wire import Identity
from tests.brokers import configure_topic, create_topics
from tests.kafka.producers import open_in
from tests.kafka.stray_records import write_stray_records
from tests.kafka.topic_records import end_offset, raw_records
from tests.waiting import wait_for
from tests.web import factories, roles
from transaction_admin.api import Unseen
from transaction_admin.kafka_reads import ClusterReads

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]
#: The cleaner looks often, and cleans each segment that is closed.
_OFTEN = {
    "transaction.partition.verification.enable": "false",
    "log.cleaner.backoff.ms": "200",
}
_COMPACTED = {"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.001"}
_NO_MORE = {"min.compaction.lag.ms": "3600000"}
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_NEVER = 1_000_000_000
FATES = dict(enumerate(("plain", *["committed"] * 3, "marker", "aborted", "marker", "not_written")))
HOSTILE = b'<script>alert(1)</script>\xff\x00"'


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
        assert not isinstance(seen, Unseen)
        look, record, _ = seen
        views = is_visible(look, committed=False), is_visible(look, committed=True)
        assert views == (offset in uncommitted, offset in committed), (offset, fate_of(look), look)
        fates[fate_of(look)] += 1
        # There are records of nothing but what consumers can read.
        assert (record is not None) == (offset in uncommitted), offset
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


class Written:
    """A topic with a plain record, a committed transaction (offsets 1 to 3), and an aborted record."""

    def __init__(self, broker: Broker) -> None:
        self.name = f"lens-{random.getrandbits(40):x}"
        create_topics(broker.bootstrap, self.name, partitions=1)
        settings = {"bootstrap.servers": broker.bootstrap}
        plain = Producer(settings)
        plain.produce(self.name, b"plain", partition=0)
        assert plain.flush(30) == 0
        writer = Producer(settings | {"transactional.id": f"id-{self.name}"})
        writer.init_transactions(30)
        self._run(writer, 3, HOSTILE)
        consumer = Consumer(settings | {"group.id": f"group-{self.name}"})
        writer.send_offsets_to_transaction(
            [Position(self.name, 0, 3)], consumer.consumer_group_metadata(), 30
        )
        consumer.close()
        writer.commit_transaction(30)
        self._run(writer, 1, b"aborted")
        writer.abort_transaction(30)
        # Its marker is written after the answer.
        where = Position(self.name, 0)
        consumer = Consumer(settings | {"group.id": "none"})
        wait_for(lambda: consumer.get_watermark_offsets(where, 10) == (0, len(FATES) - 1), "all markers")
        consumer.close()

    def _run(self, writer: Producer, records: int, value: bytes) -> None:
        writer.begin_transaction()
        for _ in range(records):
            writer.produce(self.name, value, b"k\xfe", partition=0)
        assert writer.flush(30) == 0


@pytest.fixture
def prod(kafka_42: Broker, settings: Any) -> Cluster:
    """The broker's cluster as the configuration's only one, whose keys and values may be shown."""
    properties = {"bootstrap.servers": kafka_42.bootstrap}
    settings.FENCELINE = Config(clusters={"prod": ClusterConfig("prod", properties, payloads=True)})
    return factories.cluster()


@pytest.fixture(scope="module")
def written(kafka_42: Broker) -> Written:
    return Written(kafka_42)


def record_page(client: Client, topic: str, offset: object, status: int = 200) -> str:
    return html(client.get(f"/partitions/prod/{topic}/0/record", {"offset": str(offset)}), status)


def html(answer: Any, status: int = 200) -> str:
    assert answer.status_code == status, answer.content
    return str(answer.content.decode())


def test_it_names_the_fate_and_the_id_of_each_offset(prod: Cluster, written: Written) -> None:
    client = roles.client_with_role("viewer")
    for offset, fate in FATES.items():
        page = record_page(client, written.name, offset)
        assert f'data-fate="{fate}"' in page, offset
        assert (f"id-{written.name}" in page) == (0 < offset < 7), offset
        answer = client.get(f"/api/v1/partitions/prod/{written.name}/0/records/{offset}").json()
        assert answer["fate"] == fate
        assert answer["transactional_id"] == (f"id-{written.name}" if 0 < offset < 7 else "")
        readers = {
            "read_committed": fate in ("plain", "committed"),
            "read_uncommitted": offset in (0, 1, 2, 3, 5),
        }
        assert answer["visible"] == readers


def test_keys_and_values_are_shown_when_asked_and_allowed(
    prod: Cluster, written: Written, settings: Any
) -> None:
    address = f"/partitions/prod/{written.name}/0/record/payload"
    client = roles.client_with_role("admin")
    assert "alert(1)" not in record_page(client, written.name, 1)
    assert not AuditEntry.objects.filter(event=AuditEntry.Event.PAYLOAD_SHOWN).exists()
    page = html(client.post(address, {"offset": "1"}))
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\xff\\x00&quot;" in page
    assert "k\\xfe" in page
    entry = AuditEntry.objects.get(event=AuditEntry.Event.PAYLOAD_SHOWN)
    assert entry.subject_name == f"{written.name}-0@1"
    operator = roles.client_with_role("operator")
    assert operator.post(address, {"offset": "1"}).status_code == 403
    properties = {"bootstrap.servers": settings.FENCELINE.clusters["prod"].bootstrap}
    settings.FENCELINE = Config(clusters={"prod": ClusterConfig("prod", properties)})
    hidden = html(client.post(address, {"offset": "1"}))
    assert "alert(1)" not in hidden
    assert "payloads = true" in hidden


@pytest.mark.parametrize("offset", [" ", "x", "-1", "1.5", "9223372036854775808", "٣", "0x10"])
def test_what_is_no_offset_is_refused(prod: Cluster, written: Written, offset: str) -> None:
    assert "is not an offset" in record_page(roles.client_with_role("viewer"), written.name, offset, 422)


def test_what_cannot_be_looked_at_is_said(prod: Cluster, settings: Any) -> None:
    client = roles.client_with_role("viewer")
    assert "cannot be read" in record_page(client, "no-such-topic", 5, 404)
    assert client.get("/partitions/nowhere/x/0/record", {"offset": "1"}).status_code == 404
    answer = client.get("/api/v1/partitions/prod/no-such-topic/0/records/5")
    assert (answer.status_code, "cannot be read" in answer.json()["detail"]) == (404, True)
    settings.FENCELINE = Config(
        clusters={"prod": ClusterConfig("prod", {"bootstrap.servers": "127.0.0.1:1"})}
    )
    assert "127.0.0.1:1" in record_page(client, "no-such-topic", 5, 503)


def test_a_huge_key_is_cut_and_a_null_value_is_told(prod: Cluster, kafka_42: Broker) -> None:
    name = f"lens-{random.getrandbits(40):x}"
    create_topics(kafka_42.bootstrap, name, partitions=1)
    producer = Producer({"bootstrap.servers": kafka_42.bootstrap, "message.max.bytes": 2_000_000})
    producer.produce(name, None, b"\xf0" + b"k" * 900_000, partition=0)
    assert producer.flush(30) == 0
    client = roles.client_with_role("admin")
    page = html(client.post(f"/partitions/prod/{name}/0/record/payload", {"offset": "0"}))
    assert len(page) < 100_000
    assert "\\xf0kkkk" in page
    assert "the first 16,384 of 900,001 bytes" in page
    assert "null" in page


def test_the_newest_record_with_a_key_is_found_by_who_may_see_keys(prod: Cluster, written: Written) -> None:
    address = f"/partitions/prod/{written.name}/0/record/key"
    client = roles.client_with_role("admin")
    answer = client.post(address, {"key": "k\\xfe"})
    # The aborted one: whoever looks for a record wants to know that as well.
    expected = (303, f"/partitions/prod/{written.name}/0/record?offset=5")
    assert (answer.status_code, answer["Location"]) == expected
    assert AuditEntry.objects.filter(event=AuditEntry.Event.PAYLOAD_SHOWN).count() == 1
    page = html(client.post(address, {"key": "nobody's"}), 404)
    assert "has this key among offsets 0 to 7" in page
    assert "This is no key" in html(client.post(address, {"key": "C:\\orders"}), 422)
    assert roles.client_with_role("operator").post(address, {"key": "k"}).status_code == 403


def test_large_records_leave_the_newest_ones_searched(prod: Cluster, kafka_42: Broker) -> None:
    name = f"lens-{random.getrandbits(40):x}"
    create_topics(kafka_42.bootstrap, name, partitions=1)
    producer = Producer({"bootstrap.servers": kafka_42.bootstrap, "linger.ms": 50})
    for number in range(1_500):
        producer.produce(name, bytes(10_000), b"k" if number in (10, 1_499) else b"other", partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0
    client = roles.client_with_role("admin")
    answer = client.post(f"/partitions/prod/{name}/0/record/key", {"key": "k"})
    assert answer["Location"].endswith("offset=1499")
    with closing(ClusterReads({"bootstrap.servers": kafka_42.bootstrap})) as reads:
        writers = read_writers(reads, TopicPartition(name, 0))
    assert isinstance(writers, BatchWriters)
    assert writers.to_offset == 1_500
    assert writers.idempotent + writers.plain < 1_500
