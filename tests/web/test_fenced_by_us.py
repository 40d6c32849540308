"""Proves that a fence by one of our actions is named as such, with who executed it, on every page that has
it and in the API; and that a takeover is not."""

from datetime import UTC, datetime

import pytest
from django.test import Client

from dashboard.models import Action, Cluster, TransitionRecord
from dashboard.runtime.write_transactions import cluster_transaction
from dashboard.transactions import attributions
from dashboard.transactions.attributions import WrittenRecord
from fenceline.facts import TopicPartitions, TransactionRecord, TransactionState
from tests.web import factories
from tests.web.roles import page_text, text_of

pytestmark = pytest.mark.django_db

NAME, PRODUCER, EPOCH = "payments-7", 4_000, 3


def life(done_ms: int, *, back: bool = False) -> list[TransactionRecord]:
    steps = [
        (TransactionState.EMPTY, EPOCH, done_ms - 60_000),
        (TransactionState.ONGOING, EPOCH, done_ms - 50_000),
        (TransactionState.PREPARE_ABORT, EPOCH + 1, done_ms - 10),
        (TransactionState.COMPLETE_ABORT, EPOCH + 1, done_ms),
        (TransactionState.EMPTY, EPOCH + 2, done_ms + 100),
        *([(TransactionState.EMPTY, EPOCH + 3, done_ms + 5_000)] if back else []),
    ]
    orders = (TopicPartitions("orders", (0,)),)
    return [
        TransactionRecord(
            NAME, state, PRODUCER, epoch, 600_000,
            orders if state in (TransactionState.ONGOING, TransactionState.PREPARE_ABORT) else None, at_ms,
            None if state is TransactionState.EMPTY else done_ms - 50_000,
        )
        for state, epoch, at_ms in steps
    ]  # fmt: skip


def fenced(of: Cluster, *, back: bool = False) -> tuple[Action, int]:
    """Let an action of ours have fenced the id some minutes ago; return it, and when that was complete."""
    done_ms = factories.now_ms() - 300_000
    factories.save_histories(of, life(done_ms, back=back))
    action = factories.executed_action()
    written = [
        WrittenRecord(NAME, PRODUCER, EPOCH + 1, TransactionState.PREPARE_ABORT.value, fence=True),
        WrittenRecord(NAME, PRODUCER, EPOCH + 2, TransactionState.EMPTY.value, fence=True),
    ]
    with cluster_transaction(of.name, of.pk) as write:
        attributions.save_attributions(action, written, rev=write.next_rev(), now_ms=factories.now_ms())
    return action, done_ms + 100


def test_every_page_names_who_fenced(operator: Client, prod: Cluster) -> None:
    action, at_ms = fenced(prod)
    row = TransitionRecord.objects.get(action=action)
    episode = factories.recovery(
        prod, NAME, topic_id=row.topic_id, log_partition=row.log_partition, log_offset=row.log_offset,
        cause="admin_fence",
    )  # fmt: skip
    said = text_of(page_text(operator, f"/transactions/prod/{NAME}"))
    moment = datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%H:%M:%S")
    assert "It is idle, fenced by ada at " in said
    assert f"See action {action.pk} ." in said
    assert moment in said
    assert "No producer has initialised it since." in said
    assert "Its producer initialised" not in said
    assert "Waiting for a producer" in said
    evidence = f"Fenced by ada, action {action.pk}"
    for url in (f"/transactions/prod/{NAME}", "/events?last=24h"):
        shown = page_text(operator, url)
        assert evidence in shown, url
        assert "takeover, certain" not in shown, url
    assert f'href="/actions/{action.pk}"' in page_text(operator, f"/recoveries/prod/{episode.pk}")
    assert f'href="/recoveries/prod/{episode.pk}"' in page_text(operator, f"/actions/{action.pk}")
    assert "admin fence 1" in text_of(page_text(operator, "/events?last=24h"))


def test_a_producer_that_came_back_ends_the_sentence(operator: Client, prod: Cluster) -> None:
    fenced(prod, back=True)
    said = text_of(page_text(operator, f"/transactions/prod/{NAME}"))
    assert "No producer has initialised it" not in said
    assert "Its producer initialised" in said


def test_the_api_names_the_action(operator: Client, prod: Cluster) -> None:
    factories.takeover_history(prod, b"orders-1")
    action, _ = fenced(prod)
    ours = {"id": action.pk, "act": "fence", "executed_by": "ada"}
    items = operator.get("/api/v1/transitions").json()["items"]
    assert {item["transactional_id"]: item["action"] for item in items if item["kind"] != "reinit"} == {
        NAME: ours, "orders-1": None,
    }  # fmt: skip
    recent = operator.get(f"/api/v1/transactions/prod/{NAME}").json()["recent"]
    assert [(fact["kind"], fact["action"]) for fact in recent] == [
        ("admin_fence", ours), ("begin", None), ("baseline", None),
    ]  # fmt: skip
    assert recent[0]["evidence"].startswith(f"Fenced by ada, action {action.pk}")
