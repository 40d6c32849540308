"""Proves what is kept of a topic that real brokers compact, empty of ids, and cut into other partitions.

Across offsets that compaction removed nothing is derived, and a gap counts them; of all else the database
keeps what an offline replay gives (tests/offline_replay.py).
"""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    NewPartitions,
)
from django.db import connection
from django.test import Client
from django.utils.html import escape

from dashboard.models import (
    Cluster,
    GapRecord,
    Position,
    StateCount,
    Transaction,
    TransitionRecord,
)
from dashboard.runtime import collector_store, leases, loop
from dashboard.tasks import tails
from dashboard.transactions.sql import recent_ring
from dashboard.web.addresses import transaction_url
from fenceline.decode import text
from fenceline.facts import Confidence, TransactionRecord, TransactionState, Transition, TransitionKind
from fenceline.kafka.coordinator import partition_for
from fenceline.kafka.fold import transition_ring
from fenceline.kafka.transactional_ids import key_of
from sandbox.kafka import Broker
from tests import offline_replay
from tests.brokers import configure_topic, create_topics
from tests.kafka.driven import read_to_end, take_lease
from tests.kafka.producers import LibrdkafkaProducer
from tests.kafka.topic_records import TOPIC, RawRecord, raw_records
from tests.transaction_load import Load, commit
from tests.transaction_state_records import encode_key, encode_value
from tests.waiting import wait_for
from tests.web import roles

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

DEADLINE_S = 60
#: A segment ends with the first record that is 50 ms younger, and is cleaned at once.
COMPACTING = {"segment.ms": "50", "min.cleanable.dirty.ratio": "0.001", "max.compaction.lag.ms": "1"}
NOT_COMPACTING = {"max.compaction.lag.ms": "9223372036854775807", "min.compaction.lag.ms": "3600000"}


class Reader:
    """The collector of one broker on an empty database, driven by hand."""

    def __init__(self, bootstrap: str) -> None:
        # The tail of a cluster stays warm in its process, so each reader needs a name of its own.
        self.cluster = f"strange-{random.getrandbits(40):x}"
        self._properties = {"bootstrap.servers": bootstrap}
        collector_store.sync_clusters([self.cluster])
        self._took: leases.Lease | None = None

    def read(self, *, warm: bool = False) -> None:
        """Read everything up to now, as a new collector, or as one that resumes."""
        previous = self._took.token if self._took else None
        self._took = take_lease(self.cluster, tails.tail_name(0), previous=previous)
        if not warm:
            tails._cool(tails.tailed._topic, self._took)
        read_to_end(self._took, tails.tailed, self._properties)


def check_against_replay(records: Sequence[RawRecord]) -> None:
    """Compare the database with a replay of these records."""
    check_rows(offline_replay.replay_records(records))


def check_rows(expected: offline_replay.ExpectedRows) -> None:
    """Compare the database with what must be kept."""
    wrong = offline_replay.differences(expected, offline_replay.stored_rows(connection.cursor()))
    assert not wrong, "\n".join(wrong)


def missing(records: Sequence[RawRecord]) -> int:
    """Return how many offsets before their ends are gone."""
    return sum(offline_replay.ends(records).values()) - len(records)


def counted() -> int:
    """Return how many offsets the gap of compaction counts."""
    return sum(GapRecord.objects.filter(scope="compaction").values_list("count", flat=True))


@pytest.fixture
def compacted(tmp_path: Path) -> Iterator[Broker]:
    """A broker that cleans often, but nothing before a test configures it to."""
    properties = {"log.cleaner.backoff.ms": "100", "transaction.state.log.num.partitions": "3"}
    with Broker(tmp_path, properties=properties) as broker:
        create_topics(broker.bootstrap, "load")
        yield broker


def compact(bootstrap: str) -> None:
    """Let the topic be compacted for a while, under load, since only a new record ends a segment."""
    before = missing(list(raw_records(bootstrap)))
    configure_topic(bootstrap, TOPIC, COMPACTING)
    with Load(bootstrap, 8) as load:
        wait_for(lambda: missing(list(raw_records(bootstrap))) > before + 300, "offsets are gone", DEADLINE_S)
        load.finish()
    configure_topic(bootstrap, TOPIC, NOT_COMPACTING)


def some_load(bootstrap: str, transactions: int) -> None:
    with Load(bootstrap, 8) as load:
        wait_for(lambda: load.ended >= transactions, "some load", DEADLINE_S)


def check_transitions() -> None:
    """Compare all saved transitions with what the load does: it commits, aborts, and starts again.

    Whatever was derived across a hole would be a step that Kafka does not have, and so ambiguous.
    """
    told = [
        each
        for packed in Transaction.objects.values_list("recent", flat=True)
        for each in transition_ring.unpack_ring(bytes(packed), 0)
    ]
    assert {each.confidence for each in told} == {Confidence.CERTAIN}
    kinds = set(TransitionRecord.objects.values_list("kind", "confidence"))
    assert kinds == {("client_abort", "certain"), ("reinit", "certain")}


@pytest.mark.matrix
def test_neither_a_warm_nor_a_cold_start_derives_anything_across_holes(compacted: Broker) -> None:
    """The topic is compacted while the collector is off; then it goes on, and another one begins."""
    reader = Reader(compacted.bootstrap)
    some_load(compacted.bootstrap, 200)
    reader.read()
    seen = list(raw_records(compacted.bootstrap))
    check_against_replay(seen)
    assert counted() == missing(seen) == 0
    some_load(compacted.bootstrap, 100)
    compact(compacted.bootstrap)
    some_load(compacted.bootstrap, 50)
    reader.read()
    left = list(raw_records(compacted.bootstrap))
    stood = offline_replay.ends(seen)
    records = seen + [each for each in left if each.offset >= stood.get(each.partition, 0)]
    check_against_replay(records)
    check_transitions()
    assert counted() == missing(records) > 0
    Cluster.objects.all().delete()
    Reader(compacted.bootstrap).read()
    check_against_replay(left)
    check_transitions()
    assert counted() == missing(left) > missing(records)


@pytest.mark.matrix
def test_the_topic_may_have_any_number_of_partitions(tmp_path: Path) -> None:
    with Broker(tmp_path, properties={"transaction.state.log.num.partitions": "7"}) as broker:
        create_topics(broker.bootstrap, "load")
        reader = Reader(broker.bootstrap)
        some_load(broker.bootstrap, 100)
        reader.read()
        check_partitions(broker.bootstrap, 7)


def check_partitions(bootstrap: str, partitions: int) -> None:
    """Compare the database with a replay; each of the load's eight ids lies where its hash puts it."""
    check_against_replay(list(raw_records(bootstrap)))
    for name, partition in Transaction.objects.values_list("transactional_id", "log_partition"):
        assert partition == partition_for(name.encode(), partitions)
    assert Transaction.objects.count() == 8


@pytest.mark.matrix
def test_partitions_added_to_the_topic_are_read_too(tmp_path: Path) -> None:
    """It begins with one; ids continue in other partitions once their coordinators have started again."""
    with Broker(tmp_path, properties={"transaction.state.log.num.partitions": "1"}) as broker:
        create_topics(broker.bootstrap, "load", "t")
        reader = Reader(broker.bootstrap)
        some_load(broker.bootstrap, 100)
        reader.read()
        check_partitions(broker.bootstrap, 1)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_partitions([NewPartitions(TOPIC, 5)])[TOPIC].result(30)
        broker.stop()
        broker.start()
        broker.wait_ready()
        some_load(broker.bootstrap, 20)
        commit(broker.bootstrap, "new")
        reader.read(warm=True)
        newest = {record.key[4:].decode(): record for record in raw_records(broker.bootstrap) if record.key}
    found = Transaction.objects.values_list("transactional_id", "log_partition")
    assert {name: partition_for(name.encode(), 5) for name in newest} == dict(found)
    assert sum(StateCount.objects.values_list("n", flat=True)) == len(newest)
    assert not TransitionRecord.objects.exclude(confidence="certain").exists()


EXPIRING = {
    "transactional.id.expiration.ms": "1500",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}


def test_an_expired_id_that_comes_back_is_a_new_one(tmp_path: Path) -> None:
    with Broker(tmp_path, properties=EXPIRING) as broker:
        create_topics(broker.bootstrap, "t")
        reader = Reader(broker.bootstrap)
        commit(broker.bootstrap, "phoenix")
        wait_for(lambda: gone(broker.bootstrap), "the coordinator forgets it", DEADLINE_S)
        reader.read()
        check_against_replay(list(raw_records(broker.bootstrap)))
        assert not Transaction.objects.exists()
        commit(broker.bootstrap, "phoenix")
        reader.read()
        # The coordinator may forget it once more, before or after what was read.
        check_against_replay(
            [record for record in raw_records(broker.bootstrap) if record.offset < read_to()]
        )
        told = recent_of("phoenix")
        lives = [
            TransitionKind.INIT,
            TransitionKind.BEGIN,
            TransitionKind.COMMIT,
            TransitionKind.EXPIRY,
            TransitionKind.INIT,
            TransitionKind.BEGIN,
            TransitionKind.COMMIT,
        ]
        # The coordinator may have forgotten it once more by now.
        assert [each.kind for each in told[:7]] == lives
        assert {each.confidence for each in told} == {Confidence.CERTAIN}


def read_to() -> int:
    """Return the position in the only partition that has records."""
    return max(Position.objects.values_list("next_offset", flat=True))


def gone(bootstrap: str) -> bool:
    """Whether the newest record of the topic is a tombstone."""
    return any(record.value is None for record in raw_records(bootstrap))


def recent_of(name: str) -> list[Transition]:
    """Return the last transitions of an id, oldest first."""
    ring = recent_ring(Cluster.objects.get().pk, key_of(name.encode()))
    return list(reversed(transition_ring.unpack_ring(ring.packed, 0))) if ring else []


#: By what real clients name themselves with; NUL, bytes that are no UTF-8 and 32 kB only records can hold.
LONG = "long-" + "x" * 995
CLIENTS = (LONG, "control-\x01\x02\x1b[31m\n\r\t\x7f", "../..?%2e#&/<b>", "right-\u202e-left-\U0001d11e")
RECORDS = (b"nul-\x00-nul", b"no-utf-8-\xff\xfe", b"y" * 32_000)


def test_ids_of_any_length_and_bytes_are_shown_on_the_page(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        create_topics(broker.bootstrap, "t")
        for name in CLIENTS:
            commit_and_abort(broker.bootstrap, name)
        write_an_abort(broker.bootstrap, *RECORDS)
        reader = Reader(broker.bootstrap)
        reader.read()
        check_against_replay(list(raw_records(broker.bootstrap)))
    assert Transaction.objects.count() == len(CLIENTS) + len(RECORDS)
    client = roles.client_with_role("viewer")
    for raw in (*(name.encode() for name in CLIENTS), *RECORDS):
        shown_everywhere(client, reader.cluster, raw)


def commit_and_abort(bootstrap: str, name: str) -> None:
    producer = LibrdkafkaProducer(bootstrap, name)
    producer.init()
    for end in producer.commit, producer.abort:
        producer.begin()
        producer.send("t", 0)
        producer.flush()
        end()


def write_an_abort(bootstrap: str, *ids: bytes) -> None:
    """Write what a coordinator would where only brokers may: they let this client id do it."""
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "__admin_client"})
    now_ms = loop.now_ms()
    for raw in ids:
        name = text.escape_bytes(raw)
        for state in (
            TransactionState.ONGOING,
            TransactionState.PREPARE_ABORT,
            TransactionState.COMPLETE_ABORT,
        ):
            record = TransactionRecord(name, state, 9_000, 1, 60_000, (), now_ms, now_ms)
            producer.produce(TOPIC, encode_value(record), encode_key(name), partition=0)
    assert producer.flush(30) == 0


def shown_everywhere(client: Client, cluster: str, raw: bytes) -> None:
    """Compare an id's row, its last transitions, the API and its page with its bytes."""
    name = text.escape_bytes(raw)
    row = Transaction.objects.get(key=key_of(raw))
    assert text.unescape_text(row.transactional_id) == raw
    address = transaction_url(row.cluster.name, row.transactional_id)
    for path in f"/api/v1{address}", f"/api/v1/transitions?transactional_id={quote(name)}":
        answer = client.get(path)
        assert answer.status_code == 200, answer.content
        shown = answer.json()
        for each in shown.get("items", [shown]):
            assert text.unescape_text(each["transactional_id"]) == raw
        kinds = [each["kind"] for each in shown.get("items") or shown["recent"]]
        assert kinds.count("client_abort") == 1
    for path in address, f"/transactions?q={quote(name[:100])}":
        answer = client.get(path)
        assert answer.status_code == 200
        assert escape(name[:40]) in answer.content.decode()
