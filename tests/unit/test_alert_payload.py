"""Proves what is sent: Alertmanager's shapes field by field, texts, labels, and their pages."""

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.alerts import validation
from fenceline.alerts import labels, payload
from fenceline.alerts.labels import LONGEST
from fenceline.alerts.payload import GroupMessage, Notice, SendReason
from fenceline.facts import Finding, Severity
from fenceline.owners import Owner
from tests.cases import cases

NOW_MS = 1_795_000_000_000
URL = "https://fenceline.example"
OWNER = Owner("payments-*", "Payments", "#payments", "https://wiki.example/payments")


def finding(subject: str) -> Finding:
    return Finding("coordinator_overdue", "prod", subject, Severity.CRITICAL, None, "s", "e", "n")


def labels_of(subject: str, owner: Owner | None = None, **more: Any) -> dict[str, str]:
    return labels.labels_of(finding(subject), owner, cluster="prod", **more)


def notice(name: str = "payments-7", *, over: bool = False, **more: str) -> Notice:
    about, ends_ms = f"transaction:{name}", NOW_MS if over else None
    annotations = labels.annotations_of(finding(about), OWNER)
    return Notice(name, labels_of(about, OWNER) | more, annotations, NOW_MS - 5_000, ends_ms, URL)


def message(*notices: Notice, reason: SendReason = SendReason.FIRST, truncated: int = 0) -> GroupMessage:
    return GroupMessage(
        "pager", "{}:{}", {"alertname": "coordinator_overdue"}, reason, notices, truncated, URL
    )


def test_the_webhook_is_alertmanagers_version_4() -> None:
    body = payload.webhook_body(message(notice(), notice("payments-8", over=True), truncated=3))
    assert list(body) == [
        "version", "groupKey", "truncatedAlerts", "status", "receiver", "groupLabels", "commonLabels",
        "commonAnnotations", "externalURL", "notification_reason", "alerts",
    ]  # fmt: skip
    assert (body["version"], body["status"], body["truncatedAlerts"]) == ("4", "firing", 3)
    assert body["notification_reason"] == "first_notification"
    assert body["commonLabels"]["team"] == "Payments"
    assert "subject" not in body["commonLabels"]
    first, second = body["alerts"]
    assert list(first) == [
        "status", "labels", "annotations", "startsAt", "endsAt", "generatorURL", "fingerprint",
    ]  # fmt: skip
    assert (first["status"], first["startsAt"]) == ("firing", "2026-11-18T11:06:35.000Z")
    assert first["endsAt"] == "0001-01-01T00:00:00Z"
    assert (second["status"], second["endsAt"]) == ("resolved", "2026-11-18T11:06:40.000Z")


def test_all_resolved_is_resolved_and_an_alertmanager_receives_the_end_of_each_alert() -> None:
    body = payload.webhook_body(message(notice(over=True), reason=SendReason.ALL_RESOLVED))
    assert (body["status"], body["notification_reason"]) == ("resolved", "all_alerts_resolved")
    both = message(notice(), notice(over=True))
    (firing, over) = payload.channel_payload("alertmanager", both, now_ms=NOW_MS, lives_ms=360_000)
    assert list(firing) == ["labels", "annotations", "startsAt", "endsAt", "generatorURL"]
    assert firing["endsAt"] == "2026-11-18T11:12:40.000Z"
    assert over["endsAt"] == "2026-11-18T11:06:40.000Z"


def test_a_message_gives_summary_severity_evidence_and_next_step() -> None:
    body = payload.channel_payload("apprise", message(notice()), now_ms=NOW_MS)
    assert body == {
        "title": "[FIRING:1] coordinator_overdue",
        "body": f"critical (Payments): s\ne\nn\n{URL}",
        "type": "failure",
    }
    over = payload.message_text(message(notice(over=True)))
    assert (over["title"], over["type"]) == ("[RESOLVED:1] coordinator_overdue", "success")
    assert over["body"] == "Resolved at 11:06:40 UTC: s"


def test_a_message_lists_ten_alerts_and_counts_the_rest() -> None:
    body = payload.message_text(message(*(notice(f"p-{n}", severity="info") for n in range(13)), truncated=7))
    assert body["title"] == "[FIRING:20] coordinator_overdue"
    assert body["body"].endswith(f"and 10 more alerts: {URL}/alerts")
    assert body["type"] == "info"


@pytest.mark.parametrize("kind", ["webhook", "alertmanager", "apprise"])
def test_a_sample_of_each_kind_is_json(kind: str) -> None:
    sample = payload.sample_message("pager", external_url=URL, now_ms=NOW_MS)
    body = payload.channel_payload(kind, sample, now_ms=NOW_MS, lives_ms=1)
    assert "test" in json.dumps(body)


@cases(
    ("transaction:payments-7", {"transactional_id": "payments-7", "application": "payments"},
     "/transactions/prod/payments-7"),
    ("transaction:a/b c", {"transactional_id": "a/b c", "application": "a/b c"},
     "/transactions/prod/a%2Fb%20c"),
    ("partition:o-in-3", {"topic": "o-in", "partition": "3"}, "/partitions/prod/o-in/3"),
    ("group:billing", {"group": "billing"}, "/groups/prod/billing"),
    ("query:q1", {"query": "q1"}, "/queries/prod/q1"),
    ("application:payments", {"application": "payments"}, "/rules/coordinator_overdue"),
    ("collector:partitions", {"collector": "partitions"}, "/rules/coordinator_overdue"),
    ("coordinators:prod", {}, "/rules/coordinator_overdue"),
    ("group:..", {"group": ".."}, "/rules/coordinator_overdue"),
    ("partition:nonsense", {}, "/rules/coordinator_overdue"),
    ("pipeline:orders", {"pipeline": "orders"}, "/pipelines?cluster=prod#audit-prod-orders"),
    ("transaction:", {"application": "(nameless)"}, "/rules/coordinator_overdue"),
)  # fmt: skip
def test_labels_name_the_subject(subject: str, named: dict[str, str], page: str) -> None:
    found = labels_of(subject)
    common = {"alertname", "cluster", "severity", "subject", "subject_kind"}
    assert {name: value for name, value in found.items() if name not in common} == named
    assert labels.page_of(found, URL) == URL + page


def test_a_query_has_its_id_and_its_name_as_labels_and_titles_name_it() -> None:
    found = labels_of("query:6f1d2a3b", query_name="orders_enrich")
    assert (found["subject"], found["query"]) == ("query:6f1d2a3b", "6f1d2a3b")
    assert found["query_name"] == "orders_enrich"
    assert labels.readable_name("query:6f1d2a3b", found) == "orders_enrich"
    assert labels.readable_name("query:6f1d2a3b", {}) == "6f1d2a3b"
    # Another subject is not renamed by a label that it should not have.
    assert labels.readable_name("group:billing", found) == "billing"
    assert set(found) <= set(validation.LABELS)
    named = {"query": "6f1d2a3b", "subject": "query:6f1d2a3b", "query_name": "orders_enrich"}
    for group, members, title in (
        ({"query": "6f1d2a3b"}, named, "orders_enrich"),
        ({"subject": "query:6f1d2a3b"}, named, "orders_enrich"),
        ({"query": "6f1d2a3b"}, {}, "6f1d2a3b"),
    ):
        titled = GroupMessage("ops", "key", group, SendReason.FIRST, [notice(**members)], 0, URL)
        assert payload.message_text(titled)["title"] == f"[FIRING:1] {title}"


def test_owners_travel_as_labels_and_long_names_are_cut_and_stay_distinct() -> None:
    found = labels_of("transaction:payments-7", OWNER)
    assert (found["team"], found["contact"], found["runbook"]) == (OWNER.team, OWNER.contact, OWNER.runbook)
    assert labels.annotations_of(finding("transaction:payments-7"), OWNER)["runbook"] == OWNER.runbook
    first, second = (labels_of(f"group:{'g' * 32_000}{n}")["group"] for n in range(2))
    assert len(first) == len(second) == LONGEST
    assert first != second


@given(st.text(), st.text(), st.integers(-(2**63), 2**63))
def test_any_subject_can_be_sent(kind: str, name: str, at_ms: int) -> None:
    found = labels_of(f"{kind}:{name}", OWNER)
    each = Notice("f" * 16, found, {}, at_ms, None, labels.page_of(found, URL))
    for channel in ("webhook", "alertmanager", "apprise"):
        body: Any = payload.channel_payload(channel, message(each), now_ms=NOW_MS, lives_ms=1)
        json.dumps(body).encode()
    assert datetime.fromisoformat(payload.format_rfc3339(at_ms)).tzinfo is not None
