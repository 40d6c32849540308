"""Proves that transactional ids fall into the applications that made them, whatever text they are, or into
those that `[[owners]]` name; and that ids are attributed to Kafka Streams and Connect, whose own classes
build the shapes (named in the module), only by a second sign beside their shape."""

import random
import uuid
from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.decode.consumer_offsets import Member
from fenceline.decode.text import escape_bytes, unescape_text
from fenceline.kafka.applications import LONGEST, NAMELESS, Shape, application_of, name_applications
from fenceline.kafka.producer_identity import (
    Engine,
    identify_producer,
    leader_ids,
    name_application,
    streams_topic,
)
from fenceline.owners import Owner, owner_of
from tests.cases import cases

UUID = "1f0c3b7e-5a2d-4c6f-9b8a-0123456789ab"
#: One of 281 UUIDs ends in 12 decimal digits, which is no number behind a dash.
UUID_OF_DIGITS = "1f0c3b7e-5a2d-4c6f-9b8a-012345678901"
OPERATOR = "cbc357ccb763df2852fee8c4fc7d55f2"


@cases(
    ("enrich-0-1", "enrich", "0", "1", Shape.FLINK),
    ("enrich-orders-11-184467", "enrich-orders", "11", "184467", Shape.FLINK),
    (f"Sink: orders-{OPERATOR}-12", "Sink: orders", OPERATOR, "12", Shape.FLINK),
    (f"enrich-{UUID}-3-17", "enrich", "3", "17", Shape.FLINK),
    (f"clicks-{UUID}-3", "clicks", UUID, "3", Shape.STREAMS),
    (f"clicks-v2-{UUID_OF_DIGITS}-12", "clicks-v2", UUID_OF_DIGITS, "12", Shape.STREAMS),
    ("clicks-0_12", "clicks", "0", "12", Shape.STREAMS),
    ("connect-cluster-prod", "connect-cluster-prod", "leader", "", Shape.CONNECT),
    ("connect-prod-jdbc-orders-0", "connect-prod-jdbc-orders", "", "0", Shape.CONNECT),
    ("connect-prod-shard-2-0", "connect-prod-shard-2", "", "0", Shape.CONNECT),
    ("prod-jdbc-orders-0", "prod-jdbc-orders", "", "0", Shape.NUMBERED),
    ("orders-a1b2c3d4-p3-g2-b1-s17", "orders", "a1b2c3d4-p3", "g2-b1-s17", Shape.FENCELINE_SINK),
    ("orders-a1b2c3d4-p3-g1-s0", "orders", "a1b2c3d4-p3", "g1-s0", Shape.FENCELINE_SINK),
    ("orders-a1b2c3d4-lease", "orders", "a1b2c3d4", "lease", Shape.FENCELINE_SINK),
    ("orders-lease", "orders-lease", "", "", Shape.PLAIN),
    ("a-b-12345678-p0-g0-b0-s63", "a-b", "12345678-p0", "g0-b0-s63", Shape.FENCELINE_SINK),
    ("orders-gateway-17", "orders-gateway", "", "17", Shape.NUMBERED),
    ("tx-billing.orders.3", "tx-billing.orders", "", "3", Shape.NUMBERED),
    ("loader_7", "loader", "", "7", Shape.NUMBERED),
    ("loader-1700000000000", "loader", "", "1700000000000", Shape.NUMBERED),
    (f"loader-{UUID}", "loader", UUID, "", Shape.RANDOM),
    (f"loader-{UUID_OF_DIGITS}", "loader", UUID_OF_DIGITS, "", Shape.RANDOM),
    (f"{UUID}/loader", "loader", UUID, "", Shape.RANDOM),
    (f"loader-{UUID}-eu-west", "loader-eu-west", UUID, "", Shape.RANDOM),
    (f"loader_{UUID.replace('-', '')}", "loader", UUID.replace("-", ""), "", Shape.RANDOM),
    ("loader-7d9f8b6c-3", "loader", "7d9f8b6c", "3", Shape.RANDOM),
    ("loader-01ARZ3NDEKTSV4RRFFQ69G5FAV", "loader", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "", Shape.RANDOM),
    (UUID, NAMELESS, UUID, "", Shape.RANDOM),
    ("12", NAMELESS, "", "12", Shape.NUMBERED),
    ("eu/orders/5", "eu/orders", "", "5", Shape.NUMBERED),
    ("-12", NAMELESS, "", "12", Shape.NUMBERED),
    ("", NAMELESS, "", "", Shape.PLAIN),
    ("payments", "payments", "", "", Shape.PLAIN),
    ("orders-v2", "orders-v2", "", "", Shape.PLAIN),
    ("kafka2", "kafka2", "", "", Shape.PLAIN),
    ("facade-deadbeef", "facade-deadbeef", "", "", Shape.PLAIN),
    (r"tab\x09end-4", r"tab\x09end", "", "4", Shape.NUMBERED),
    (r"nul\x00", r"nul\x00", "", "", Shape.PLAIN),
    ("bestellungen-ü-✓-4", "bestellungen-ü-✓", "", "4", Shape.NUMBERED),
    ("Arabic digits-٣", "Arabic digits-٣", "", "", Shape.PLAIN),
)
def test_an_id_is_split_by_its_known_shape(
    transactional_id: str, application: str, member: str, slot: str, kind: Shape
) -> None:
    assert application_of(transactional_id) == (application, member, slot, kind)


@cases("{}", "job-{}", "job-{}-3", "job-{}-3-4", "{}-job", "job.{}.eu", "job-{}-0_3")
@pytest.mark.parametrize("made", ["uuid", "hex", "upper hex", "number"])
def test_thousands_of_random_ids_are_one_application(made: str, shape: str) -> None:
    dice = random.Random(f"{shape} {made}")
    words = {
        "uuid": lambda: str(uuid.UUID(int=dice.getrandbits(128))),
        "hex": lambda: f"{dice.getrandbits(64):016x}",
        "upper hex": lambda: f"{dice.getrandbits(128):032X}",
        "number": lambda: str(dice.randrange(10**12, 10**13)),
    }
    ids = {shape.format(words[made]()) for _ in range(500)}
    found = {application_of(each).application for each in ids}
    assert len(found) == 1


@given(st.text() | st.text(alphabet="\\x0123456789abcdefs-_.pgb", max_size=80))
def test_any_text_has_an_application(text: str) -> None:
    found = application_of(text)
    assert 0 < len(found.application) <= LONGEST
    assert found.application.isprintable()
    assert found == application_of(text)


@given(st.binary(max_size=400))
def test_an_applications_name_spells_bytes_as_ids_do(raw: bytes) -> None:
    """Nothing is taken out of, or cut in, the middle of an escape."""
    unescape_text(application_of(escape_bytes(raw)).application.replace("…", ""))


@cases(b"x", b"\\", b"\x00", "ü".encode(), b"0a", b"a1", b"-1", b"a-", b"a1-", b"0f0f0f0f-", b"_", b"-0_0")
@pytest.mark.parametrize(
    "end", [b"", b"z", b"\xff", b"-1", b"-1-2", b"-p0-g0-b0-s1", b"-0225f62c-p0-g1-s0", b"-0225f62c-lease"]
)
def test_an_id_of_32_kb_has_an_application(end: bytes, raw: bytes) -> None:
    long = (raw * 32_767)[: 32_767 - len(end)] + end
    found = application_of(escape_bytes(long))
    assert 0 < len(found.application) <= LONGEST
    unescape_text(found.application.replace("…", ""))


def test_long_names_are_cut_and_stay_distinct() -> None:
    one, two = (application_of("x" * 30_000 + end + "-7").application for end in ("a", "b"))
    assert one != two
    assert one.startswith("x" * 183 + "…")
    assert len(one) == LONGEST
    assert application_of("x" * LONGEST).application == "x" * LONGEST


OF_STREAMS = "6a3f27c4-0d5e-4d0a-9a52-0f6a5d4f1c11"
OWNERS = (
    Owner("svc-7", "Pay", application="Card payments"),
    Owner("billing", "Bill", application="Billing"),
    Owner("quiet-*", "Ops"),
    Owner("*-*", "Pay", application="Ledger service"),
)


@pytest.fixture
def _named() -> Iterator[None]:
    name_applications(OWNERS)
    yield
    name_applications(())


@pytest.mark.usefixtures("_named")
@cases(
    ("svc-7", "Card payments", "the id itself, before a later pattern"),
    ("svc-8", "Ledger service", "a numbered client"),
    ("billing-3", "Ledger service", "the id fits a pattern before its application is tried"),
    ("billing3", "billing3", "no pattern"),
    ("billing", "Billing", "a plain id"),
    ("quiet-1", "quiet", "its first owner names no application"),
    ("copy-0-41", "Ledger service", "a shape alone makes no id Flink's"),
    (f"orders-{OF_STREAMS}-1", "orders", "Kafka Streams: its group"),
    ("orders-0_1", "orders", "Kafka Streams, before version 2"),
    ("connect-cluster-cdc", "connect-cluster-cdc", "Kafka Connect's leader"),
    ("pay-0a1b2c3d-p0-g1-s0", "pay", "our sink: the prefix"),
    ("", NAMELESS, "an empty id"),
)
def test_an_owner_names_the_application_of_a_client_of_no_engine(
    name: str, application: str, why: str
) -> None:
    assert application_of(name).application == application, why


def test_without_names_the_shape_counts_and_an_application_has_the_owner_that_names_it() -> None:
    name_applications((Owner("svc-*", "Pay"),))
    assert application_of("svc-7").application == "svc"
    assert owner_of(["Ledger service"], OWNERS) == OWNERS[3]
    assert owner_of(["Other service"], OWNERS) is None


PROCESS = "149b939f-9d61-49c9-b661-3d8c4a8e3b01"
OTHER = "d3da5833-7d44-4d6b-997f-777fd79dbc63"
APPLICATIONS = ("orders", "orders-app", "a.b_c", "eu-1-orders", "x")
CONNECT_GROUPS = ("connect-prod", "prod", "cdc-eu-1", "connect")
CONNECTORS = ("files", "inventory-source", "debezium-mysql-1")


def client(application: str, process: str, thread: int, host: str = "/10.0.0.5") -> Member:
    return Member(f"{application}-{process}-StreamThread-{thread}-consumer", host)


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
    name = f"{application}-0_3"
    found = identify_producer(name, [client(application, PROCESS, 1)], ())
    assert found is not None
    assert (found.application, found.parts, found.host) == (application, (("task", "0_3"),), "")
    alone = identify_producer(name, [], ())
    assert alone is not None
    assert (bool(found.sign), alone.sign) == (True, "")


@cases(
    [],
    [Member("orders-consumer", "/10.0.0.5")],
    [client("orders", OTHER, 1)],
    [client("orders", PROCESS, 11)],
    [client("orders-archive", PROCESS, 1)],
)
def test_the_shape_of_streams_without_its_client_has_no_sign(members: list[Member]) -> None:
    found = identify_producer(f"orders-{PROCESS}-1", members, ())
    assert found is not None
    assert (found.sign, found.host, found.group) == ("", "", "")


@pytest.mark.parametrize("group", CONNECT_GROUPS)
def test_a_connect_task_is_known_by_its_group_s_leader_which_is_named(group: str) -> None:
    leader = f"connect-cluster-{group}"
    found = identify_producer(leader, (), {leader})
    assert found is not None
    assert found.parts == (("leader of", group),)
    for connector, task in product(CONNECTORS, (0, 17)):
        transactional_id = f"{group}-{connector}-{task}"
        assert leader in leader_ids(transactional_id)
        found = identify_producer(transactional_id, (), {leader})
        assert found is not None
        assert (found.engine, found.application) == (Engine.KAFKA_CONNECT, group)
        assert found.parts == (("connector", connector), ("task", str(task)))


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
    assert identify_producer(transactional_id, [Member("orders-producer", "/10.0.0.5")], others) is None


@cases(
    ("orders-app-KSTREAM-AGGREGATE-STATE-STORE-0000000001-changelog", "changelog"),
    ("orders-app-counts-repartition", "repartition"),
    ("orders-app-totals", "sink"),
    ("orders-changelog", "sink"),
    ("other-counts-changelog", "sink"),
    ("__consumer_offsets", None),
)
def test_topics_of_an_application_are_told_apart(topic: str, use: str | None) -> None:
    assert streams_topic("orders-app", topic) == use


@cases(
    (Owner("pay-*", "Pay", application="Payments"), ["billing"], "Payments", "an owner's pattern first"),
    (Owner("pay-*", "Pay"), ["billing"], "billing", "the owner names a team alone"),
    (None, ["billing"], "billing", "the group that it commits for"),
    (None, ["billing", "audit"], None, "of two groups neither is it"),
    (None, [], None, "nothing was observed"),
)
def test_an_application_is_called_by_owner_then_by_group(
    owner: Owner | None, groups: list[str], name: str | None, why: str
) -> None:
    clients = [Member(f"client-{each}", "/10.0.0.1") for each in range(5)]
    found = name_application(owner, groups, clients)
    assert (found.name if found else None) == name, why
    assert found is None or len(found.clients) == 3
