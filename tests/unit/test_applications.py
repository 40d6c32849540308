"""Proves that transactional ids fall into the applications that made them, whatever text they are.

The shapes are those that Flink's, Kafka Streams' and Connect's own classes build (named in the module).
"""

import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.decode.text import escape_bytes, unescape_text
from fenceline.kafka.applications import LONGEST, NAMELESS, Shape, application_of

UUID = "1f0c3b7e-5a2d-4c6f-9b8a-0123456789ab"
#: One of 281 UUIDs ends in 12 decimal digits, which is no number behind a dash.
UUID_OF_DIGITS = "1f0c3b7e-5a2d-4c6f-9b8a-012345678901"
OPERATOR = "cbc357ccb763df2852fee8c4fc7d55f2"


@pytest.mark.parametrize(
    ("transactional_id", "application", "member", "slot", "kind"),
    [
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
    ],
)
def test_an_id_is_split_by_its_known_shape(
    transactional_id: str, application: str, member: str, slot: str, kind: Shape
) -> None:
    assert application_of(transactional_id) == (application, member, slot, kind)


@pytest.mark.parametrize(
    "shape", ["{}", "job-{}", "job-{}-3", "job-{}-3-4", "{}-job", "job.{}.eu", "job-{}-0_3"]
)
@pytest.mark.parametrize("made", ["uuid", "hex", "upper hex", "number"])
def test_thousands_of_random_ids_are_one_application(shape: str, made: str) -> None:
    dice = random.Random(f"{shape} {made}")
    words = {
        "uuid": lambda: str(uuid.UUID(int=dice.getrandbits(128))),
        "hex": lambda: f"{dice.getrandbits(64):016x}",
        "upper hex": lambda: f"{dice.getrandbits(128):032X}",
        "number": lambda: str(dice.randrange(10**12, 10**13)),
    }
    ids = {shape.format(words[made]()) for _ in range(5_000)}
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


@pytest.mark.parametrize(
    "raw",
    [b"x", b"\\", b"\x00", "ü".encode(), b"0a", b"a1", b"-1", b"a-", b"a1-", b"0f0f0f0f-", b"_", b"-0_0"],
)
@pytest.mark.parametrize(
    "end", [b"", b"z", b"\xff", b"-1", b"-1-2", b"-p0-g0-b0-s1", b"-0225f62c-p0-g1-s0", b"-0225f62c-lease"]
)
def test_an_id_of_32_kb_has_an_application(raw: bytes, end: bytes) -> None:
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
