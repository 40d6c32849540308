"""Real brokers and a JVM with Java's clients as fixtures, started when asked for.

A conftest makes them its own by importing them: `from tests.brokers import java, kafka, kafka_39, kafka_42`.
They are shared: every test makes topics and transactional ids of its own. What only single files ask for ends
with the file: an idle broker takes a hundredth of a core, and there were twenty of them.
"""

from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic
from py4j.java_gateway import JavaGateway

from sandbox.engines.kafka import java_gateway
from sandbox.java import fetch_jars, find_java
from sandbox.kafka import Broker
from tests.java.clients import JavaAdmin
from tests.java.tools import VERSION, KafkaTool
from tests.waiting import wait_for

#: Timed-out transactions are ended within half a second instead of ten.
PROPERTIES = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}

#: Versions that describe an id that was initialised again with the start of its transaction before.
KEEP_OLD_START = ("3.9.1", "4.0.0")
#: Versions that abort and then refuse a producer that raises its own epoch while a transaction is open.
REFUSE_SELF_RECOVERY = ("3.9.1", "4.0.0")


@pytest.fixture(scope="session")
def kafka_42(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Kafka 4.2: transaction version 2, record value v1."""
    with Broker(tmp_path_factory.mktemp("kafka-42"), version="4.2.0", properties=PROPERTIES) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_39(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Kafka 3.9: record value v0."""
    with Broker(tmp_path_factory.mktemp("kafka-39"), version="3.9.1", properties=PROPERTIES) as broker:
        yield broker


@pytest.fixture(scope="module")
def kafka_40(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Kafka 4.0.0: an abort of the coordinator's own raises the epoch by two. Matrix alone."""
    with Broker(tmp_path_factory.mktemp("kafka-40"), version="4.0.0", properties=PROPERTIES) as broker:
        yield broker


@pytest.fixture(scope="module")
def kafka_43(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Kafka 4.3: records name the previous and the next producer id. Matrix alone."""
    with Broker(tmp_path_factory.mktemp("kafka-43"), version="4.3.1", properties=PROPERTIES) as broker:
        yield broker


@pytest.fixture(params=["kafka_42", "kafka_40", "kafka_43"])
def kafka_of_engine(request: pytest.FixtureRequest) -> Broker:
    """Each version with transaction version 2 that an engine is tested on, in turn."""
    broker: Broker = request.getfixturevalue(request.param)
    return broker


@pytest.fixture(params=["kafka_42", "kafka_39"])
def kafka(request: pytest.FixtureRequest) -> Broker:
    """Each version in turn."""
    broker: Broker = request.getfixturevalue(request.param)
    return broker


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaGateway]:
    """A JVM with kafka-clients 4.2, whose producers speak transaction protocol 2 where the broker does."""
    folder = tmp_path_factory.mktemp("java")
    with (
        (folder / "java.log").open("ab") as log,
        java_gateway(find_java(folder), fetch_jars(f"kafka-{VERSION}"), log) as gateway,
    ):
        yield gateway


@pytest.fixture
def oracle(kafka: Broker, java: JavaGateway) -> Iterator[JavaAdmin]:
    """Java's Admin on each version in turn."""
    with JavaAdmin(java, kafka.bootstrap) as client:
        yield client


@pytest.fixture
def tool(kafka: Broker, java: JavaGateway) -> KafkaTool:
    """Kafka's own tools on each version in turn."""
    return KafkaTool(kafka, java)


def create_topics(bootstrap: str, *names: str, partitions: int = 3, replicas: int = 1) -> None:
    """Make topics and wait until they can be written to."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    for made in client.create_topics([NewTopic(name, partitions, replicas) for name in names]).values():
        made.result(30)
    wait_for(lambda: set(names) <= set(client.list_topics(timeout=10).topics), f"topics {names}")
    # Metadata names leaders some milliseconds before they lead.
    ends = {
        TopicPartition(name, number): OffsetSpec.latest() for name in names for number in range(partitions)
    }
    wait_for(lambda: not any(_failures(client, ends)), f"leaders of {names}")


def topic_ends(bootstrap: str, topic: str) -> Mapping[int, tuple[int, int]]:
    """Return LSO and high watermark by partition."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    numbers = client.list_topics(topic, timeout=30).topics[topic].partitions
    wanted = {TopicPartition(topic, number): OffsetSpec.latest() for number in numbers}
    committed = client.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED)
    every = client.list_offsets(wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED)
    return {of.partition: (committed[of].result(30).offset, every[of].result(30).offset) for of in wanted}


def wait_for_markers(bootstrap: str, topic: str) -> None:
    """Wait until nothing in a topic is open: a coordinator answers who ends one before it writes markers."""
    wait_for(
        lambda: all(lso == end for lso, end in topic_ends(bootstrap, topic).values()), f"markers in {topic}"
    )


def configure_topic(bootstrap: str, topic: str, settings: Mapping[str, str]) -> None:
    """Set a topic's configurations."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


def _failures(client: AdminClient, ends: dict[TopicPartition, OffsetSpec]) -> list[BaseException | None]:
    answers = client.list_offsets(ends, request_timeout=10) if ends else {}
    return [answer.exception(10) for answer in answers.values()]
