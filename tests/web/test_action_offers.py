"""Proves that cards, pages, the admin and the API offer what the planner would not refuse, nothing else."""

import html
import re
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from dashboard.actions.producers import producers_of_rows
from dashboard.models import Action, Cluster, Transaction
from fenceline.facts import TWO_PHASE_COMMIT_TIMEOUT_MS, TransactionState
from fenceline.kafka.applications import Shape, application_of
from fenceline.kafka.transactional_ids import key_of
from fenceline.plans.producers import plan_fence
from tests.cases import cases
from tests.web import factories, scenarios
from tests.web.roles import confirm, page_text

pytestmark = pytest.mark.django_db


def acts(markup: str) -> list[tuple[str, str]]:
    """Return what the buttons of a page plan: act and subject."""
    return re.findall(r'name="act" value="(\w+)"><input type="hidden" name="subject" value="([^"]+)"', markup)


@cases(
    ("hanging", "not_its_partition", [("abort_marker", "payments-0@48211")]),
    ("late", "past_timeout", [("fence", "payments-7")]),
    ("unknown", "may_be_hidden", []),
    ("unknown", "unseen", []),
    ("unknown", "seen_once", []),
    ("unknown", "stuck_in_prepare", []),
)
def test_a_blocked_partition_offers_what_its_verdict_allows_or_says_why_not(
    operator: Client, prod: Cluster, verdict: str, ground: str, offered: list[tuple[str, str]]
) -> None:
    name = "payments-7" if offered else ""
    factories.lso_blocker(prod, "payments", 0, verdict, ground=ground, transactional_id=name)
    factories.transaction(prod, "payments-7", age_ms=600_000, producer_id=4017)
    shown = page_text(operator, "/partitions/prod/payments/0")
    assert acts(shown) == offered
    assert ("Not available:" in shown) is (not offered)


def test_an_id_of_our_sink_offers_its_batch_instead_of_a_fence(operator: Client, prod: Cluster) -> None:
    row = scenarios.abandoned_query(prod)
    name = factories.sink_transactional_id(row, 1, 1_204)
    shown = page_text(operator, f"/transactions/prod/{name}")
    assert "Finish batch 1,204…" in shown
    assert f'name="subject" value="{row.ident}@1204"' in shown
    assert "Fence producer" not in shown
    for tab in ("", "?tab=facts"):
        text = page_text(operator, f"/queries/prod/{row.ident}{tab}")
        # Below its headline, and in its ledger.
        assert text.count("Finish batch 1,204…") == 1 + bool(tab)
        assert "Roll back" not in text


def test_a_finding_carries_its_act(operator: Client, prod: Cluster) -> None:
    factories.finding(prod, "transaction:payments-7", rule="coordinator_overdue")
    factories.transaction(prod, "payments-7", age_ms=600_000)
    factories.finding(prod, "partition:payments-0", "critical", rule="hanging")
    factories.lso_blocker(prod, "payments", 0, "hanging", ground="not_its_partition")
    factories.finding(prod, "group:billing", rule="group_stalled")
    shown = page_text(operator, "/")
    assert shown.count('name="act"') == 2
    assert 'name="subject" value="payments-0"' in shown


def test_a_pending_flink_commit_offers_one_plan_of_what_its_checkpoint_decided(
    operator: Client, prod: Cluster
) -> None:
    names = ["copy-0-41", "copy-1-41", "copy-2-41"]
    job = factories.flink_job(prod, [factories.committable(name) for name in names])
    for name in names[:2]:
        factories.transaction(prod, name, age_ms=600_000, producer_id=2051, producer_epoch=17)
    affected = [f"transaction:{name}" for name in names]
    subject = f"flink_job:{job.ident}"
    cause = factories.finding(prod, subject, rule="flink_commit_pending", affected=affected)
    factories.incident_of(prod, cause, rule=cause.rule, subject=subject)
    shown = page_text(operator, "/")
    assert acts(shown) == [("commit_flink", "copy-0-41")]
    assert re.findall(r'name="subject" value="([^"]+)"', shown) == names[:2]
    assert "Commit 2 pending transactions…" in shown
    listed = operator.get("/api/v1/findings").json()["items"][0]["offers"]
    assert listed == [{"act": "commit_flink", "subject": name} for name in names[:2]]


def test_one_driver_crash_offers_no_fence_anywhere(operator: Client, prod: Cluster, root: Client) -> None:
    """Its transactions are open too long and late, and a fence would lose its prepared batch."""
    row = scenarios.abandoned_query(prod)
    opened = list(Transaction.objects.filter(cluster=prod, state=TransactionState.ONGOING.value))
    assert len(opened) == 3
    factories.finding(prod, f"query:{row.ident}", "critical", rule="batch_prepared")
    for rule in ("open_too_long", "coordinator_overdue"):
        for each in opened:
            subject = f"transaction:{each.transactional_id}"
            mark = key_of(f"{rule} {subject}".encode())
            factories.finding(prod, subject, rule=rule, fingerprint=mark)
    finish = ("finish_batch", f"{row.ident}@1204")
    assert set(acts(page_text(operator, "/"))) == {finish}
    for each in opened:
        assert acts(page_text(operator, f"/transactions/prod/{each.transactional_id}")) == [finish]
    listed = operator.get("/api/v1/findings").json()["items"]
    expected = [[finish]] * 7
    assert [[(offer["act"], offer["subject"]) for offer in item["offers"]] for item in listed] == expected
    detail = operator.get(f"/api/v1/transactions/prod/{opened[0].transactional_id}").json()
    assert detail["offers"] == [{"act": "finish_batch", "subject": finish[1]}]
    chosen = {"action": "abort_of_ids", "_selected_action": [each.pk for each in opened]}
    answer = root.post("/admin/dashboard/transaction/", chosen)
    said = html.unescape(root.get(answer["Location"]).content.decode())
    assert "Nothing that is selected is open and can be ended from here." in said
    assert not Action.objects.exists()


#: Fields of a row, the act that is offered, and what its own page says where none is.
APPRAISED: list[tuple[int, dict[str, Any], str, str]] = [
    (1, {"age_ms": 600_000}, "fence", ""),
    (2, {"age_ms": 2_000}, "", "appears healthy"),
    (3, {"age_ms": 600_000, "timeout_ms": TWO_PHASE_COMMIT_TIMEOUT_MS}, "", "two-phase commit"),
    (4, {"age_ms": 600_000, "state": TransactionState.PREPARE_ABORT}, "", ""),
    (5, {"age_ms": 600_000, "state": TransactionState.COMPLETE_COMMIT}, "", ""),
    (6, {"age_ms": 600_000, "raw": "sink-0-17"}, "fence", ""),
    (7, {"age_ms": 600_000, "raw": "orders-0a1b2c3d-p0-g1-b1-s0"}, "", "Fenceline's sink, and no ledger"),
    (8, {"age_ms": 600_000, "state": TransactionState.PREPARE_COMMIT}, "", ""),
    (9, {"age_ms": 600_000, "state": TransactionState.COMPLETE_ABORT}, "", ""),
    (10, {"age_ms": 600_000, "state": TransactionState.EMPTY}, "", ""),
]


@pytest.mark.parametrize(("number", "fields", "act", "why"), APPRAISED)
def test_cards_pages_and_api_offer_what_the_planner_would_not_refuse(
    operator: Client, prod: Cluster, number: int, fields: dict[str, Any], act: str, why: str
) -> None:
    row = factories.transaction(prod, **{"raw": "payments-7", **fields})
    factories.finding(prod, f"transaction:{row.transactional_id}", rule="open_too_long")
    (producer,) = producers_of_rows([row], now_ms=factories.now_ms())
    refusals = plan_fence(producer, now_ms=factories.now_ms(), limits=settings.FENCELINE.limits).refusals
    assert bool(refusals) == (not act), f"case {number}: {refusals}"
    expected = [(act, row.transactional_id)] if act else []
    shown = page_text(operator, f"/transactions/prod/{row.transactional_id}")
    # What may be Flink's is no incident's first action: a checkpoint may have decided to commit it.
    first = [] if application_of(row.transactional_id).kind is Shape.FLINK else expected
    assert acts(page_text(operator, "/")) == first, f"case {number}"
    assert acts(shown) == expected, f"case {number}"
    assert ("disabled>Fence producer…" in shown) == bool(why), f"case {number}"
    assert why in shown, f"case {number}"
    detail = operator.get(f"/api/v1/transactions/prod/{row.transactional_id}").json()
    (item,) = operator.get("/api/v1/findings").json()["items"]
    for each in detail, item:
        assert [(offer["act"], offer["subject"]) for offer in each["offers"]] == expected, f"case {number}"


@pytest.mark.parametrize(("number", "forced"), [(2, True), (3, True), (7, False)])
def test_who_may_force_is_led_to_the_plan_from_its_own_page_alone(
    root: Client, prod: Cluster, number: int, forced: bool
) -> None:
    fields = next(fields for case, fields, *_ in APPRAISED if case == number)
    row = factories.transaction(prod, **{"raw": "payments-7", **fields})
    factories.finding(prod, f"transaction:{row.transactional_id}", rule="open_too_long")
    expected = [("fence", row.transactional_id)] if forced else []
    assert acts(page_text(root, f"/transactions/prod/{row.transactional_id}")) == expected
    assert acts(page_text(root, "/")) == []


def test_a_batch_that_has_lost_a_part_is_not_offered_to_be_finished(operator: Client, prod: Cluster) -> None:
    row = scenarios.abandoned_query(prod)
    of = Transaction.objects.filter(cluster=prod, state=TransactionState.ONGOING.value)
    of.filter(pk=of[0].pk).update(state=TransactionState.COMPLETE_ABORT.value)
    assert acts(page_text(operator, f"/queries/prod/{row.ident}")) == []


def test_who_may_only_look_sees_the_button_off_and_why(page: Client, prod: Cluster) -> None:
    factories.transaction(prod, "payments-7", age_ms=600_000)
    shown = page_text(page, "/transactions/prod/payments-7")
    assert "disabled>Fence producer…</button>" in shown
    assert "needs the role operator" in shown
    assert 'action="/actions/plan"' not in shown


def test_read_only_is_told_on_every_page_and_turns_buttons_off(
    operator: Client, prod: Cluster, settings: Any
) -> None:
    settings.READ_ONLY = True
    factories.transaction(prod, "payments-7")
    for url in ("/", "/actions", "/system"):
        assert 'id="read-only"' in page_text(operator, url)
    assert "disabled>Fence producer…</button>" in page_text(operator, "/transactions/prod/payments-7")
    action = factories.planned_action()
    shown = page_text(operator, f"/actions/{action.pk}")
    assert 'id="confirm"' not in shown
    assert "READ_ONLY is set" in shown
    assert confirm(operator, action).status_code == 403
    answer = operator.post("/actions/plan", {"cluster": "prod", "act": "fence", "subject": "payments-7"})
    assert answer.status_code == 403
