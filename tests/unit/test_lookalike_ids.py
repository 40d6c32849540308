"""Proves with 60 ids of plain clients that look like an engine's that none is named as one by its shape
alone, and that none is refused a fence."""

import pytest

from fenceline.kafka.producer_identity import identify_producer
from fenceline.limits import Limits
from fenceline.plans.producers import plan_fence
from tests.unit.factories import NOW_MS, plan_producer

UUID = "149b939f-9d61-49c9-b661-3d8c4a8e3b01"
NAMES = (
    "orders",
    "billing-eu",
    "stock.sync",
    "app_7",
    "a",
    "payments-ledger",
    "wms-2",
    "x-y-z",
    "Ω",
    "svc:1",
)
#: Flink's two, Streams' two, Connect's and its leader's: each of ten names.
LOOKALIKES = [
    shape.format(name)
    for shape in ("{}-1-2", "{}-0-9223372036854775807", f"{{}}-{UUID}-3", "{}-1_0", "connect-{}-4", "{}-0")
    for name in NAMES
]


def test_there_are_sixty_of_them() -> None:
    assert len(set(LOOKALIKES)) == 60


@pytest.mark.parametrize("name", LOOKALIKES)
def test_a_lookalike_is_refused_nothing_and_named_as_no_engine_for_sure(name: str) -> None:
    identity = identify_producer(name, (), ())
    assert identity is None or identity.sign == ""
    producer = plan_producer(name)
    assert plan_fence(producer, now_ms=NOW_MS, limits=Limits()).refusals == ()
