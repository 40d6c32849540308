"""Proves that the API's detail of a transaction has the offsets that it added to groups."""

from __future__ import annotations

import pytest

from dashboard.api import schemas
from dashboard.models import Cluster
from fenceline.facts import TransactionState
from fenceline.kafka.added_offsets import unpack_offsets
from tests.api.client import Ask
from tests.web import factories

pytestmark = pytest.mark.django_db

ADDED = {"__consumer_offsets": [12, 30]}


@pytest.fixture
def prod() -> Cluster:
    return factories.cluster()


def test_the_detail_has_group_partition_offset_and_instant_of_each_record(ask: Ask, prod: Cluster) -> None:
    row = factories.transaction(prod, "a", age_ms=5_000, partitions={"__consumer_offsets": [12]})
    record = factories.added_offsets(row)
    (at_ms,) = {each.at_ms for each in unpack_offsets(record.offsets)}
    assert ask("transactions/prod/a")["offsets"] == {
        "observation": "complete",
        "read_at": schemas.format_iso(record.read_ms),
        "items": [
            {
                "group": "enrich",
                "topic": "payments",
                "partition": number,
                "offset": 100 + number,
                "at": schemas.format_iso(at_ms),
                "log_partition": 12,
                "log_offset": 40 + number,
            }
            for number in range(2)
        ],
        "missing": [],
    }


def test_what_was_not_read_is_named(ask: Ask, prod: Cluster) -> None:
    row = factories.transaction(prod, "a", age_ms=5_000, partitions=ADDED)
    factories.added_offsets(row)
    offsets = ask("transactions/prod/a")["offsets"]
    assert (offsets["observation"], len(offsets["items"])) == ("partial", 2)
    assert [each.split(":")[0] for each in offsets["missing"]] == ["__consumer_offsets-30"]


@pytest.mark.parametrize(
    ("state", "observation"),
    [(TransactionState.EMPTY, "complete"), (TransactionState.COMPLETE_ABORT, "none")],
)
def test_without_any_offset_the_observation_differs_from_an_empty_one(
    ask: Ask, prod: Cluster, state: TransactionState, observation: str
) -> None:
    factories.transaction(prod, "a", state, partitions={})
    offsets = ask("transactions/prod/a")["offsets"]
    assert (offsets["observation"], offsets["items"], offsets["read_at"]) == (observation, [], None)
    assert bool(offsets["missing"]) is (observation == "none")
