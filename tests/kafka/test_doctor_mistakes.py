"""Proves that no mistake of a user ends in a traceback: the doctor names it in one line, in bounded time."""

import json
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from pytest_django import Settings

from collectors.doctor.examination import CheckStatus, DoctorCheck, examine_cluster, parse_address
from dashboard.config import ClusterConfig, Config
from sandbox.kafka import Broker
from sandbox.ports import free_port
from sandbox.redis import find_redis
from tests.cases import cases
from tests.kafka.doctor_checks import run_doctor, signed_in
from tests.stack.redis_server import RedisServer
from tests.waiting import wait_for

pytestmark = pytest.mark.kafka


@cases(
    ("kafka-1.example:9093", ("kafka-1.example", 9093)),
    ("kafka-1.example", ("kafka-1.example", 9092)),
    ("SASL_SSL://kafka-1.example:9093", ("kafka-1.example", 9093)),
    ("[::1]:9093", ("::1", 9093)),
    ("kafka-1.example/path", None),
    ("kafka 1:9092", None),
    (":9092", None),
)
def test_addresses_are_parsed_like_librdkafka_parses_them(text: str, address: tuple[str, int] | None) -> None:
    assert parse_address(text) == address


def failure(checks: list[DoctorCheck]) -> DoctorCheck:
    """Return the one failure; nothing that needs what failed was tried after it."""
    (found,) = [each for each in checks if each.status is CheckStatus.FAIL]
    assert checks[-1].what == "the rest"
    return found


@cases(
    ("no-such-host.invalid:9092", "does not resolve"),
    ("127.0.0.1:{closed}", "no connection to 127.0.0.1"),
    ("127.0.0.1:kafka", "no address"),
    ("[::1:9092", "no address"),
    ("127.0.0.1:99999", "no address"),
    ("a..b:9092", "does not resolve"),
)
def test_an_address_that_leads_nowhere_is_named(server: str, said: str) -> None:
    server = server.format(closed=free_port())
    found = failure(run_doctor({"bootstrap.servers": server}))
    assert found.what == f"server {server}"
    assert said in found.detail
    assert '"bootstrap.servers"' in found.remedies[0]


def test_one_server_of_two_is_enough_and_the_other_is_named(kafka_42: Broker) -> None:
    dead = f"127.0.0.1:{free_port()}"
    checks = run_doctor({"bootstrap.servers": f"{dead}, PLAINTEXT://{kafka_42.bootstrap}"})
    assert [each.what for each in checks if each.status is CheckStatus.FAIL] == [f"server {dead}"]
    assert "READ on topic *" in [each.what for each in checks]


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """Run a server that is no Kafka and yield its port; without an answer it sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        open_ones: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                open_ones.append(connection)
                if answer:
                    connection.recv(64)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(30)
            for each in open_ones:
                each.close()


@cases(b"HTTP/1.1 400 Bad Request\r\n\r\n", b"-ERR unknown command\r\n", b"\0\0\0\4abcd", b"")
def test_a_port_that_is_not_kafka_s_is_reported_in_bounded_time(answer: bytes) -> None:
    with answering(answer) as port:
        checks = run_doctor({"bootstrap.servers": f"127.0.0.1:{port}"}, timeout_s=1)
    assert checks[1].status is CheckStatus.OK
    failed = {each.what: each for each in checks if each.status is CheckStatus.FAIL}
    assert set(failed) == {"sign-in"}
    assert "security.protocol" in failed["sign-in"].remedies[0]
    assert "receive.message.max.bytes" not in str(checks)
    assert checks[-1].status is CheckStatus.SKIP


@cases(
    ({"sasl.password": "wrong"}, '"sasl.password"'),
    ({"sasl.username": "nobody-at-all"}, '"sasl.username"'),
    ({"security.protocol": "plaintext"}, '"security.protocol"'),
    ({"security.protocol": "sasl_ssl"}, "TLS failed"),
)
def test_a_sign_in_that_fails_names_the_key_and_no_secret(
    acl_broker: Broker, changed: dict[str, str], said: str
) -> None:
    checks = run_doctor({**signed_in(acl_broker, "blank"), **changed}, timeout_s=5)
    failed = {each.what: each.detail for each in checks if each.status is CheckStatus.FAIL}
    assert set(failed) == {"sign-in"}
    assert said in failed["sign-in"]
    assert "rightful" not in str(checks)
    assert "wrong" not in str(checks)


def test_every_property_that_kafka_python_lacks_is_named(kafka_42: Broker) -> None:
    lacking = {
        "ssl.providers": "default",
        "broker.address.family": "v4",
        "ssl.engine.location": "x",
    }
    checks = run_doctor({"bootstrap.servers": kafka_42.bootstrap, **lacking})
    failed = [each.detail for each in checks if each.status is CheckStatus.FAIL]
    assert [key for key in lacking if any(f'"{key}"' in each for each in failed)] == list(lacking)
    assert checks[-1].what == "the rest"


def test_an_unknown_property_is_refused() -> None:
    with answering(b"") as port:
        checks = run_doctor({"bootstrap.servers": f"127.0.0.1:{port}", "no.such.key": "1"}, timeout_s=1)
    failed = [each for each in checks if each.status is CheckStatus.FAIL]
    assert [each.what for each in failed] == ["configuration"]
    assert all("no.such.key" in each.detail for each in failed)


@contextmanager
def unused_port() -> Iterator[int]:
    """Keep a port without listening on it, so that no other process takes it."""
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]


def test_an_advertised_address_that_leads_nowhere_is_a_failure_of_that_broker(tmp_path: Path) -> None:
    with unused_port() as closed:
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{closed}"}
        broker = Broker(tmp_path / "kafka", properties=advertised)
        broker.start()
        try:

            def checks_of_doctor() -> list[DoctorCheck]:
                return run_doctor({"bootstrap.servers": broker.bootstrap}, timeout_s=2)

            checks = wait_for(
                lambda: (
                    (now := checks_of_doctor())
                    and any(each.what.startswith("broker 1") for each in now)
                    and now
                ),
                "the broker answers",
                seconds=120,
            )
        finally:
            broker.stop()
    found = next(each for each in checks if each.what == f"broker 1 at 127.0.0.1:{closed}")
    assert found.status is CheckStatus.FAIL
    assert "advertised.listeners" in found.remedies[0]


def test_a_check_without_an_answer_ends_at_its_deadline(kafka_42: Broker) -> None:
    properties = {"bootstrap.servers": kafka_42.bootstrap}
    checks = list(examine_cluster(properties, sees_all_ids=False, timeout_s=10, patience_s=0))
    assert (checks[-1].status, checks[-1].what) == (CheckStatus.FAIL, "the rest")
    assert len(checks) == 2


def doctor(*arguments: str) -> tuple[int, str]:
    """Run the command and return its exit status and what it printed."""
    out = StringIO()
    try:
        call_command("doctor", *arguments, stdout=out)
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue()
    return 0, out.getvalue()


@pytest.fixture
def redis(tmp_path: Path, settings: Settings) -> Iterator[None]:
    with RedisServer(tmp_path) as server:
        settings.REDIS_URL = server.url
        yield


def server_version() -> str:
    """Return the version that the program itself prints."""
    printed = subprocess.check_output([find_redis(), "--version"], text=True)
    return re.search(r"v=([\d.]+)", printed)[1]  # type: ignore[index]


def configure_clusters(settings: Settings, **servers: str) -> None:
    clusters = {name: ClusterConfig(name, {"bootstrap.servers": each}) for name, each in servers.items()}
    settings.FENCELINE = Config(clusters=clusters)


@pytest.mark.django_db
@pytest.mark.usefixtures("redis")
def test_the_command_prints_each_check_with_its_remedies_and_ends_with_its_status(
    settings: Settings, kafka_42: Broker
) -> None:
    configure_clusters(settings, good=kafka_42.bootstrap, bad=f"127.0.0.1:{free_port()}")
    status, text = doctor("good")
    lines = text.splitlines()
    assert status == 0
    assert lines[:5] == [
        "",
        "this Fenceline",
        "ok    database: answers",
        f"ok    redis: answers (valkey {server_version()})",
        "ok    migrations: all applied",
    ]
    assert "cluster good" in lines
    assert "ok    READ on topic __transaction_state: granted" in text
    # Internal topics that nobody has needed yet are skipped.
    assert " 0 warn, 0 FAIL, " in lines[-1]
    status, text = doctor("--timeout", "2")
    assert status == 1
    assert "cluster good" in text
    failing = next(number for number, line in enumerate(text.splitlines()) if line.startswith("FAIL  server"))
    assert text.splitlines()[failing + 1].startswith("        check ")
    status, text = doctor("--json", "good")
    document: dict[str, Any] = json.loads(text)
    assert (status, document["ok"]) == (0, True)
    assert {"subject", "status", "what", "detail", "remedies"} == set(document["checks"][0])
    status, text = doctor("--json", "bad")
    assert (status, json.loads(text)["ok"]) == (1, False)


@pytest.mark.django_db
def test_mistakes_on_the_command_line_are_one_line(settings: Settings) -> None:
    configure_clusters(settings, good="127.0.0.1:1")
    with pytest.raises(CommandError, match=r"No cluster 'goood' is configured .* known: good"):
        doctor("goood")
    for text in "0", "soon", "-1", "nan":
        with pytest.raises(CommandError, match="no number of seconds"):
            doctor(f"--timeout={text}")
    settings.REDIS_URL = f"redis://127.0.0.1:{free_port()}/0"
    configure_clusters(settings)
    status, text = doctor()
    assert status == 1
    assert "FAIL  configuration: no cluster is configured" in text
    assert "FAIL  redis: " in text


@pytest.mark.django_db
def test_checking_a_missing_database_does_not_create_it(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure_clusters(settings)
    path = tmp_path / "fenceline.db"
    if connections["default"].vendor != "sqlite":
        pytest.skip("PostgreSQL makes no database by looking")
    monkeypatch.setitem(connections["default"].settings_dict, "NAME", str(path))
    status, text = doctor()
    assert status == 1
    assert f"there is no {path} yet" in text
    assert not path.exists()
