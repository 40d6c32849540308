"""Every version of Kafka in turn, one broker at a time, and a JVM with Java's clients.

The first run fetches the jars that `make test` does not need.
"""

from collections.abc import Iterator

import pytest

from sandbox.kafka import Broker
from tests.brokers import PROPERTIES, java, oracle, tool
from tests.matrix.kafka_versions import VERSIONS, Expected

__all__ = ["java", "oracle", "tool"]


@pytest.fixture(scope="session", params=VERSIONS)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Each version in turn: pytest plays all tests of one before the next broker starts."""
    folder = tmp_path_factory.mktemp(f"kafka-{request.param}")
    with Broker(folder, version=request.param, properties=PROPERTIES) as broker:
        yield broker


@pytest.fixture
def expected(kafka: Broker) -> Expected:
    """What this version's log and protocol must show."""
    return VERSIONS[kafka.version]
