"""Proves where pages offer to act, and where they say why not."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from dashboard.models import Cluster
from fenceline.facts import State
from tests.web import held, planned, roles, seed, streams
from tests.web.acting import confirmed, operator, read

__all__ = ["operator"]

pytestmark = pytest.mark.django_db


def test_an_open_transaction_offers_to_fence_its_producer(
    page: Client, operator: User, prod: Cluster
) -> None:
    seed.transaction(prod, "payments-7", age_ms=600_000)
    shown = read(page, "/transactions/prod/payments-7")
    assert '<input type="hidden" name="act" value="fence">' in shown
    assert '<input type="hidden" name="subject" value="payments-7">' in shown
    assert "Fence producer…" in shown
    assert "Abort hanging" not in shown


@pytest.mark.parametrize(
    "state",
    [State.PREPARE_COMMIT, State.PREPARE_ABORT, State.COMPLETE_COMMIT, State.COMPLETE_ABORT, State.EMPTY],
)
def test_what_is_decided_or_idle_offers_nothing(
    page: Client, operator: User, prod: Cluster, state: State
) -> None:
    seed.transaction(prod, "payments-7", state)
    assert 'name="act"' not in read(page, "/transactions/prod/payments-7")


def test_a_hanging_one_offers_an_abort_marker_and_no_fence(
    page: Client, operator: User, prod: Cluster
) -> None:
    held.pinned(prod, "payments", 0, "hanging", ground="not_its_partition")
    shown = read(page, "/partitions/prod/payments/0")
    assert 'name="act" value="abort_marker"' in shown
    assert 'name="subject" value="payments-0@48211"' in shown
    assert 'value="fence"' not in shown


def test_an_owned_one_offers_to_fence_and_no_marker(page: Client, operator: User, prod: Cluster) -> None:
    held.pinned(prod, "payments", 0, "late", ground="past_timeout")
    shown = read(page, "/partitions/prod/payments/0")
    assert 'name="act" value="fence"' in shown
    assert 'value="abort_marker"' not in shown


@pytest.mark.parametrize("ground", ["may_be_hidden", "unseen", "seen_once", "stuck_in_prepare"])
def test_what_nobody_can_tell_offers_nothing_and_says_why(
    page: Client, operator: User, prod: Cluster, ground: str
) -> None:
    held.pinned(prod, "payments", 0, "unknown", ground=ground, transactional_id="")
    shown = read(page, "/partitions/prod/payments/0")
    assert 'name="act"' not in shown
    assert "Not offered:" in shown


def test_an_id_of_our_sink_offers_its_batch_instead_of_a_fence(
    page: Client, operator: User, prod: Cluster
) -> None:
    row = streams.abandoned(prod)
    name = streams.transactional_id(row, 1, 1_204)
    shown = read(page, f"/transactions/prod/{name}")
    assert "Finish batch 1,204…" in shown
    assert f'name="subject" value="{row.ident}@1204"' in shown
    assert "Fence producer" not in shown
    query = read(page, f"/queries/prod/{row.ident}")
    assert query.count("Finish batch 1,204…") == 2  # In its chain, and in its ledger.
    assert "Roll back" not in query


def test_a_finding_carries_its_act(page: Client, operator: User, prod: Cluster) -> None:
    seed.finding(prod, "transaction:payments-7", rule="late")
    seed.finding(prod, "partition:payments-0", "critical", rule="hanging")
    seed.finding(prod, "group:billing", rule="group_stalled")
    shown = read(page, "/")
    assert shown.count('name="act"') == 2
    assert 'name="subject" value="payments-0"' in shown


@pytest.mark.parametrize(
    ("name", "said"), [("", "needs the role operator"), ("viewer", "needs the role operator")]
)
def test_who_may_only_look_sees_the_button_off_and_why(
    page: Client, user: User, prod: Cluster, name: str, said: str
) -> None:
    if name:
        roles.give(user, name)
    seed.transaction(prod, "payments-7")
    shown = read(page, "/transactions/prod/payments-7")
    assert "disabled>Fence producer…</button>" in shown
    assert said in shown
    assert 'action="/actions/plan"' not in shown


def test_read_only_is_told_on_every_page_and_turns_buttons_off(
    page: Client, operator: User, prod: Cluster, settings: Any
) -> None:
    settings.READ_ONLY = True
    seed.transaction(prod, "payments-7")
    for url in ("/", "/actions", "/system"):
        assert 'id="read-only"' in read(page, url)
    assert "disabled>Fence producer…</button>" in read(page, "/transactions/prod/payments-7")
    action = planned.kept()
    shown = read(page, f"/actions/{action.pk}")
    assert 'id="confirm"' not in shown
    assert "READ_ONLY is set" in shown
    assert confirmed(page, action).status_code == 403
    answer = page.post("/actions/plan", {"cluster": "prod", "act": "fence", "subject": "payments-7"})
    assert answer.status_code == 403
