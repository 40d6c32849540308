"""Proves that one bad cluster harms no other: each reports its error, and recovers without a restart."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ResourceType

from sandbox.kafka import Broker, Sasl
from sandbox.options import ROOT
from tests.acls import set_acl
from tests.deployment import Stack
from tests.transaction_load import commit
from tests.waiting import wait_for

pytestmark = pytest.mark.kafka

DEADLINE_S = 50
SASL = '"security.protocol" = "SASL_PLAINTEXT"\n"sasl.mechanism" = "PLAIN"\n"sasl.username" = "viewer"\n'


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("good")
    with Broker(folder, sasl=Sasl(users={"viewer": "right"}), authorizer=True) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        commit(broker.bootstrap, "one")
        yield broker


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker whose address is configured and that is not started."""
    broker = Broker(tmp_path_factory.mktemp("late"))
    yield broker
    broker.kill()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, broker: Broker, late: Broker) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("stack")
    config = folder / "fenceline.toml"
    sasl = f'"bootstrap.servers" = "{broker.sasl_bootstrap}"\n{SASL}'
    config.write_text(
        f'[clusters.good]\n"bootstrap.servers" = "{broker.bootstrap}"\n'
        f'[clusters.unreachable]\n"bootstrap.servers" = "{late.bootstrap}"\n'
        f'[clusters.denied]\n{sasl}"sasl.password" = "right"\n'
        f'[clusters.wrong]\n{sasl}"sasl.password" = "wr0ng"\n'
    )
    with Stack(folder, CONFIG=str(config)) as stack:
        yield stack


def collector(stack: Stack, cluster: str) -> dict[str, object]:
    rows = stack.api(f"collectors?cluster={cluster}")["items"]
    return next((row for row in rows if row["name"] == "transaction_state"), {"error": None, "as_of": None})


def error_of(stack: Stack, cluster: str) -> str:
    return str(collector(stack, cluster)["error"])


def has(stack: Stack, cluster: str, name: str) -> bool:
    return any(
        row["transactional_id"] == name for row in stack.api(f"transactions?cluster={cluster}")["items"]
    )


@pytest.mark.parametrize(
    ("cluster", "says"),
    [
        ("unreachable", "Connection refused"),
        ("denied", "no READ on __transaction_state"),
        ("wrong", "Authentication failed"),
    ],
)
def test_each_bad_cluster_reports_its_error(stack: Stack, cluster: str, says: str) -> None:
    wait_for(lambda: says in error_of(stack, cluster), f"{cluster} says {says}", DEADLINE_S)
    wait_for(lambda: f"{cluster}/transaction_state: " in stack.log(), "the log says so too", DEADLINE_S)
    page = stack.page(f"/transactions?cluster={cluster}")
    assert says in page
    assert "wr0ng" not in page + stack.page("/system") + stack.log()


def test_the_good_cluster_is_not_affected(stack: Stack, broker: Broker) -> None:
    commit(broker.bootstrap, "two")
    wait_for(lambda: has(stack, "good", "two"), "the good cluster is seen", DEADLINE_S)
    assert error_of(stack, "good") == ""


def test_corrupt_records_are_counted_and_shown(stack: Stack, broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "__admin_client"})
    for key, value in (
        (b"\x00\x00\x00\x03bad", b"\x00\x63"),
        (b"nonsense", b"x"),
        (b"\x00\x00\x00\x03bad", b"\x00\x01\x00"),
    ):
        producer.produce("__transaction_state", value, key)
    assert producer.flush(30) == 0
    wait_for(lambda: collector(stack, "good")["undecoded"], "the records are counted", DEADLINE_S)
    assert sum(dict(collector(stack, "good")["undecoded"]).values()) == 3  # type: ignore[call-overload]
    wait_for(lambda: "cannot be decoded" in stack.log(), "the log says so too", DEADLINE_S)
    commit(broker.bootstrap, "three")
    wait_for(lambda: has(stack, "good", "three"), "reading goes on", DEADLINE_S)


def test_a_broker_that_starts_later_is_polled_without_a_restart(stack: Stack, late: Broker) -> None:
    late.start()
    late.wait_ready()
    wait_for(lambda: error_of(stack, "unreachable") == "", "the broker is seen", DEADLINE_S)
    admin = AdminClient({"bootstrap.servers": late.bootstrap})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
    commit(late.bootstrap, "late")
    wait_for(lambda: has(stack, "unreachable", "late"), "its transactions are seen", DEADLINE_S)


def test_an_acl_that_is_granted_is_used_without_a_restart(stack: Stack, broker: Broker) -> None:
    set_acl(broker, "viewer", ResourceType.TOPIC, "__transaction_state", AclOperation.READ)
    wait_for(lambda: error_of(stack, "denied") == "", "the ACL is used", DEADLINE_S)
    wait_for(lambda: has(stack, "denied", "one"), "its transactions are seen", DEADLINE_S)
    assert "Authentication failed" in error_of(stack, "wrong")


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"CONFIG": "no-such.toml"}, "no such file"),
        ({"BOOTSTRAP": "kafka"}, "give host:port"),
        ({"PORT": "eighty"}, "give a number"),
        ({"DATABASE_URL": "mysteryql://x/y"}, "DATABASE_URL"),
    ],
)
def test_a_bad_variable_stops_the_start_in_one_line(
    tmp_path: Path, variables: dict[str, str], says: str
) -> None:
    assert says in refused_start(tmp_path, **variables)


def test_bad_toml_stops_the_start_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('[clusters.a]\n"bootstrap.servers" = "h:1"\n[limit]\n')
    said = refused_start(tmp_path, CONFIG=str(tmp_path / "bad.toml"))
    assert "bad.toml: unknown key 'limit'; did you mean 'limits'?" in said


def test_a_taken_port_stops_the_start_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert port in refused_start(tmp_path, PORT=port)


def refused_start(tmp_path: Path, **variables: str) -> str:
    """Start a stack that must refuse, and return what it printed, free of tracebacks."""
    command = [sys.executable, "-m", "sandbox.up"]
    environment = {"PATH": "/usr/bin:/bin", "FENCELINE_DATA": str(tmp_path / "data"), "DEMO": "0"} | variables
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Traceback" not in said
    return said
