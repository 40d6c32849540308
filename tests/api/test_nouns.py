"""Proves the API of partitions, groups, recoveries, findings and clusters, and who waits for an id."""

from typing import Any
from urllib.parse import quote

import pytest
from django.utils.timezone import now

from dashboard.api import schemas
from dashboard.models import Cluster, PartitionRecord
from fenceline.decode import text
from fenceline.kafka.added_offsets import unpack_offsets
from tests.api.client import Ask, all_items
from tests.web import factories

pytestmark = pytest.mark.django_db


def test_a_partition_is_told_with_what_holds_it(ask: Ask, prod: Cluster) -> None:
    pin = factories.lso_blocker(
        prod, "payments", 3, "hanging", ground="not_its_partition", last_timestamp_ms=2**62
    )
    factories.blocked_offset(factories.group(prod, "billing"), pin)
    factories.replica(prod, "payments", 3, 1, [factories.replica_producer(4017, 48_211, "payments-7")])
    told = ask("partitions/prod/payments/3")
    assert (told["verdict"], told["lso"], told["high_watermark"], told["held"]) == (
        "hanging",
        48_211,
        49_981,
        1_770,
    )
    (opened,) = told["transactions"]
    assert (opened["transactional_id"], opened["start_offset"], opened["ground"]) == (
        "payments-7",
        48_211,
        "not_its_partition",
    )
    assert opened["last_record_at"] is None  # No instant: the producer wrote that number.
    (reader,) = told["readers"]
    assert (reader["group"], reader["waiting"], reader["commit_pending"]) == ("billing", "probably", False)
    assert told["looks"][0]["producers"][0]["start_offset"] == 48_211
    assert len(told["ends"]) == 25
    assert ask("partitions?verdict=hanging")["items"][0]["transactions"] == told["transactions"]


@pytest.mark.sql
@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["a-0", "a-1", "b-0"]),
        ("internal=true", ["__consumer_offsets-17", "a-0", "a-1", "b-0"]),
        ("verdict=pinned", ["b-0"]),
        ("verdict=clear", ["a-0", "a-1"]),
        ("topic=a", ["a-0", "a-1"]),
        ("q=a-1", ["a-1"]),
    ],
)
def test_partitions_are_filtered_and_walked_through(
    ask: Ask, prod: Cluster, query: str, names: list[str]
) -> None:
    for topic, number in (("a", 1), ("a", 0), ("__consumer_offsets", 17)):
        factories.partition(prod, topic, number)
    factories.lso_blocker(prod, "b")
    found = ask(f"partitions?{query}")["items"]
    assert [f"{row['topic']}-{row['partition']}" for row in found] == names


def test_partitions_of_several_clusters_are_walked_through_once(ask: Ask, prod: Cluster) -> None:
    for of in (prod, factories.cluster("other"), factories.cluster("a")):
        for number in range(3):
            factories.partition(of, "same", number)
    found = all_items(ask, "partitions?limit=2")
    names = [(each["cluster"], each["partition"]) for each in found]
    assert names == [(name, number) for name in ("a", "other", "prod") for number in range(3)]


def test_what_is_not_known_is_null_and_not_0(ask: Ask, prod: Cluster) -> None:
    factories.partition(prod)
    PartitionRecord.objects.update(log_start=None, lso=None, high_watermark=None, ends="", leader=None)
    told = ask("partitions/prod/payments/0")
    assert [told[name] for name in ("log_start", "lso", "high_watermark", "held", "leader")] == [None] * 5


def test_a_group_is_told_with_what_it_waits_for(ask: Ask, prod: Cluster) -> None:
    group = factories.group(prod, "billing", "BLOCKED", blocked=1)
    factories.blocked_offset(group, factories.lso_blocker(prod, "payments"))
    pending = {"transactional_id": "app-1", "producer_id": None, "pending": True, "certain": False}
    factories.group_offset(group, "input", unstable=True, offset=None, blockers=[pending])
    told = ask("groups/prod/billing")
    assert (told["status"], told["blocked"], told["family"]) == ("BLOCKED", 1, "billing")
    waits, commits = told["offsets"]
    assert (waits["lag_lso"], waits["lag_hw"], waits["waiting"]) == (0, 1_770, "probably")
    assert waits["blockers"][0]["transactional_id"] == "payments-7"
    assert (commits["offset"], commits["lag_hw"], commits["commit_pending"]) == (None, None, True)
    assert commits["blockers"] == [
        {
            "transactional_id": "app-1",
            "producer_id": None,
            "producer_epoch": None,
            "start_offset": None,
            "pending": True,
            "certain": False,
        }
    ]
    assert len(told["trend"]) == 21


@pytest.mark.sql
@pytest.mark.parametrize("raw", [*factories.HOSTILE_IDS, b"c" * 1_000, b"\x7f\x80"])
def test_any_group_is_found_by_its_text(ask: Ask, prod: Cluster, raw: bytes) -> None:
    factories.group(prod, raw)
    told = ask(f"groups/prod/{quote(text.escape_bytes(raw), safe='')}")
    assert text.unescape_text(told["group"]) == raw


def test_a_recovery_is_told_with_what_was_lost(ask: Ask, prod: Cluster) -> None:
    row = factories.recovery(prod)
    told = ask(f"recoveries/prod/{row.pk}")
    assert (told["cause"], told["confidence"], told["outcome"]) == ("timeout", "probable", "resumed")
    first, bounds, nothing = told["lost"]
    assert (first["first_offset"], first["last_offset"], first["records"]) == (48_211, 48_273, 63)
    assert (bounds["records"], bounds["sure"]) == (None, False)
    assert (nothing["first_offset"], nothing["last_offset"]) == (None, None)
    assert told["waited"][0]["group"] == "billing"
    assert ask("recoveries?transactional_id=payments-7")["items"] == [told]
    assert ask("recoveries?transactional_id=payments-8")["items"] == []


def test_findings_are_open_unless_asked_for_otherwise(ask: Ask, prod: Cluster, settings: Any) -> None:
    settings.FENCELINE = factories.config_with_owners(settings.FENCELINE, factories.owner("payments"))
    factories.finding(prod, "transaction:a", closed_at=now())
    factories.finding(prod, "partition:payments-0", "critical", rule="hanging")
    factories.finding(prod, "group:billing")
    assert [each["subject"] for each in ask("findings")["items"]] == ["group:billing", "partition:payments-0"]
    assert [each["subject"] for each in ask("findings?state=closed")["items"]] == ["transaction:a"]
    assert len(all_items(ask, "findings?state=all&limit=1")) == 3
    (told,) = ask("findings?severity=critical&rule=hanging&subject=partition:payments-0")["items"]
    assert told["owner"] == {"team": "Payments", "contact": "#payments-oncall", "runbook": ""}
    assert ask(f"findings/{told['id']}") == told
    assert ask("findings?rule=coordinator_overdue")["items"] == []
    factories.finding(prod, "transaction:b", rule="coordinator_overdue")
    assert [each["rule"] for each in ask("findings?rule=late")["items"]] == ["coordinator_overdue"]


def test_a_cluster_counts_its_nouns(ask: Ask, prod: Cluster) -> None:
    factories.transaction(prod, "a")
    factories.lso_blocker(prod, "payments", verdict="late")
    factories.group(prod, "billing", "BLOCKED", blocked=1)
    factories.finding(prod, "transaction:a")
    told = ask("clusters/prod")
    assert told["transactions"]["Ongoing"] == 1
    assert told["partitions"] == {"clear": 0, "open": 0, "unknown": 0, "late": 1, "hanging": 0}
    assert (told["groups"]["BLOCKED"], told["groups"]["OK"], told["groups"]["pending"]) == (1, 0, 0)
    assert told["findings"] == 1
    assert set(told["as_of"]) == {"transactions", "partitions", "groups", "recoveries", "queries"}
    assert ask("clusters")["items"] == [told]


def test_a_transaction_tells_who_waits_its_verdict_and_its_coordinator(ask: Ask, prod: Cluster) -> None:
    factories.transaction(prod, "payments-7", producer_id=4017, log_partition=7, partitions={"payments": [0]})
    factories.transaction(prod, "other")
    factories.partition(prod, "__transaction_state", 7, leader=2)
    factories.blocked_offset(
        factories.group(prod, "billing"), factories.lso_blocker(prod, "payments", verdict="late")
    )
    told = ask("transactions/prod/payments-7")
    assert told["verdict"] == "late"
    assert told["coordinator"] == {"partition": 7, "broker": 2}
    (waiting,) = told["waiting"]
    assert (waiting["group"], waiting["topic"], waiting["pending"]) == ("billing", "payments", False)
    # As after a restored backup: an id with the same producer id does not take its verdict.
    factories.transaction(prod, "restored", producer_id=4017)
    listed = {each["transactional_id"]: each for each in ask("transactions")["items"]}
    assert listed["payments-7"]["waiting"] == [waiting]
    assert (listed["other"]["waiting"], listed["other"]["verdict"]) == ([], "open")


def test_a_transaction_has_the_offsets_that_it_added_to_groups(ask: Ask, prod: Cluster) -> None:
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
