"""Proves that the doctor tries every right on a real broker and names exactly the kafka-acls line that grants
a missing one, that it writes and creates nothing, and that no mistake of a user ends in a traceback."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)
from django.core.management import CommandError, call_command
from django.db import connections
from pytest_django import Settings

from collectors.addresses import parse
from collectors.doctor import Check, Status, examine
from dashboard.config import ClusterConfig, Config
from fenceline.rights import TO_LOOK
from sandbox.cluster import Cluster
from sandbox.kafka import Broker, Sasl
from sandbox.ports import free_port
from tests.brokers import PROPERTIES, create_topics, kafka_three
from tests.faults.test_redis_gone import Redis
from tests.kafka.idle import initialise
from tests.kafka.test_transaction_admin import signed_in
from tests.waiting import wait_for

__all__ = ["kafka_three"]

pytestmark = pytest.mark.kafka

#: What grants each right, after `kafka-acls --add --allow-principal User:…`, in the order of the trials.
LINES = {
    "DESCRIBE on topic __transaction_state": "--operation DESCRIBE --topic __transaction_state",
    "READ on topic __transaction_state": "--operation READ --topic __transaction_state",
    "DESCRIBE on topic __consumer_offsets": "--operation DESCRIBE --topic __consumer_offsets",
    "READ on topic __consumer_offsets": "--operation READ --topic __consumer_offsets",
    "DESCRIBE on transactional-id *": "--operation DESCRIBE --transactional-id '*'",
    "DESCRIBE on group *": "--operation DESCRIBE --group '*'",
    "DESCRIBE on topic *": "--operation DESCRIBE --topic '*'",
    "READ on topic *": "--operation READ --topic '*'",
    "DESCRIBE on cluster": "--operation DESCRIBE --cluster",
    "DESCRIBE_CONFIGS on cluster": "--operation DescribeConfigs --cluster",
}
#: Without these a part of a page goes dark, and no whole one.
SOFT = ("DESCRIBE on cluster", "DESCRIBE_CONFIGS on cluster")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that lets ACLs decide, makes any topic that is asked for carelessly, and verifies nothing."""
    users = ("stepwise", "narrow", "whole", "denied", "blank")
    settings = {
        **PROPERTIES,
        "auto.create.topics.enable": "true",
        "transaction.partition.verification.enable": "false",
    }
    folder = tmp_path_factory.mktemp("kafka-watched")
    sasl = Sasl(dict.fromkeys(users, "rightful"))
    with Broker(folder, properties=settings, sasl=sasl, authorizer=True) as broker:
        yield broker


def look_over(properties: Mapping[str, str], *, sees_all: bool = False, timeout_s: float = 10) -> list[Check]:
    return list(examine(properties, sees_all_ids=sees_all, timeout_s=timeout_s, patience_s=300))


def as_user(broker: Broker, user: str, *, sees_all: bool = False) -> dict[str, Check]:
    """Return the checks of the cluster as this user sees it, by what was looked at."""
    return {check.what: check for check in look_over(signed_in(broker, user), sees_all=sees_all)}


def until(broker: Broker, user: str, what: str, status: Status) -> dict[str, Check]:
    """Wait until a check ends like this, as ACLs take a moment to reach a broker, and return all of them."""
    return wait_for(
        lambda: now if (now := as_user(broker, user))[what].status is status else None, f"{what} is {status}"
    )


def topics(broker: Broker) -> set[str]:
    return set(AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10).topics)


def run_as_printed(broker: Broker, line: str) -> None:
    """Run a line of the doctor with Kafka's own tool, where a super user listens."""
    program, *arguments = shlex.split(line)
    assert program == "kafka-acls"
    assert arguments[-2:] == ["--bootstrap-server", broker.sasl_bootstrap]
    command = broker.tool(
        "org.apache.kafka.tools.AclCommand", *arguments[:-2], "--bootstrap-server", broker.bootstrap
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def set_acl(
    broker: Broker,
    user: str,
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    permission: AclPermissionType = AclPermissionType.ALLOW,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> None:
    binding = AclBinding(kind, name, pattern, f"User:{user}", "*", operation, permission)
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    client.create_acls([binding])[binding].result(30)


def grant_all(broker: Broker, user: str) -> None:
    for kind, name, operation in (
        (ResourceType.TOPIC, "*", AclOperation.READ),
        (ResourceType.TRANSACTIONAL_ID, "*", AclOperation.DESCRIBE),
        (ResourceType.GROUP, "*", AclOperation.DESCRIBE),
        (ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE),
        (ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE_CONFIGS),
    ):
        set_acl(broker, user, kind, name, operation)
    wait_for(
        lambda: all(as_user(broker, user)[what].status in ("ok", "warn") for what in LINES),
        "every right is there",
    )


def test_each_missing_right_is_named_with_the_line_that_grants_it_and_nothing_else_is_granted(
    watched: Broker,
) -> None:
    """One right after the other, each by its own printed line; the next one is still refused by then."""
    assert [str(right) for right in TO_LOOK] == list(LINES)
    granted: list[str] = []
    there = topics(watched)
    for what, arguments in LINES.items():
        before = as_user(watched, "stepwise")
        missing = before[what]
        assert missing.status == (Status.WARN if what in SOFT else Status.FAIL), missing
        line = f"kafka-acls --add --allow-principal User:stepwise {arguments}"
        assert missing.remedies == (f"{line} --bootstrap-server {watched.sasl_bootstrap}",)
        assert [each for each in LINES if not before[each].detail.startswith("missing")] == granted
        run_as_printed(watched, missing.remedies[0])
        granted.append(what)
        wait_for(
            lambda: as_user(watched, "stepwise")[granted[-1]].detail.startswith("granted"), f"{what} is there"
        )
    after = as_user(watched, "stepwise")
    assert {after[what].status for what in LINES} == {Status.OK}
    assert topics(watched) == there


def test_rights_to_act_are_told_by_the_broker_and_never_tried(watched: Broker) -> None:
    markers, ending = "act: ALTER on cluster (or CLUSTER_ACTION)", "act: WRITE on transactional-id *"
    blank = as_user(watched, "blank")
    for what in markers, ending:
        assert blank[what].status == Status.SKIP
        assert "a trial would act" in blank[what].detail
    grant_all(watched, "whole")
    whole = as_user(watched, "whole")
    assert whole[markers].detail.startswith("missing, by the broker's own word")
    for line in (*whole[markers].remedies, *whole[ending].remedies):
        run_as_printed(watched, line)
    wait_for(lambda: as_user(watched, "whole")[markers].status is Status.OK, "the broker tells of ALTER")
    assert as_user(watched, "whole")[ending].status is Status.SKIP


def test_narrow_grants_are_a_warning_that_says_what_they_show(watched: Broker) -> None:
    create_topics(watched.bootstrap, "narrow-a", "narrow-b", "wide")
    initialise(watched.bootstrap, ["narrow-id", "wide-id"])
    for name, operation in (("narrow-", AclOperation.DESCRIBE), ("narrow-a", AclOperation.READ)):
        prefixed = ResourcePatternType.PREFIXED
        set_acl(watched, "narrow", ResourceType.TOPIC, name, operation, pattern=prefixed)
    set_acl(watched, "narrow", ResourceType.TRANSACTIONAL_ID, "narrow-id", AclOperation.DESCRIBE)
    found = wait_for(
        lambda: (
            (now := as_user(watched, "narrow"))["DESCRIBE on transactional-id *"].status == "warn" and now
        ),
        "the grants are there",
    )
    assert "1 transactional id can be seen" in found["DESCRIBE on transactional-id *"].detail
    seen = found["DESCRIBE on topic *"]
    assert (seen.status, "2 topics can be seen" in seen.detail) == (Status.WARN, True)
    read = found["READ on topic *"]
    assert read.status is Status.WARN
    assert "Granted on 1 topic by name, not of narrow-b" in read.detail
    assert found["DESCRIBE on group *"].status is Status.FAIL
    vouched = as_user(watched, "narrow", sees_all=True)["DESCRIBE on transactional-id *"]
    assert "make sure" in vouched.detail


def test_what_an_acl_denies_is_named_although_all_is_granted(watched: Broker) -> None:
    create_topics(watched.bootstrap, "orders", "salaries")
    grant_all(watched, "denied")
    granted = as_user(watched, "denied")
    assert granted["DESCRIBE on transactional-id *"].detail == "granted, and no ACL hides an id"
    deny = AclPermissionType.DENY
    set_acl(watched, "denied", ResourceType.TOPIC, "salaries", AclOperation.READ, deny)
    set_acl(watched, "denied", ResourceType.TRANSACTIONAL_ID, "secret-", AclOperation.ALL, deny)
    # Another principal's is none of our business.
    set_acl(watched, "blank", ResourceType.TRANSACTIONAL_ID, "other", AclOperation.DESCRIBE, deny)
    found = until(watched, "denied", "READ on topic *", Status.FAIL)
    assert "salaries" in found["READ on topic *"].detail
    assert "orders" not in found["READ on topic *"].detail
    hidden = found["DESCRIBE on transactional-id *"]
    assert hidden.status is Status.WARN
    assert "ACLs hide secret-:" in hidden.detail
    for line in (*found["READ on topic *"].remedies, *hidden.remedies):
        run_as_printed(watched, line)


def test_that_no_id_is_hidden_is_vouched_for_where_acls_may_not_be_read(watched: Broker) -> None:
    set_acl(watched, "blank", ResourceType.TRANSACTIONAL_ID, "*", AclOperation.DESCRIBE)
    what = "DESCRIBE on transactional-id *"
    doubtful = until(watched, "blank", what, Status.WARN)[what]
    assert "cannot be proved" in doubtful.detail
    assert "--operation DESCRIBE --cluster" in doubtful.remedies[0]
    assert as_user(watched, "blank", sees_all=True)[what].status is Status.OK


def test_a_broker_that_verifies_nothing_is_a_warning(watched: Broker) -> None:
    (check,) = [each for each in look_over({"bootstrap.servers": watched.bootstrap}) if each.status == "warn"]
    assert "transaction.partition.verification.enable is off at broker 1" in check.detail
    assert check.remedies[0].startswith("kafka-configs --alter")


def test_a_healthy_cluster_has_nothing_to_remedy(kafka: Broker) -> None:
    checks = look_over({"bootstrap.servers": kafka.bootstrap})
    assert [each for each in checks if each.status in (Status.WARN, Status.FAIL)] == []
    by_what = {each.what: each.detail for each in checks}
    release = (
        "Kafka 3.9, transaction.version 0" if kafka.version == "3.9.1" else "Kafka 4.2, transaction.version 2"
    )
    assert release in by_what["versions"]
    assert "the active controller's is" in by_what["clock"]
    details = [each.detail for each in checks if each.what == "settings"]
    assert details == [
        "transaction.max.timeout.ms is 15 m",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms is 500 ms",
    ]


def test_looking_an_empty_cluster_over_creates_nothing(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka", properties={"auto.create.topics.enable": "true"}) as broker:
        found = {each.what: each for each in look_over({"bootstrap.servers": broker.bootstrap})}
        assert topics(broker) == set()
    for name in "__transaction_state", "__consumer_offsets":
        check = found[f"READ on topic {name}"]
        assert (check.status, "does not exist yet" in check.detail) == (Status.OK, True)


def test_every_broker_is_reached_and_one_that_differs_is_named(kafka_three: Cluster) -> None:
    name = "transaction.partition.verification.enable"
    admin = AdminClient({"bootstrap.servers": kafka_three.bootstrap})

    def set_at_two(operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, "false", incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type.BROKER, "2", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)

    def warned() -> list[str]:
        checks = look_over({"bootstrap.servers": kafka_three.bootstrap})
        reached = [each for each in checks if each.what.startswith("broker ") and each.status is Status.OK]
        assert [each.what.split()[1] for each in reached] == ["1", "2", "3"]
        return [each.detail for each in checks if each.status is Status.WARN]

    assert warned() == []
    set_at_two(AlterConfigOpType.SET)
    try:
        (detail,) = wait_for(warned, "broker 2 has taken it up")
        assert f"{name} is off at broker 2," in detail
    finally:
        set_at_two(AlterConfigOpType.DELETE)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("kafka-1.example:9093", ("kafka-1.example", 9093)),
        ("kafka-1.example", ("kafka-1.example", 9092)),
        ("SASL_SSL://kafka-1.example:9093", ("kafka-1.example", 9093)),
        ("[::1]:9093", ("::1", 9093)),
        ("kafka-1.example/path", None),
        ("kafka 1:9092", None),
        (":9092", None),
    ],
)
def test_addresses_are_taken_as_librdkafka_takes_them(text: str, address: tuple[str, int] | None) -> None:
    assert parse(text) == address


def failure(checks: list[Check]) -> Check:
    """Return the one failure; nothing that needs what failed was tried after it."""
    (found,) = [each for each in checks if each.status is Status.FAIL]
    assert checks[-1].what == "the rest"
    return found


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("no-such-host.invalid:9092", "does not resolve"),
        ("127.0.0.1:{closed}", "no connection to 127.0.0.1"),
        ("127.0.0.1:kafka", "no address"),
        ("[::1:9092", "no address"),
        ("127.0.0.1:99999", "no address"),
        ("a..b:9092", "does not resolve"),
    ],
)
def test_an_address_that_leads_nowhere_is_named(server: str, said: str) -> None:
    server = server.format(closed=free_port())
    found = failure(look_over({"bootstrap.servers": server}))
    assert found.what == f"server {server}"
    assert said in found.detail
    assert '"bootstrap.servers"' in found.remedies[0]


def test_one_server_of_two_is_enough_and_the_other_is_named(kafka_42: Broker) -> None:
    dead = f"127.0.0.1:{free_port()}"
    checks = look_over({"bootstrap.servers": f"{dead}, PLAINTEXT://{kafka_42.bootstrap}"})
    assert [each.what for each in checks if each.status is Status.FAIL] == [f"server {dead}"]
    assert "READ on topic *" in [each.what for each in checks]


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """Run a server that is no Kafka and yield its port; without an answer it is silent."""
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


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"-ERR unknown command\r\n", b"\0\0\0\4abcd", b""]
)
def test_a_port_that_is_not_kafka_s_is_told_in_bounded_time(answer: bytes) -> None:
    with answering(answer) as port:
        checks = look_over({"bootstrap.servers": f"127.0.0.1:{port}"}, timeout_s=1)
    assert checks[1].status is Status.OK
    failed = {each.what: each for each in checks if each.status is Status.FAIL}
    assert set(failed) == {"sign-in by librdkafka", "sign-in by kafka-python"}
    assert all("security.protocol" in each.remedies[0] for each in failed.values())
    assert ("speaks no Kafka" in failed["sign-in by librdkafka"].detail) == answer.startswith(
        (b"HTTP", b"-ERR")
    )
    assert "receive.message.max.bytes" not in str(checks)
    assert checks[-1].status is Status.SKIP


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sasl.password": "wrong"}, '"sasl.password"'),
        ({"sasl.username": "nobody-at-all"}, '"sasl.username"'),
        ({"security.protocol": "plaintext"}, '"security.protocol"'),
        ({"security.protocol": "sasl_ssl"}, "TLS failed"),
    ],
)
def test_a_sign_in_that_fails_names_the_key_and_no_secret(
    watched: Broker, changed: dict[str, str], said: str
) -> None:
    checks = look_over({**signed_in(watched, "blank"), **changed}, timeout_s=5)
    failed = {each.what: each.detail for each in checks if each.status is Status.FAIL}
    assert set(failed) == {"sign-in by librdkafka", "sign-in by kafka-python"}
    assert said in failed["sign-in by kafka-python"]
    assert "rightful" not in str(checks)
    assert "wrong" not in str(checks)


def test_every_property_that_kafka_python_lacks_is_named_and_the_rest_is_tried(kafka_42: Broker) -> None:
    lacking = {
        "sasl.kerberos.keytab": "/etc/keytab",
        "broker.address.family": "v4",
        "ssl.engine.location": "x",
    }
    checks = look_over({"bootstrap.servers": kafka_42.bootstrap, **lacking})
    failed = [each.detail for each in checks if each.status is Status.FAIL]
    assert [key for key in lacking if any(f'"{key}"' in each for each in failed)] == list(lacking)
    signed = next(each for each in checks if each.what == "sign-in by librdkafka")
    assert signed.status is Status.OK
    assert checks[-1].what == "the rest"


def test_a_property_that_nobody_knows_is_refused_by_both() -> None:
    with answering(b"") as port:
        checks = look_over({"bootstrap.servers": f"127.0.0.1:{port}", "no.such.key": "1"}, timeout_s=1)
    failed = [each for each in checks if each.status is Status.FAIL]
    assert [each.what for each in failed] == ["configuration", "sign-in by librdkafka"]
    assert all("no.such.key" in each.detail for each in failed)


def test_an_advertised_address_that_leads_nowhere_is_a_failure_of_that_broker(tmp_path: Path) -> None:
    closed = free_port()
    port = free_port()
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{closed}"}
    broker = Broker(tmp_path / "kafka", port=port, properties=advertised)
    broker.start()
    try:

        def asked() -> list[Check]:
            return look_over({"bootstrap.servers": broker.bootstrap}, timeout_s=2)

        checks = wait_for(
            lambda: (now := asked()) and any(each.what.startswith("broker 1") for each in now) and now,
            "the broker answers",
            seconds=120,
        )
    finally:
        broker.stop()
    found = next(each for each in checks if each.what == f"broker 1 at 127.0.0.1:{closed}")
    assert found.status is Status.FAIL
    assert "advertised.listeners" in found.remedies[0]


def test_patience_ends(kafka_42: Broker) -> None:
    properties = {"bootstrap.servers": kafka_42.bootstrap}
    checks = list(examine(properties, sees_all_ids=False, timeout_s=10, patience_s=0))
    assert (checks[-1].status, checks[-1].what) == (Status.FAIL, "the rest")
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
    server = Redis(tmp_path / "redis")
    server.start()
    settings.REDIS_URL = f"redis://127.0.0.1:{server.port}/0"
    yield
    server.stop()


def configured(settings: Settings, **servers: str) -> None:
    clusters = {name: ClusterConfig(name, {"bootstrap.servers": each}) for name, each in servers.items()}
    settings.FENCELINE = Config(clusters=clusters)


@pytest.mark.django_db
@pytest.mark.usefixtures("redis")
def test_the_command_prints_each_check_with_its_remedies_and_ends_with_its_status(
    settings: Settings, kafka_42: Broker
) -> None:
    configured(settings, good=kafka_42.bootstrap, bad=f"127.0.0.1:{free_port()}")
    status, text = doctor("good")
    lines = text.splitlines()
    assert status == 0
    assert lines[:5] == [
        "",
        "this Fenceline",
        "ok    database: answers",
        "ok    redis: answers",
        "ok    migrations: all applied",
    ]
    assert "cluster good" in lines
    assert "ok    READ on topic __transaction_state: granted" in text
    assert lines[-1].endswith("0 warn, 0 FAIL, 1 skip")

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
    configured(settings, good="127.0.0.1:1")
    with pytest.raises(CommandError, match=r"No cluster 'goood' is configured .* known: good"):
        doctor("goood")
    for text in "0", "soon", "-1", "nan":
        with pytest.raises(CommandError, match="no number of seconds"):
            doctor(f"--timeout={text}")
    settings.REDIS_URL = f"redis://127.0.0.1:{free_port()}/0"
    configured(settings)
    status, text = doctor()
    assert status == 1
    assert "FAIL  configuration: no cluster is configured" in text
    assert "FAIL  redis: " in text


@pytest.mark.django_db
def test_a_database_that_is_not_there_is_not_made_by_looking(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(settings)
    path = tmp_path / "fenceline.db"
    if connections["default"].vendor != "sqlite":
        pytest.skip("PostgreSQL makes no database by looking")
    monkeypatch.setitem(connections["default"].settings_dict, "NAME", str(path))
    status, text = doctor()
    assert status == 1
    assert f"there is no {path} yet" in text
    assert not path.exists()
