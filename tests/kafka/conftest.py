"""Real brokers of both versions, and a JVM with Java's clients.

On Kafka 3.9 `make test` runs what is marked `versioned`; `make test-matrix` the rest of these tests.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from dashboard.config import ClusterConfig, Config
from dashboard.models import Cluster
from sandbox.kafka import Broker
from tests.brokers import java, kafka, kafka_39, kafka_40, kafka_42, kafka_43, kafka_of_engine, oracle, tool
from tests.kafka.collected_groups import CollectedGroups
from tests.kafka.doctor_checks import acl_broker
from tests.web import factories
from transaction_admin.kafka_reads import ClusterReads

__all__ = [
    "acl_broker",
    "java",
    "kafka",
    "kafka_39",
    "kafka_40",
    "kafka_42",
    "kafka_43",
    "kafka_of_engine",
    "oracle",
    "tool",
]


def _groups_of(broker: Broker) -> Iterator[CollectedGroups]:
    with closing(CollectedGroups({"bootstrap.servers": broker.bootstrap})) as made:
        yield made


@pytest.fixture
def collected(kafka: Broker) -> Iterator[CollectedGroups]:
    """Collectors of groups on each version in turn, and an empty database."""
    yield from _groups_of(kafka)


@pytest.fixture
def collected_42(kafka_42: Broker) -> Iterator[CollectedGroups]:
    """Collectors of groups on the newer version, and an empty database."""
    yield from _groups_of(kafka_42)


@pytest.fixture
def reader(kafka_of_engine: Broker) -> Iterator[CollectedGroups]:
    """Collectors of groups on each version that an engine is tested on, and an empty database."""
    yield from _groups_of(kafka_of_engine)


@pytest.fixture
def reads(kafka: Broker) -> Iterator[ClusterReads]:
    """The reads of each version in turn."""
    with closing(ClusterReads({"bootstrap.servers": kafka.bootstrap}, 20)) as made:
        yield made


@pytest.fixture
def prod(kafka_42: Broker, settings: Any) -> Cluster:
    """The broker's cluster as the configuration's only one."""
    properties = {"bootstrap.servers": kafka_42.bootstrap}
    settings.FENCELINE = Config(clusters={"prod": ClusterConfig("prod", properties)})
    return factories.cluster()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave repetitions that a version makes no difference to for the matrix."""
    for item in items:
        if is_repetition(item) and not item.get_closest_marker("versioned"):
            item.add_marker(pytest.mark.matrix)


def is_repetition(item: pytest.Item) -> bool:
    """Whether a test of this folder runs on the older one of two versions."""
    callspec = getattr(item, "callspec", None)
    is_on_39 = callspec is not None and "kafka_39" in callspec.id.split("-")
    return is_on_39 and item.nodeid.startswith("tests/kafka/")
