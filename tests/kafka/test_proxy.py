"""Proves that both client libraries work through the proxy of the tests, and see what it leaves."""

import random
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from fenceline import facts
from fenceline.kafka.reconcile import Described
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.kafka.producers import open_in
from tests.kafka.proxy.restrictions import LIST_TRANSACTIONS, Restrictions, node_of
from tests.kafka.proxy.server import KafkaProxy
from transaction_admin.api import TRANSACTION_STATE, Unseen
from transaction_admin.kafka_python import TransactionAdmin
from transaction_admin.kafka_reads import ClusterReads

pytestmark = pytest.mark.kafka


@pytest.fixture
def proxy(kafka_42: Broker) -> Iterator[KafkaProxy]:
    with KafkaProxy(kafka_42.port) as made:
        yield made


def test_both_libraries_see_through_it_what_is_there(kafka_42: Broker, proxy: KafkaProxy) -> None:
    topic = f"through-{random.getrandbits(40):x}"
    create_topics(proxy.bootstrap, topic)
    producer = open_in(proxy.bootstrap, topic, topic, 0, 1)
    properties = {"bootstrap.servers": proxy.bootstrap}
    reads, admin = ClusterReads(properties), TransactionAdmin(properties)
    places = [facts.TopicPartition(topic, number) for number in range(3)]
    topology = reads.describe_topology([topic])
    assert [topology.partitions[where].leader for where in places] == [1, 2, 1]
    assert set(topology.brokers.values()) == set(proxy.bootstrap.split(","))
    offsets = reads.list_offsets(places)
    assert [(o.lso, o.high_watermark) for o in offsets.values() if not isinstance(o, Unseen)] == [
        (0, 1), (0, 1), (0, 0),
    ]  # fmt: skip
    listing = admin.list_transactions()
    assert topic in listing.entries
    assert listing.unseen == ()
    described = admin.describe_transactions([topic])[topic]
    assert isinstance(described, Described)
    assert described.state == "Ongoing"
    producer.commit()
    assert _read(proxy.bootstrap, topic) == b"x"
    reads.close()
    admin.close()


def _read(bootstrap: str, topic: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 1, 0)])
    (message,) = consumer.consume(1, 20)
    consumer.commit(message=message, asynchronous=False)
    consumer.close()
    return message.value()


def test_what_is_taken_away_is_not_seen(kafka_42: Broker, proxy: KafkaProxy) -> None:
    topic = f"taken-{random.getrandbits(40):x}"
    create_topics(kafka_42.bootstrap, topic)
    producer = open_in(kafka_42.bootstrap, topic, topic, 0)
    admin = TransactionAdmin({"bootstrap.servers": proxy.bootstrap})
    proxy.restrict(Restrictions(absent=frozenset({TRANSACTION_STATE}), coordinators_away=frozenset({2})))
    client = AdminClient({"bootstrap.servers": proxy.bootstrap})
    assert TRANSACTION_STATE not in client.list_topics(timeout=10).topics
    away = [unseen.what for unseen in admin.list_transactions().unseen]
    assert [what.split(" at ")[0] for what in away] == ["broker 2"]
    proxy.restrict(Restrictions(unknown=frozenset({LIST_TRANSACTIONS})))
    admin.close()
    admin = TransactionAdmin({"bootstrap.servers": proxy.bootstrap})
    assert [unseen.what.split(" at ")[0] for unseen in admin.list_transactions().unseen] == [
        "broker 1", "broker 2",
    ]  # fmt: skip
    proxy.restrict(Restrictions(ids_denied=True))
    admin.close()
    admin = TransactionAdmin({"bootstrap.servers": proxy.bootstrap})
    listing = admin.list_transactions()
    assert (listing.entries, listing.unseen) == ({}, ())
    producer.abort()
    admin.close()
    assert node_of(1) == 2
