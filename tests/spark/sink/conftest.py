"""A query without Spark on the broker that all tests share."""

import uuid
from pathlib import Path

import pytest

from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.spark.sink.queries import FakeQuery


@pytest.fixture
def query(kafka_42: Broker, tmp_path: Path) -> FakeQuery:
    topic = f"sink-{uuid.uuid4().hex[:8]}"
    create_topics(kafka_42.bootstrap, topic, partitions=2)
    return FakeQuery(tmp_path / "checkpoint", kafka_42.bootstrap, topic)
