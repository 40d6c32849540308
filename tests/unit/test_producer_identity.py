"""Proves that ids are attributed to Kafka Streams and Connect by a second sign beside their shape, that plain
ids that look like theirs are not, and what topics of Streams are for."""

import pytest

from fenceline.kafka.producer_identity import (
    Engine,
    GroupClient,
    identify_producer,
    leader_ids,
    name_application,
    streams_topic,
)
from fenceline.owners import Owner

PROCESS = "149b939f-9d61-49c9-b661-3d8c4a8e3b01"
OTHER = "d3da5833-7d44-4d6b-997f-777fd79dbc63"
APPLICATIONS = ("orders", "orders-app", "a.b_c", "eu-1-orders", "x")
CONNECT_GROUPS = ("connect-prod", "prod", "cdc-eu-1", "connect")
CONNECTORS = ("files", "inventory-source", "debezium-mysql-1")


def client(application: str, process: str, thread: int, host: str = "/10.0.0.5") -> GroupClient:
    return GroupClient(f"{application}-{process}-StreamThread-{thread}-consumer", host)


@pytest.mark.parametrize("application", APPLICATIONS)
@pytest.mark.parametrize("thread", [1, 2, 12])
@pytest.mark.parametrize("process", [PROCESS, OTHER])
def test_a_streams_id_names_process_thread_and_machine(application: str, thread: int, process: str) -> None:
    others = [client(application, OTHER if process == PROCESS else PROCESS, thread, "/10.0.0.6")]
    members = [*others, client(application, process, thread)]
    found = identify_producer(f"{application}-{process}-{thread}", members, ())
    assert found is not None
    assert (found.engine, found.application, found.group) == (Engine.KAFKA_STREAMS, application, application)
    assert found.parts == (("process", process), ("thread", str(thread)))
    assert found.host == "10.0.0.5"
    assert f"StreamThread-{thread}-consumer" in found.sign


@pytest.mark.parametrize("application", APPLICATIONS)
def test_an_older_streams_id_names_its_task(application: str) -> None:
    found = identify_producer(f"{application}-0_3", [client(application, PROCESS, 1)], ())
    assert found is not None
    assert (found.application, found.parts, found.host) == (application, (("task", "0_3"),), "")
    assert found.sign
    alone = identify_producer(f"{application}-0_3", [], ())
    assert alone is not None
    assert alone.sign == ""


@pytest.mark.parametrize(
    "members",
    [
        [],
        [GroupClient("orders-consumer", "/10.0.0.5")],
        [client("orders", OTHER, 1)],
        [client("orders", PROCESS, 11)],
        [client("orders-archive", PROCESS, 1)],
    ],
)
def test_the_shape_of_streams_without_its_client_has_no_sign(members: list[GroupClient]) -> None:
    found = identify_producer(f"orders-{PROCESS}-1", members, ())
    assert found is not None
    assert (found.sign, found.host, found.group) == ("", "", "")


@pytest.mark.parametrize("group", CONNECT_GROUPS)
@pytest.mark.parametrize("connector", CONNECTORS)
@pytest.mark.parametrize("task", [0, 17])
def test_a_connect_task_is_known_by_its_group_s_leader(group: str, connector: str, task: int) -> None:
    transactional_id, leader = f"{group}-{connector}-{task}", f"connect-cluster-{group}"
    assert leader in leader_ids(transactional_id)
    found = identify_producer(transactional_id, (), {leader})
    assert found is not None
    assert (found.engine, found.application) == (Engine.KAFKA_CONNECT, group)
    assert found.parts == (("connector", connector), ("task", str(task)))


@pytest.mark.parametrize("group", CONNECT_GROUPS)
def test_the_leader_of_a_connect_group_is_named(group: str) -> None:
    found = identify_producer(f"connect-cluster-{group}", (), {f"connect-cluster-{group}"})
    assert found is not None
    assert found.parts == (("leader of", group),)


@pytest.mark.parametrize(
    "transactional_id",
    [
        *(f"{name}-{number}" for name in APPLICATIONS for number in (0, 7)),
        *(f"{name}-{a}-{b}" for name in APPLICATIONS for a in (0, 3) for b in (1, 42)),
        *(f"{group}-{connector}-7" for group in CONNECT_GROUPS for connector in CONNECTORS),
        "", "-", "--1", "-1", "1", "1-2-3", "connect-1", "a" * 300 + "-1", "orders-" * 200 + "1",
    ],
)  # fmt: skip
def test_a_plain_id_that_looks_like_an_engine_s_is_none_s(transactional_id: str) -> None:
    others = {"connect-cluster-other", "connect-cluster-"}
    assert identify_producer(transactional_id, [GroupClient("orders-producer", "/10.0.0.5")], others) is None


@pytest.mark.parametrize(
    ("topic", "use"),
    [
        ("orders-app-KSTREAM-AGGREGATE-STATE-STORE-0000000001-changelog", "changelog"),
        ("orders-app-counts-repartition", "repartition"),
        ("orders-app-totals", "sink"),
        ("orders-changelog", "sink"),
        ("other-counts-changelog", "sink"),
        ("__consumer_offsets", None),
    ],
)
def test_topics_of_an_application_are_told_apart(topic: str, use: str | None) -> None:
    assert streams_topic("orders-app", topic) == use


@pytest.mark.parametrize(
    ("number", "owner", "groups", "name", "why"),
    [
        (
            1,
            Owner("pay-*", "Pay", application="Payments"),
            ["billing"],
            "Payments",
            "an owner's pattern first",
        ),
        (2, Owner("pay-*", "Pay"), ["billing"], "billing", "the owner names a team alone"),
        (3, None, ["billing"], "billing", "the group that it commits for"),
        (4, None, ["billing", "audit"], None, "of two groups neither is it"),
        (5, None, [], None, "nothing was observed"),
    ],
)
def test_an_application_is_called_by_owner_then_by_group(
    number: int, owner: Owner | None, groups: list[str], name: str | None, why: str
) -> None:
    clients = [GroupClient(f"client-{each}", "/10.0.0.1") for each in range(5)]
    found = name_application(owner, groups, clients)
    assert (found.name if found else None) == name, f"case {number}: {why}"
    assert found is None or len(found.clients) == 3
