"""Proves `why`: each noun by its name, with what it blocks, its incident and the next step."""

import json
import shlex
from collections.abc import Callable

import pytest

from dashboard.models import Cluster
from tests.client.conftest import Fenceline
from tests.web import factories, scenarios

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("viewer")]


@pytest.fixture
def blocked(prod: Cluster) -> int:
    """`payments-7` blocks payments-0 and billing; return the number of the incident."""
    factories.transaction(
        prod, "payments-7", age_ms=842_000, partitions={"payments": [0]}, producer_id=4017, producer_epoch=3
    )
    pin = factories.lso_blocker(prod, "payments", 0, "late", transactional_id="payments-7")
    factories.blocked_offset(factories.group(prod, "billing", "BLOCKED"), pin)
    cause = factories.finding(
        prod, "transaction:payments-7", "critical", summary="payments-7 blocks payments-0"
    )
    effect = factories.finding(prod, "group:billing", next_step="")
    return factories.incident_of(prod, cause, effect, severity="critical").pk


def test_a_transaction_is_explained_with_its_incident(
    fenceline: Fenceline, blocked: int, server: str
) -> None:
    done = fenceline("why", "payments-7")
    assert (done.status, done.err) == (0, "")
    first, *facts = done.out.splitlines()
    assert first.startswith("transaction payments-7 on prod: Ongoing, verdict late, begun 14 min")
    by_label = {line[2:12].strip(): line[14:] for line in facts}
    assert by_label["headline"] == "payments-7 blocks payments-0"
    assert by_label["open in"] == "payments-0"
    assert by_label["blocks"] == "group billing"
    assert by_label["incident"].startswith(f"{blocked}, critical, opened 14 min")
    assert by_label["incident"].endswith(f"{server}/incidents/{blocked}")
    assert by_label["next step"] == "Find its producer; if that is gone, only the timeout or a fence ends it."
    assert by_label["page"] == f"{server}/transactions/prod/payments-7"
    assert by_label["action"] == "fenceline plan fence payments-7 --cluster prod"


def test_a_suggested_plan_can_be_asked_for(
    fenceline: Fenceline, prod: Cluster, signed_in: Callable[[str], str]
) -> None:
    signed_in("operator")
    factories.transaction(prod, "it's-7", partitions={"payments": [0]}, producer_id=4017, producer_epoch=3)
    factories.lso_blocker(
        prod, "payments", 0, "hanging", transactional_id="it's-7", ground="not_its_partition"
    )
    out = fenceline("why", "it's-7").out
    commands = [line.partition("action ")[2] for line in out.splitlines() if "  action " in line]
    assert any("plan abort-marker payments-0@48211 --cluster prod" in command for command in commands), out
    for command in commands:
        # The planner is reached: it finds no broker.
        assert "answered 409: No plan can be made for prod" in fenceline(*shlex.split(command)[1:]).error


def test_who_is_blocked_is_sent_to_the_cause(fenceline: Fenceline, blocked: int) -> None:
    group = fenceline("why", "billing").out
    assert "group billing on prod: BLOCKED" in group
    assert "payments-7 at payments-0" in group
    assert f"  incident    {blocked}, critical" in group
    assert "Find its producer" in group
    partition = fenceline("why", "payments-0").out
    assert "partition payments-0 on prod: verdict late, LSO stuck for" in partition
    assert "up to 1,770 records" in partition
    assert "group billing" in partition
    assert f"  incident    {blocked}, critical" in partition


def test_an_incident_is_found_by_its_number(fenceline: Fenceline, blocked: int) -> None:
    for name in (str(blocked), f"#{blocked}"):
        out = fenceline("why", name).out
        assert out.startswith(f"incident {blocked} on prod: critical, open")
        assert "group:billing" in out
    (document,) = json.loads(fenceline("why", str(blocked), "--json").out)
    assert (document["kind"], document["incident"]["number"]) == ("incident", blocked)


def test_a_query_is_found_by_its_name_even_where_several_have_it(fenceline: Fenceline, prod: Cluster) -> None:
    scenarios.abandoned_query(prod)
    out = fenceline("why", "orders_enrich").out
    assert "query orders_enrich on prod: failed" in out
    assert "1,204; 1 prepared" in out
    for ident in ("id-1", "id-2"):
        factories.query(prod, "twice", ident, checkpoint=f"file:///{ident}")
    assert fenceline("why", "twice").out.count("query twice on prod") == 2


def test_what_is_healthy_needs_nothing(fenceline: Fenceline, prod: Cluster) -> None:
    factories.group(prod, "billing")
    assert "next step   none: no open finding is about it" in fenceline("why", "billing").out


def test_an_unknown_name_gets_similar_ones(fenceline: Fenceline, prod: Cluster) -> None:
    factories.transaction(prod, "payments-7")
    factories.transaction(prod, "payments-8")
    done = fenceline("why", "payments")
    assert (done.status, done.out) == (1, "")
    assert done.error == "Nothing is named 'payments'. Similar: payments-7, payments-8."
    assert fenceline("why", "nobody", "--cluster", "prod").error == (
        "Nothing on cluster prod is named 'nobody'. Check its spelling."
    )
    assert fenceline("why", "payments-7", "--cluster", "gone").error.endswith(
        "No cluster 'gone' is configured."
    )


def test_any_name_of_a_cluster_can_be_asked_for(fenceline: Fenceline, prod: Cluster) -> None:
    for name in (*factories.HOSTILE_IDS, factories.LONG_ID):
        row = factories.transaction(prod, name)
        done = fenceline("why", row.transactional_id)
        assert (done.status, done.err) == (0, ""), name
        assert done.out.startswith(f"transaction {row.transactional_id} on prod: Ongoing")
        assert [line for line in done.out.splitlines() if not line.isprintable()] == []


@pytest.mark.parametrize("name", ["", ".", "..", "a\nb", "\udcff", "x" * 3_000, r"back\slash"])
def test_what_no_cluster_has_is_one_line(fenceline: Fenceline, prod: Cluster, name: str) -> None:
    done = fenceline("why", name)
    assert done.status in (1, 2)
    assert done.error.isprintable()
