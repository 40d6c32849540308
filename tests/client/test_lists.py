"""Proves the lists: tables for people and pipes, the API's JSON, hostile names, gaps and limits."""

import json

import pytest

from dashboard.models import Cluster, Position
from tests.client.conftest import Fenceline
from tests.client.program import terminal
from tests.web import factories, scenarios

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("viewer")]


def test_each_list_is_a_table(fenceline: Fenceline, prod: Cluster) -> None:
    factories.transaction(prod, "payments-7")
    factories.group(prod, "billing", "BLOCKED", lag_lso=1_204)
    factories.batch(factories.query(prod), 1_203)
    cause = factories.finding(prod, "transaction:payments-7", "critical")
    factories.incident_of(prod, cause, severity="critical")
    for noun, words in {
        "transactions": ["prod", "payments-7", "Ongoing", "open"],
        "groups": ["prod", "billing", "BLOCKED", "Stable", "3", "1,204"],
        "queries": ["prod", "orders_enrich", "running", "exactly_once", "1,203"],
        "incidents": ["critical", "open", "prod"],
    }.items():
        done = fenceline(noun)
        assert (done.status, done.err) == (0, "")
        _, row = done.out.splitlines()
        assert [word for word in words if word not in row] == []


def test_an_empty_list_is_its_headings(fenceline: Fenceline) -> None:
    (line,) = fenceline("groups").out.splitlines()
    assert line.split()[:2] == ["cluster", "group"]


def test_json_is_the_apis(fenceline: Fenceline, prod: Cluster) -> None:
    factories.group(prod, "billing")
    document = json.loads(fenceline("groups", "--json").out)
    assert {*document} == {"items", "next", "as_of", "gaps"}
    assert document["items"][0]["group"] == "billing"


def test_criteria_are_the_apis_and_wrong_ones_are_refused_by_it(fenceline: Fenceline, prod: Cluster) -> None:
    factories.group(prod, "billing", "BLOCKED")
    factories.group(prod, "audit", "OK")
    assert "audit" not in fenceline("groups", "--status", "BLOCKED").out
    assert "billing" not in fenceline("groups", "--search", "udi").out
    assert fenceline("groups", "--cluster", "gone").error.endswith("No cluster 'gone' is configured.")
    wrong = fenceline("groups", "--status", "BROKEN")
    assert wrong.status == 2
    assert "answered 422: query.status" in wrong.error


def test_a_limit_says_that_there_is_more(fenceline: Fenceline, prod: Cluster) -> None:
    prod.collector_set.filter(name__in=("transaction_state", "judge")).delete()
    Position.objects.all().delete()
    scenarios.busy_transactions(prod, 620)
    some = fenceline("transactions", "--limit", "3")
    assert len(some.out.splitlines()) == 4
    assert some.error == "These are the first 3; --limit shows more."
    many = json.loads(fenceline("transactions", "--limit", "600", "--json").out)["items"]
    assert len({item["transactional_id"] for item in many}) == 600
    assert fenceline("transactions", "--limit", "100000").err == ""


def test_what_was_not_seen_is_reported_beside_the_list(fenceline: Fenceline, prod: Cluster) -> None:
    factories.gap(prod, source="groups", reason="broker 2 refuses DESCRIBE")
    done = fenceline("groups")
    assert done.status == 0
    assert done.error == "Not all was seen on prod (groups): broker 2 refuses DESCRIBE"


def test_names_of_a_cluster_command_no_terminal(fenceline: Fenceline, prod: Cluster) -> None:
    for name in factories.HOSTILE_IDS:
        factories.transaction(prod, name)
    factories.group(prod, "billing", error="\x1b]0;owned\x07\u202e")
    factories.query(prod, "evil\x1b[2J\nname", state="failed")
    for noun in ("transactions", "groups", "queries"):
        out = fenceline(noun).out
        assert [line for line in out.splitlines() if not line.isprintable()] == []
        assert all(map(str.isascii, fenceline(noun, "--json").out))
    assert r"evil\x1b[2J\nname" in fenceline("queries").out


def test_a_pipe_gets_whole_names_without_colours_and_a_terminal_what_fits(
    fenceline: Fenceline, prod: Cluster
) -> None:
    name = "a-long-name-" * 20 + "7"
    factories.group(prod, name, "BLOCKED")
    piped = fenceline("groups").out
    assert name in piped
    assert "\x1b" not in piped
    with terminal("groups", columns=100) as screen:
        assert screen.status() == 0
    assert "\x1b[31mBLOCKED" in screen.text
    assert name not in screen.text
    assert "a-long-name-" in screen.text
    with terminal("groups", columns=100, NO_COLOR="1") as screen:
        assert screen.status() == 0
    assert "\x1b" not in screen.text
    assert max(map(len, screen.text.splitlines())) <= 100
