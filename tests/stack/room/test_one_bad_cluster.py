"""Proves that one bad cluster harms no other: each reports its error, and recovers without a restart."""

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, ResourceType

from sandbox.kafka import Broker
from tests.acls import set_acl
from tests.brokers import create_topics
from tests.cases import cases
from tests.deployment import Stack
from tests.stack.room.conftest import CLUSTER
from tests.transaction_load import commit
from tests.waiting import wait_for

pytestmark = pytest.mark.kafka

DEADLINE_S = 50


@pytest.fixture(scope="module", autouse=True)
def one(broker: Broker) -> None:
    """A transaction that was there before."""
    create_topics(broker.bootstrap, "t", partitions=1)
    commit(broker.bootstrap, "one")


def collector(stack: Stack, cluster: str) -> dict[str, object]:
    rows = stack.api(f"collectors?cluster={cluster}")["items"]
    return next((row for row in rows if row["name"] == "transaction_state"), {"error": None, "as_of": None})


def undecoded(stack: Stack) -> int:
    counts = collector(stack, CLUSTER)["undecoded"]
    return sum(dict(counts).values())  # type: ignore[call-overload]


def error_of(stack: Stack, cluster: str) -> str:
    return str(collector(stack, cluster)["error"])


def has(stack: Stack, cluster: str, name: str) -> bool:
    return any(
        row["transactional_id"] == name for row in stack.api(f"transactions?cluster={cluster}")["items"]
    )


@cases(
    ("unreachable", "ECONNREFUSED"),
    ("denied", "no READ on this topic"),
    ("wrong", "sasl.password"),
)
def test_each_bad_cluster_reports_its_error(stack: Stack, cluster: str, says: str) -> None:
    wait_for(lambda: says in error_of(stack, cluster), f"{cluster} says {says}", DEADLINE_S)
    wait_for(lambda: f"{cluster}/transaction_state: " in stack.log(), "the log says so too", DEADLINE_S)
    page = stack.page(f"/transactions?cluster={cluster}")
    assert says in page
    assert "wr0ng" not in page + stack.page("/system") + stack.log()


def test_the_good_cluster_is_not_affected(stack: Stack, broker: Broker) -> None:
    commit(broker.bootstrap, "two")
    wait_for(lambda: has(stack, CLUSTER, "two"), "the good cluster is seen", DEADLINE_S)
    assert error_of(stack, CLUSTER) == ""


def test_corrupt_records_are_counted_and_shown(stack: Stack, broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "__admin_client"})
    for key, value in (
        (b"\x00\x00\x00\x03bad", b"\x00\x63"),
        (b"nonsense", b"x"),
        (b"\x00\x00\x00\x03bad", b"\x00\x01\x00"),
    ):
        producer.produce("__transaction_state", value, key)
    assert producer.flush(30) == 0
    wait_for(lambda: undecoded(stack) == 3, "the records are counted", DEADLINE_S)
    wait_for(lambda: "cannot be decoded" in stack.log(), "the log says so too", DEADLINE_S)
    commit(broker.bootstrap, "three")
    wait_for(lambda: has(stack, CLUSTER, "three"), "reading goes on", DEADLINE_S)


def test_a_broker_that_starts_later_is_polled_without_a_restart(stack: Stack, late: Broker) -> None:
    late.start()
    late.wait_ready()
    wait_for(lambda: error_of(stack, "unreachable") == "", "the broker is seen", DEADLINE_S)
    create_topics(late.bootstrap, "t", partitions=1)
    commit(late.bootstrap, "late")
    wait_for(lambda: has(stack, "unreachable", "late"), "its transactions are seen", DEADLINE_S)


def test_an_acl_that_is_granted_is_used_without_a_restart(stack: Stack, broker: Broker) -> None:
    set_acl(broker, "viewer", ResourceType.TOPIC, "__transaction_state", AclOperation.READ)
    wait_for(lambda: error_of(stack, "denied") == "", "the ACL is used", DEADLINE_S)
    wait_for(lambda: has(stack, "denied", "one"), "its transactions are seen", DEADLINE_S)
    assert "sasl.password" in error_of(stack, "wrong")
