"""Proves the pages of a plan: what is shown, what is refused, the confirmation, and what came of it; the log
of actions, whose acts events tell; and that a fence by one of them is named as such, with who executed it, on
every page that has it and in the API, and that a takeover is not."""

import html
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client
from django.utils.timezone import now

from dashboard.actions import store as action_store
from dashboard.config import ClusterConfig, Config
from dashboard.models import Action, Cluster, SinkDecision, TransitionRecord
from dashboard.runtime.write_transactions import cluster_transaction
from dashboard.transactions import attributions
from dashboard.transactions.attributions import WrittenRecord
from fenceline.facts import TopicPartitions, TransactionRecord, TransactionState
from fenceline.plans.plan import LIVES_MS, Act
from tests.cases import cases
from tests.web import factories, scenarios
from tests.web.roles import confirm, page_text, text_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("prod")]
NAME, PRODUCER, EPOCH = "payments-7", 4_000, 3


def test_a_plan_says_what_would_be_done_in_numbers(operator: Client) -> None:
    action = factories.planned_action()
    markup = page_text(operator, f"/actions/{action.pk}")
    shown = text_of(markup)
    assert "Fence payments-7" in shown
    assert "Nothing has been sent." in shown
    assert "InitProducerId To the coordinator of payments-7 (broker 2)" in shown
    assert "At least 1,707 records behind the LSO of payments-0 become readable." in shown
    assert "payments-0 48,211 49,981" in shown
    assert "payments-1 7,000 —" in shown
    assert "Unblocked: billing , payments_ledger" in shown
    assert "Records that are already committed stay." in shown
    assert "Checked again before sending." in shown
    assert "Confirm as the operator" in shown
    assert 'data-types="payments-7"' in markup
    assert f'name="digest" value="{action.digest}"' in markup


def test_refusals_are_shown_and_not_hidden(operator: Client) -> None:
    action = factories.planned_action(
        factories.plan(factories.fence_subject(), factories.refused_subject("orders-2", factories.PREPARE))
    )
    shown = text_of(page_text(operator, f"/actions/{action.pk}"))
    assert "2 subjects, 1 refused" in shown
    assert "Its coordinator has decided: look at the leader of payments-0." in shown
    assert "Sent to 1 subject on prod" in shown


def test_nothing_to_do_says_why_and_what_else(operator: Client, prod: Cluster) -> None:
    row = scenarios.abandoned_query(prod)
    # Nothing is decided about it: what is open of it is rolled back.
    SinkDecision.objects.filter(query=row, batch_id=1_204).delete()
    refused = factories.batch_subject(row.ident, 1_204, factories.NOT_PREPARED)
    action = factories.planned_action(factories.plan(refused, act=Act.FINISH_BATCH))
    shown = page_text(operator, f"/actions/{action.pk}")
    assert "Refused: nothing was sent." in shown
    assert 'id="confirm"' not in shown
    assert "Roll back batch 1,204…" in shown
    assert f'name="subject" value="{row.ident}@1204"' in shown


def test_force_is_an_admin_s_and_says_what_it_may_cost(operator: Client, admin: Client) -> None:
    action = factories.planned_action(factories.refused_subject("payments-7", factories.HEALTHY))
    shown = page_text(operator, f"/actions/{action.pk}")
    assert "This may lose checkpointed data" in shown
    assert "needs the role admin" in shown
    assert 'name="force"' not in shown
    shown = page_text(admin, f"/actions/{action.pk}")
    assert '<input type="hidden" name="force" value="1">' in shown
    assert 'name="subject" value="payments-7"' in shown


def test_what_cannot_be_forced_is_not_offered_by_force(admin: Client) -> None:
    action = factories.planned_action(
        factories.refused_subject("payments-7", factories.HEALTHY, factories.PREPARE)
    )
    assert "By force" not in page_text(admin, f"/actions/{action.pk}")


def test_a_forced_plan_says_what_was_overruled_and_only_an_admin_confirms_it(
    operator: Client, admin: Client, sent: list[Any]
) -> None:
    action = factories.planned_action(factories.plan(forced=True, overridden=(factories.HEALTHY,)))
    shown = text_of(page_text(operator, f"/actions/{action.pk}"))
    assert "Forced, although: It is within its limit" in shown
    assert "needs the role admin" in shown
    assert confirm(operator, action).status_code == 403
    assert confirm(admin, action).status_code == 303
    assert len(sent) == 1


def test_an_expired_plan_says_so_and_offers_to_plan_again(operator: Client) -> None:
    action = factories.planned_action(factories.plan(made_ms=factories.now_ms() - LIVES_MS - 1))
    shown = page_text(operator, f"/actions/{action.pk}")
    assert "may be outdated" in shown
    assert "Plan again</button>" in shown
    assert 'id="confirm"' not in shown
    answer = confirm(operator, action)
    assert answer.status_code == 410
    assert "make a new one, which checks again" in answer.content.decode()


@cases(
    ({"act": "explode"}, 400, "named an unknown action"),
    ({"act": ""}, 400, "named an unknown action"),
    ({"cluster": "nowhere"}, 404, "No cluster “nowhere” is configured."),
    ({"subject": []}, 400, "A plan has 1 to 50 subjects, and these are 0."),
    ({"subject": [f"id-{n}" for n in range(51)]}, 400, "and these are 51."),
    ({"force": "1"}, 403, "needs the role admin"),
)
def test_no_plan_says_why(operator: Client, asked: dict[str, Any], status: int, said: str) -> None:
    usual = {"cluster": "prod", "act": "fence", "subject": "payments-7"}
    answer = operator.post("/actions/plan", usual | asked)
    assert answer.status_code == status
    shown = text_of(html.unescape(answer.content.decode()))
    assert said in shown
    assert "Nothing was sent to" in shown
    assert not Action.objects.exists()


def test_a_cluster_that_cannot_be_reached_is_told_with_a_way_to_try_again(
    operator: Client, settings: Any
) -> None:
    nowhere = ClusterConfig("prod", {"bootstrap.servers": "127.0.0.1:1"})
    settings.FENCELINE = Config(clusters={"prod": nowhere})
    answer = operator.post("/actions/plan", {"cluster": "prod", "act": "fence", "subject": "payments-7"})
    assert answer.status_code == 409
    shown = html.unescape(answer.content.decode())
    assert "No plan can be made for prod" in shown
    assert "Plan again</button>" in shown


def test_a_confirmed_plan_is_sent_once_and_its_page_is_the_audit_entry(
    operator: Client, sent: list[Any]
) -> None:
    action = factories.planned_action()
    answer = confirm(operator, action)
    assert (answer.status_code, answer["Location"]) == (303, f"/actions/{action.pk}")
    shown = text_of(page_text(operator, f"/actions/{action.pk}"))
    assert "operator confirmed it" in shown
    assert "ticket 4411" in shown
    assert confirm(operator, action).status_code == 303  # A double click.
    assert len(sent) == 1


@cases(
    ({"confirm": "payments-"}, 422, "type exactly that"),
    ({"reason": "  "}, 422, "A reason is required"),
    ({"digest": "0" * 64}, 409, "not the plan that was previewed"),
)
def test_what_is_not_confirmed_rightly_is_told_and_keeps_what_was_typed(
    operator: Client, sent: list[Any], fields: dict[str, str], status: int, said: str
) -> None:
    action = factories.planned_action()
    answer = confirm(operator, action, **fields)
    assert answer.status_code == status
    shown = html.unescape(answer.content.decode())
    assert said in shown
    assert 'role="alert"' in shown
    assert 'value="ticket 4411"' in shown or "reason" in fields
    assert action_store.find_action(action.pk).state == "planned"  # type: ignore[union-attr]
    assert not sent


def test_somebody_else_s_execution_is_told(operator: Client, sent: list[Any]) -> None:
    action = factories.executed_action()
    answer = confirm(operator, action)
    assert answer.status_code == 409
    said = "ada has executed"
    assert said in html.unescape(answer.content.decode())
    assert not sent


def test_a_stranger_who_confirms_comes_back_after_signing_in(client: Client, prod: Cluster) -> None:
    action = factories.planned_action()
    client.logout()
    answer = client.post(f"/actions/{action.pk}", {"confirm": "payments-7"})
    assert (answer.status_code, answer["Location"]) == (302, f"/login/?next=/actions/{action.pk}")


@cases(
    ("done", ["done"], "Done at", ""),
    ("stale", ["stale"], "The plan was outdated: nothing was sent.", "Plan again"),
    ("failed", ["failed"], "Failed: nothing was done.", "Plan again"),
    ("unknown", ["unknown"], "Result unknown.", "Plan again"),
    ("partly", ["done", "stale"], "Partly done.", "Plan the other 1 again"),
)
def test_every_end_says_what_to_do(
    operator: Client, state: str, outcomes: list[str], said: str, again: str
) -> None:
    subjects = [factories.fence_subject(f"payments-{n}") for n in range(len(outcomes))]
    action = factories.executed_action(factories.plan(*subjects), *outcomes, state=state)
    markup = page_text(operator, f"/actions/{action.pk}")
    shown = text_of(markup)
    assert said in shown
    assert "LSO of payments-0 moved 48,211 → 49,981" in shown
    assert f"InitProducerId: {outcomes[-1]}" in shown
    assert (again in shown) if again else ("Plan again" not in shown)
    if state == "partly":
        assert 'name="subject" value="payments-1"' in markup
        assert 'name="subject" value="payments-0"' not in markup


def test_two_transactions_of_one_partition_have_their_own_results(operator: Client) -> None:
    both = factories.plan(factories.marker_subject(10), factories.marker_subject(20), act=Act.ABORT_MARKER)
    action = factories.executed_action(both, "done", "stale", state="partly")
    markup = page_text(operator, f"/actions/{action.pk}")
    assert 'name="subject" value="payments-0@20"' in markup
    assert 'name="subject" value="payments-0@10"' not in markup


def test_the_page_links_the_episode_and_the_episode_the_action(operator: Client, prod: Cluster) -> None:
    action = factories.executed_action()
    episode = factories.recovery(
        prod, "payments-7", cause="admin_fence", opened_ms=factories.now_ms() - 3_500
    )
    factories.action_transition(episode, action)
    factories.recovery(prod, "payments-8", opened_ms=factories.now_ms() - 3_500)
    factories.recovery(prod, "payments-7", opened_ms=factories.now_ms() - 900_000)
    shown = page_text(operator, f"/actions/{action.pk}")
    assert re.findall(r'href="(/recoveries/prod/\d+)"', shown) == [f"/recoveries/prod/{episode.pk}"]
    back = page_text(operator, f"/recoveries/prod/{episode.pk}")
    assert f'href="/actions/{action.pk}"' in back
    assert "ticket 4411" in back


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


@cases(
    ([], "No actions in the last 24 h."),
    (["done"], "All actions in the last 24 h were done."),
    (["done", "failed"], "1 of 2 actions in the last 24 h were not fully done."),
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
