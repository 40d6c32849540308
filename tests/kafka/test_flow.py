"""Proves the flow on a real broker: the edges that the API shows are what producers and groups did.

A transactional producer, an application that reads, processes and writes in transactions, and a group that
commits outside of them; our own tails and looks save what they did.
"""

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.kafka.collected_groups import CollectedGroups
from tests.kafka.driven import only_cluster
from tests.kafka.group_commits import commit_offsets, write_records
from tests.waiting import wait_for
from tests.web.roles import client_with_role

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]


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
    collected.read_transactions()
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
    collected.read_transactions()
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
    with only_cluster(collected.cluster.name, collected.cluster.properties):
        return client_with_role("viewer").get(path).json()["items"]


def _name(node: dict[str, str]) -> str:
    return f"{node['kind']}:{node['name']}"
