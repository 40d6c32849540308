"""Proves on a real broker that the page and the API of a record name its fate and its transaction; that keys
and values are shown to those alone who may see them; that bad addresses are refused in plain words."""

import random
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from django.test import Client

from collectors.kafka.record_lens import read_writers
from dashboard.config import ClusterConfig, Config
from dashboard.models import AuditEntry, Cluster
from fenceline.decode.record_batches import BatchWriters
from fenceline.facts import TopicPartition as FencelinePartition
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.waiting import wait_for
from tests.web import factories, roles
from transaction_admin.kafka_reads import ClusterReads

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

FATES = dict(enumerate(("plain", *["committed"] * 3, "marker", "aborted", "marker", "not_written")))
HOSTILE = b'<script>alert(1)</script>\xff\x00"'


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
            [TopicPartition(self.name, 0, 3)], consumer.consumer_group_metadata(), 30
        )
        consumer.close()
        writer.commit_transaction(30)
        self._run(writer, 1, b"aborted")
        writer.abort_transaction(30)
        # Its marker is written after the answer.
        where = TopicPartition(self.name, 0)
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
    assert (answer.status_code, answer["Location"]) == (
        303,
        f"/partitions/prod/{written.name}/0/record?offset=5",
    )
    assert AuditEntry.objects.filter(event=AuditEntry.Event.PAYLOAD_SHOWN).count() == 1
    page = html(client.post(address, {"key": "nobody's"}), 404)
    assert "has this key among offsets 0 to 7" in page
    assert roles.client_with_role("operator").post(address, {"key": "k"}).status_code == 403


def test_a_key_that_is_none_is_refused_before_anything_is_read(prod: Cluster, written: Written) -> None:
    address = f"/partitions/prod/{written.name}/0/record/key"
    page = html(roles.client_with_role("admin").post(address, {"key": "C:\\orders"}), 422)
    assert "This is no key" in page


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
        writers = read_writers(reads, FencelinePartition(name, 0))
    assert isinstance(writers, BatchWriters)
    assert writers.to_offset == 1_500
    assert writers.idempotent + writers.plain < 1_500
