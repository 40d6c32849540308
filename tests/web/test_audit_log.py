"""Proves the audit log, and that events tell each act, abort and fence, and whose it was."""

import re

import pytest
from django.test import Client
from django.utils.timezone import now

from dashboard.models import Cluster
from fenceline.plans.plan import Act
from tests.web import factories
from tests.web.action_fixtures import page_text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("prod")]


def lines(page: Client, query: str = "") -> list[int]:
    return [int(each) for each in re.findall(r'<tr id="a-(\d+)"', page_text(page, f"/actions{query}"))]


def test_the_log_lists_the_newest_first_and_its_address_filters_it(operator: Client) -> None:
    marked = factories.executed_action(factories.plan(factories.marker_subject(), act=Act.ABORT_MARKER))
    failed = factories.executed_action(factories.fence_subject("orders-1"), "failed", state="failed")
    waits = factories.planned_action(factories.fence_subject("orders-2"), planned_by="grace")
    numbers = [waits.pk, failed.pk, marked.pk]
    assert lines(operator) == numbers
    assert lines(operator, "?act=abort_marker") == [marked.pk]
    assert lines(operator, "?state=failed") == [failed.pk]
    assert lines(operator, "?q=orders-") == [waits.pk, failed.pk]
    assert lines(operator, "?who=grace") == [waits.pk]
    assert lines(operator, "?who=ada") == [failed.pk, marked.pk]
    assert lines(operator, f"?before={failed.pk}") == [marked.pk]
    assert lines(operator, "?cluster=prod") == numbers
    assert "1 plan pending confirmation." in page_text(operator, "/actions")


def test_empty_logs_read_differently(operator: Client) -> None:
    assert 'data-empty="none"' in page_text(operator, "/actions")
    factories.planned_action()
    assert 'data-empty="unmatched"' in page_text(operator, "/actions?state=done")
    assert 'data-empty="past"' in page_text(operator, "/actions?before=1")


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ([], "No actions in the last 24 h."),
        (["done"], "All actions in the last 24 h were done."),
        (["done", "failed"], "1 of 2 actions in the last 24 h were not fully done."),
    ],
)
def test_the_headline_says_how_it_went(operator: Client, outcomes: list[str], said: str) -> None:
    for state in outcomes:
        factories.executed_action(None, state, state=state)
    assert said in page_text(operator, "/actions")


def test_events_tell_every_abort_and_fence_and_whose_it_was(operator: Client, prod: Cluster) -> None:
    # At the same moment on the same id: what is ours is joined by what the coordinator answered, not by time.
    factories.takeover_history(prod, b"payments-7")
    action = factories.executed_action(ended_ms=int(now().timestamp() * 1_000))
    factories.action_transition(
        factories.recovery(prod, "payments-7", opened_ms=factories.now_ms() - 60_000), action
    )
    marked = factories.executed_action(factories.plan(factories.marker_subject(), act=Act.ABORT_MARKER))
    rows = page_text(operator, "/events").split("<tr ")[1:]
    mine = next(row for row in rows if "payments-7" in row and "admin fence" in row)
    other = next(row for row in rows if "payments-7" in row and "takeover" in row)
    assert f"Fenced by ada, action {action.pk}" in mine
    assert "Fenced by ada" not in other
    assert any(f'href="/actions/{marked.pk}"' in row and "abort marker done" in row for row in rows)
