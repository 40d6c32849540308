"""Proves that nothing is asked about ids outside of the scope, and that each is refused by name."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from collectors.kafka.reconcile import PreviousTransactionState, Reconciler
from fenceline.facts import Tombstone, TransactionState
from fenceline.kafka.reconcile import Correction, KnownTransaction, Listed, NotDescribed, Obstacle
from fenceline.kafka.scope import Scope
from fenceline.plans.producers import undescribed_refusal
from transaction_admin import acl_probe, kafka_python
from transaction_admin.acl_probe import Trials
from transaction_admin.api import Cost, TransactionListing
from transaction_admin.kafka_python import TransactionAdmin


class SilentConnection:
    """A connection over which nothing may be asked."""

    def __init__(self, *_: object) -> None:
        self.principal = "User:fenceline"

    def run(self, question: object, *_: object) -> Any:
        raise AssertionError(f"asked: {question}")


def test_an_id_outside_of_the_scope_is_refused_by_name_and_not_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_python, "AdminConnection", SilentConnection)
    admin = TransactionAdmin({}, scope=Scope(transactional_ids=("pay-*",)))
    answer = admin.describe_transactions(["orders-1"], listed=True)["orders-1"]
    assert isinstance(answer, NotDescribed)
    assert answer.obstacle is Obstacle.FORBIDDEN
    assert "orders-1 cannot be seen: it is outside the configured scope" in str(
        undescribed_refusal("orders-1", answer)
    )


@pytest.mark.parametrize(("code", "exists"), [(0, True), (3, False), (5, None), (29, None)])
def test_only_a_broker_that_says_so_proves_that_a_topic_is_missing(
    monkeypatch: pytest.MonkeyPatch, code: int, exists: bool | None
) -> None:
    class Answer:
        topics = (type("Topic", (), {"error_code": code}),)

    monkeypatch.setattr(acl_probe, "AdminConnection", SilentConnection)
    trials = Trials({})
    monkeypatch.setattr(trials, "_ask", lambda _: Answer)
    assert trials.topic_exists("__transaction_state") is exists


def test_rows_outside_of_the_scope_are_removed() -> None:
    row = KnownTransaction(TransactionState.ONGOING, 7, 12)
    rows = {"pay-1": row, "orders-1": row}
    listing = TransactionListing({"pay-1": Listed(TransactionState.ONGOING, 7)}, (), "")
    admin = SimpleNamespace(cost=Cost(0, 0.0), list_transactions=lambda _: listing)
    ours = SimpleNamespace(
        without_tail=lambda: False, read_through_ms=lambda: 1, all_rows=lambda: iter(rows.items())
    )
    for patterns, outside in (("*",), ()), (("pay-*",), (Correction(Tombstone("orders-1"), row, True),)):
        reconciler = Reconciler(cast(TransactionAdmin, admin), pytest.fail, Scope(transactional_ids=patterns))
        found = reconciler.poll(1, cast(PreviousTransactionState, ours))
        assert (found.corrections, found.outside) == ((), outside)
