"""Proves the flow on a real broker: the edges that the API shows are what producers and groups did.

A transactional producer, an application that reads, processes and writes in transactions, and a group that
commits outside of them; our own tails and looks save what they did.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from django.test import override_settings

from dashboard.config import Config
from dashboard.models import Collector
from dashboard.runtime import leases, loop
from dashboard.tasks import tails
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.kafka.collected_groups import CollectedGroups
from tests.kafka.group_commits import commit_offsets, write_records
from tests.waiting import wait_for
from tests.web.roles import client_with_role

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]


@pytest.fixture
def collected(kafka: Broker) -> Iterator[CollectedGroups]:
    """Our collectors on the broker, and an empty database."""
    made = CollectedGroups({"bootstrap.servers": kafka.bootstrap})
    yield made
    made.close()


def test_edges_of_the_api_equal_what_producers_and_groups_did(
    kafka: Broker, collected: CollectedGroups
) -> None:
    create_topics(kafka.bootstrap, "flow-in", "flow-out", "flow-audit")
    writer = _transactional(kafka, "flow-gateway-1")
    _write(writer, "flow-in", "flow-audit")
    _read_process_write(kafka, "flow-enricher-7", "flow-enrich", "flow-in", "flow-out")
    commit_offsets(kafka.bootstrap, "flow-plain", "flow-out", p0=1)
    commit_offsets(kafka.bootstrap, "flow-plain", "flow-in", p0=1)
    write_records(kafka.bootstrap, "flow-audit", 3)

    _tail(collected)
    edges = wait_for(lambda: _settled(collected), "who commits the offsets is known", 120)
    assert edges == {
        ("application:flow-gateway", "topic:flow-in", ""),
        ("application:flow-gateway", "topic:flow-audit", ""),
        ("topic:flow-in", "application:flow-enricher", "flow-enrich"),
        ("application:flow-enricher", "topic:flow-out", ""),
        ("topic:flow-out", "group:flow-plain", ""),
        ("topic:flow-in", "group:flow-plain", ""),
    }
    produced = {
        edge["target"]["name"]: edge for edge in _edges(collected) if edge["source"]["name"] == "flow-gateway"
    }
    assert produced["flow-in"]["p50_ms"] is not None
    assert produced["flow-in"]["rate"] > 0


def test_a_transaction_that_is_still_open_shows_where_it_writes(
    kafka: Broker, collected: CollectedGroups
) -> None:
    create_topics(kafka.bootstrap, "flow-open")
    writer = _transactional(kafka, "flow-opener-1")
    writer.begin_transaction()
    writer.produce("flow-open", b"x")
    assert writer.flush(30) == 0
    _tail(collected)
    edges = [edge for edge in _edges(collected) if edge["target"]["name"] == "flow-open"]
    writer.abort_transaction(30)
    assert [(edge["source"]["name"], edge["p50_ms"]) for edge in edges] == [("flow-opener", None)]


def _transactional(kafka: Broker, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    return producer


def _write(producer: Producer, *topics: str) -> None:
    producer.begin_transaction()
    for topic in topics:
        producer.produce(topic, b"x", partition=0)
    producer.commit_transaction(60)


def _read_process_write(kafka: Broker, name: str, group: str, source: str, target: str) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group, "log_level": 0})
    producer = _transactional(kafka, name)
    producer.begin_transaction()
    producer.produce(target, b"x", partition=0)
    positions = [TopicPartition(source, 0, 1)]
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 60)
    producer.commit_transaction(60)
    consumer.close()


def _tail(collected: CollectedGroups) -> None:
    """Let the tail of `__transaction_state` read everything up to now."""
    name = tails.tail_name(0)
    lease = leases.acquire(collected.cluster.name, name, holder="test", now_ms=loop.now_ms())
    assert lease is not None
    asked_ms = loop.now_ms()

    def seen() -> bool:
        tails.read_until(lease, time.monotonic() + 0.5)
        row = Collector.objects.get(name=name, cluster_id=lease.cluster_id)
        return (row.seen_through_ms or 0) > asked_ms

    with override_settings(FENCELINE=Config(clusters={collected.cluster.name: collected.cluster})):
        wait_for(seen, "all transactions are read", 60)


def _settled(collected: CollectedGroups) -> set[tuple[str, str, str]] | None:
    """Look at groups; return the edges of this file's topics once nothing is to be found out any more."""
    collected.poll()
    edges = {
        (_name(edge["source"]), _name(edge["target"]), edge["group"])
        for edge in _edges(collected)
        if any(each["name"].startswith("flow-") for each in (edge["source"], edge["target"]))
    }
    return edges if any(group for *_, group in edges) else None


def _edges(collected: CollectedGroups) -> list[dict[str, Any]]:
    path = f"/api/v1/pipelines/edges?cluster={collected.cluster.name}&limit=1000"
    with override_settings(FENCELINE=Config(clusters={collected.cluster.name: collected.cluster})):
        return client_with_role("viewer").get(path).json()["items"]


def _name(node: dict[str, str]) -> str:
    return f"{node['kind']}:{node['name']}"
