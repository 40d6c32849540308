"""Proves what all lists of the API have in common: how far their noun was seen, what was not seen, and
which cursors are refused; and what those of partitions, groups, recoveries, findings and clusters tell, and
who waits for an id. test_refusals.py has their parameters, test_exports.py their files."""

import base64
import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest
from django.utils.timezone import now

from dashboard.api import schemas
from dashboard.models import Cluster, GapRecord, PartitionRecord
from fenceline.decode import text
from fenceline.kafka.added_offsets import unpack_offsets
from tests.api.conftest import Ask, all_items
from tests.api.description import operations
from tests.cases import cases
from tests.web import factories, scenarios

pytestmark = pytest.mark.django_db
#: The collector that each list is seen by.
NOUNS = {
    "transactions": "transaction_state",
    "transitions": "transaction_state",
    "applications": "transaction_state",
    "collectors": "transaction_state",
    "partitions": "partitions",
    "clusters": "partitions",
    "groups": "groups",
    "findings": "groups",
    "incidents": "groups",
    "queries": "checkpoints",
    "flink-jobs": "flink",
    "connectors": "engines",
    "recoveries": "recoveries",
    "alerts": "alerts",
    "silences": "alerts",
    "channels": "alerts",
    "deliveries": "alerts",
    "actions": "actions",
    "pipelines": "checkpoints",
    "pipelines/edges": "flink",
}
#: Lists that go on behind a cursor; a query's batches need a query.
PAGED = [
    operation.path.removeprefix("/api/v1/")
    for operation in operations()
    if "cursor" in operation.query and "{" not in operation.path
]


def test_each_list_has_its_collector() -> None:
    assert NOUNS.keys() - {"collectors", "clusters"} == set(PAGED) - {"audit", "events"}


@pytest.mark.parametrize("noun", NOUNS)
def test_a_source_that_stands_still_is_a_gap_of_every_noun(ask: Ask, prod: Cluster, noun: str) -> None:
    """`as_of` is four minutes old, and the gap says so; without its collector nothing is known of it."""
    source, at_ms = NOUNS[noun], factories.now_ms() - 240_000
    assert (ask(noun)["gaps"], bool(ask(noun)["as_of"])) == ([], True)
    prod.collector_set.filter(name=source).delete()
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    factories.collector(prod, source, behind=None, seen_through_ms=at_ms, expires_at=long_ago)
    body = ask(noun)
    assert body["as_of"] == schemas.format_iso(at_ms)
    assert [gap for gap in body["gaps"] if gap["source"] == source] == [
        {
            "cluster": "prod",
            "source": source,
            "scope": "cluster",
            "since": schemas.format_iso(at_ms),
            "until": None,
            "reason": "no worker holds its lease; is the worker running?",
            "count": 1,
        }
    ]


def test_a_noun_without_its_collector_is_not_known(ask: Ask, prod: Cluster) -> None:
    prod.collector_set.filter(name="groups").delete()
    assert ask("groups")["as_of"] is None
    factories.gap(prod, source="groups", reason="not authorized")
    assert [gap["reason"] for gap in ask("groups")["gaps"]] == ["not authorized"]


def test_a_source_that_is_on_time_or_has_reported_its_gap_is_no_second_one(ask: Ask, prod: Cluster) -> None:
    now_ms = factories.now_ms()
    factories.collector(prod, "reconcile", behind=None, seen_through_ms=now_ms - 900_000)
    assert ask("groups")["gaps"] == []
    prod.collector_set.filter(name="groups").update(seen_through_ms=now_ms - 240_000)
    GapRecord.objects.create(cluster=prod, source="groups", scope="cluster", since_ms=now_ms, reason="no ACL")
    assert [gap["reason"] for gap in ask("groups")["gaps"]] == ["no ACL"]
    GapRecord.objects.update(scope="group:billing")
    assert {gap["scope"] for gap in ask("groups")["gaps"]} == {"cluster", "group:billing"}


def test_a_cluster_never_seen_makes_as_of_unknown(ask: Ask, prod: Cluster) -> None:
    factories.collector(factories.cluster("other"), seen_through_ms=None, error="cannot reach it")
    body = ask("transactions")
    assert body["as_of"] is None
    assert [gap["reason"] for gap in body["gaps"] if gap["cluster"] == "other"] == ["cannot reach it"]


def cursor(*after: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(after).encode()).decode().rstrip("=")


@cases(
    "%00",
    "!",
    "é",
    "YWJj",
    cursor(),
    cursor(1, 2),
    cursor(1.5, True),
    cursor("applications", 1, True),
    cursor("applications", "prod", "\ud800"),
    cursor("applications", "prod", "\0"),
    cursor("transitions-newest", -1, 0),
    cursor("transitions-newest", 2**63, 0),
    cursor("transitions-told", 1, 2),
    cursor("transactions-by-id", "prod", "a", 1),
    base64.urlsafe_b64encode(b"[" * 5_000).decode(),
    base64.urlsafe_b64encode(b"[" + b"9" * 5_000 + b"]").decode(),
)
def test_a_cursor_of_nobody_is_refused(ask: Ask, written: str) -> None:
    for name in "applications", "transactions", "transitions":
        assert "cursor" in ask(f"{name}?cursor={written}", 400)["detail"], name


def test_each_list_refuses_the_cursor_of_another_one(ask: Ask) -> None:
    for name in set(PAGED) - {"audit"}:
        for written in "!", cursor("transitions-told", 1, 2), cursor("transactions-by-id", "prod", "a", 1):
            assert "cursor" in ask(f"{name}?cursor={written}", 400)["detail"], name


#: With which parameters lists of several rows are asked for; test_history.py walks through the history.
WALKED = {
    "groups": "",
    "queries": "",
    "flink-jobs": "",
    "connectors": "",
    "recoveries": "",
    "alerts": "state=all",
    "silences": "",
    "channels": "",
    "deliveries": "",
    "actions": "",
    "findings": "state=all",
    "incidents": "state=all",
}


def test_a_list_goes_on_page_by_page(ask: Ask, prod: Cluster) -> None:
    prod.delete()
    of = factories.cluster()
    for fill in scenarios.busy_transactions, scenarios.busy_partitions, scenarios.busy_alerts:
        fill(of)
    for fill in scenarios.busy_queries, scenarios.busy_flink_jobs, scenarios.busy_actions:
        fill(of)
    for number in range(3):
        factories.connector(of, name=f"source{number}")
    for noun, asked in WALKED.items():
        whole = ask(f"{noun}?limit=500&{asked}")["items"]
        assert len(whole) > 1, noun
        assert all_items(ask, f"{noun}?limit={len(whole) // 2}&{asked}") == whole, noun


#: How often each list asks the database at most.
MOST_QUERIES = {
    "partitions?limit=1000&internal=true": 8,
    "groups?limit=1000": 7,
    "recoveries": 7,
    "flink-jobs": 7,
    "connectors": 7,
    # Six more for what may be offered, for however many findings; two for the role of who asks.
    "findings": 15,
    "clusters": 22,
    # With readers and queries that wait.
    "transactions?state=open": 16,
}


def test_a_list_asks_the_database_a_bounded_number_of_times(
    ask: Ask, prod: Cluster, django_assert_max_num_queries: Any
) -> None:
    prod.delete()
    of = factories.cluster()
    scenarios.busy_transactions(of, 60)
    scenarios.busy_partitions(of)
    for path, most in MOST_QUERIES.items():
        with django_assert_max_num_queries(most):
            ask(path)


def test_a_partition_is_told_with_what_holds_it(ask: Ask, prod: Cluster) -> None:
    pin = factories.lso_blocker(
        prod, "payments", 3, "hanging", ground="not_its_partition", last_timestamp_ms=2**62
    )
    factories.blocked_offset(factories.group(prod, "billing"), pin)
    factories.replica(prod, "payments", 3, 1, [factories.replica_producer(4017, 48_211, "payments-7")])
    told = ask("partitions/prod/payments/3")
    expected = ("hanging", 48_211, 49_981, 1_770)
    assert (told["verdict"], told["lso"], told["high_watermark"], told["held"]) == expected
    (opened,) = told["transactions"]
    wanted = ("payments-7", 48_211, "not_its_partition")
    assert (opened["transactional_id"], opened["start_offset"], opened["ground"]) == wanted
    assert opened["last_record_at"] is None  # No instant: the producer wrote that number.
    (reader,) = told["readers"]
    assert (reader["group"], reader["waiting"], reader["commit_pending"]) == ("billing", "probably", False)
    assert told["looks"][0]["producers"][0]["start_offset"] == 48_211
    assert len(told["ends"]) == 25
    assert ask("partitions?verdict=hanging")["items"][0]["transactions"] == told["transactions"]


@pytest.mark.sql
@cases(
    ("", ["a-0", "a-1", "b-0"]),
    ("internal=true", ["__consumer_offsets-17", "a-0", "a-1", "b-0"]),
    ("verdict=pinned", ["b-0"]),
    ("verdict=clear", ["a-0", "a-1"]),
    ("topic=a", ["a-0", "a-1"]),
    ("q=a-1", ["a-1"]),
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
