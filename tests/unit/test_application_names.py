"""Proves by numbered cases which application an id has where `[[owners]]` name applications: that of a client
by the first pattern that fits its ids or their shape, that of an engine by the engine."""

from collections.abc import Iterator

import pytest

from fenceline.kafka.applications import NAMELESS, application_of, name_applications
from fenceline.owners import Owner, owner_of

PROCESS = "6a3f27c4-0d5e-4d0a-9a52-0f6a5d4f1c11"
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
@pytest.mark.parametrize(
    ("number", "name", "application", "why"),
    [
        (1, "svc-7", "Card payments", "the id itself, before a later pattern"),
        (2, "svc-8", "Ledger service", "a numbered client"),
        (3, "billing-3", "Ledger service", "the id fits a pattern before its application is tried"),
        (4, "billing3", "billing3", "no pattern"),
        (5, "billing", "Billing", "a plain id"),
        (6, "quiet-1", "quiet", "its first owner names no application"),
        (7, "copy-0-41", "Ledger service", "a shape alone makes no id Flink's"),
        (8, f"orders-{PROCESS}-1", "orders", "Kafka Streams: its group"),
        (9, "orders-0_1", "orders", "Kafka Streams, before version 2"),
        (10, "connect-cluster-cdc", "connect-cluster-cdc", "Kafka Connect's leader"),
        (11, "pay-0a1b2c3d-p0-g1-s0", "pay", "our sink: the prefix"),
        (12, "", NAMELESS, "an empty id"),
    ],
)
def test_an_owner_names_the_application_of_a_client_of_no_engine(
    number: int, name: str, application: str, why: str
) -> None:
    assert application_of(name).application == application, f"case {number}: {why}"


def test_without_names_the_shape_counts() -> None:
    name_applications((Owner("svc-*", "Pay"),))
    assert application_of("svc-7").application == "svc"


def test_an_application_has_the_owner_that_names_it() -> None:
    assert owner_of(["Ledger service"], OWNERS) == OWNERS[3]
    assert owner_of(["Other service"], OWNERS) is None
