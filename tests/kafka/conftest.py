"""Real brokers of both versions, and a JVM with Java's clients.

On Kafka 3.9 `make test` runs what is marked `versioned`; `make test-matrix` the rest of these tests.
"""

import pytest
from py4j.java_gateway import JavaGateway

from sandbox.kafka import Broker
from tests.brokers import java, kafka, kafka_39, kafka_40, kafka_42, kafka_43, kafka_of_engine
from tests.java.tools import KafkaTool
from tests.kafka.doctor_checks import acl_broker

__all__ = ["acl_broker", "java", "kafka", "kafka_39", "kafka_40", "kafka_42", "kafka_43", "kafka_of_engine"]


@pytest.fixture
def tool(kafka: Broker, java: JavaGateway) -> KafkaTool:
    """Kafka's own tools on each version in turn."""
    return KafkaTool(kafka, java)


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
