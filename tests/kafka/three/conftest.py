"""Three brokers for all files of this folder, and for no other: to start them takes as long as some tests.

Who stops one starts it again and waits for all; who configures one takes that back.
"""

from collections.abc import Iterator

import pytest

from sandbox.cluster import KafkaCluster
from tests.brokers import PROPERTIES


@pytest.fixture(scope="package")
def kafka_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three brokers of Kafka 4.2 that are one cluster; in the end each would wait for the others to stop."""
    with KafkaCluster(tmp_path_factory.mktemp("kafka-three"), properties=PROPERTIES) as cluster:
        yield cluster
        cluster.kill()
