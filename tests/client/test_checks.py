"""Proves the commands for scripts, by their exit status: safe-to-stop, doctor and check."""

import json

import pytest

from dashboard.models import Cluster
from tests.client.conftest import Fenceline
from tests.web import factories, scenarios

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("viewer")]


def test_a_query_that_is_safe_to_stop(fenceline: Fenceline, prod: Cluster) -> None:
    factories.batch(factories.query(prod), 1_203)
    done = fenceline("safe-to-stop", "orders_enrich")
    assert (done.status, done.err) == (0, "")
    assert done.out.strip()
    assert json.loads(fenceline("safe-to-stop", "orders_enrich", "--json").out)["safe"] is True


def test_a_query_that_a_restart_would_harm_is_not_and_neither_is_its_cluster(
    fenceline: Fenceline, prod: Cluster
) -> None:
    restart = {"first_batch": 1_204, "severity": "critical", "remedy": ""}
    detail = factories.checkpoint_detail(restart=restart)
    factories.query(prod, restart_words="skips batches 0 to 187", detail=detail)
    for arguments in (("orders_enrich",), ("--cluster", "prod"), ("orders_enrich", "--cluster", "prod")):
        done = fenceline("safe-to-stop", *arguments)
        assert (done.status, done.err) == (1, "")
        assert "skips batches 0 to 187" in done.out


def test_a_prepared_batch_that_needs_a_restart_is_named(fenceline: Fenceline, prod: Cluster) -> None:
    scenarios.abandoned_query(prod)
    done = fenceline("safe-to-stop", "orders_enrich")
    assert done.status == 0
    assert "  prepared    Batch 1,204 is prepared and the driver is gone" in done.out


def test_too_little_is_known(fenceline: Fenceline, prod: Cluster) -> None:
    factories.query(prod, checkpoint="")
    done = fenceline("safe-to-stop", "orders_enrich")
    assert (done.status, done.err) == (2, "")
    assert "no configured root holds its checkpoint" in done.out


def test_a_name_that_means_no_query_or_several(fenceline: Fenceline, prod: Cluster) -> None:
    for ident in ("id-1", "id-2"):
        factories.query(prod, "twice", ident, checkpoint=f"file:///{ident}")
    several = fenceline("safe-to-stop", "twice")
    assert several.status == 2
    assert several.error.endswith("Candidates: id-1 on prod, id-2 on prod.")
    assert fenceline("safe-to-stop", "nobody").error.endswith("No query 'nobody' is known.")
    assert fenceline("safe-to-stop", "--cluster", "gone").status == 2
    assert fenceline("safe-to-stop", "..").status == 2


def test_the_doctor_is_content(fenceline: Fenceline, prod: Cluster, server: str) -> None:
    prod.collector_set.create(name="capabilities", detail=capabilities("works", "limited"), **ALIVE)
    done = fenceline("doctor")
    assert (done.status, done.err) == (0, "")
    assert f"ok     connection  {server}" in done.out
    assert "warn   prod" in done.out


def test_the_doctor_reports_what_fails(fenceline: Fenceline, prod: Cluster) -> None:
    prod.collector_set.create(name="capabilities", detail=capabilities("missing"), **ALIVE)
    done = fenceline("doctor", "--cluster", "prod")
    assert done.status == 1
    assert "grant READ" in done.out
    document = json.loads(fenceline("doctor", "--json").out)
    assert document["capabilities"][0]["items"][0]["state"] == "missing"
    prod.collector_set.filter(name="capabilities").delete()
    prod.collector_set.create(
        name="capabilities", detail=capabilities("works") | {"trouble": "no broker answers"}, **ALIVE
    )
    assert fenceline("doctor").status == 1
    prod.collector_set.filter(name="capabilities").delete()
    unseen = fenceline("doctor")
    assert unseen.status == 0
    assert "not checked yet" in unseen.out
    prod.collector_set.filter(name="groups").update(expires_at="2020-01-01T00:00Z")
    stopped = fenceline("doctor")
    assert stopped.status == 1
    assert "no process runs it: check the workers" in stopped.out


def test_the_pre_flight_fails_by_severity(fenceline: Fenceline, prod: Cluster) -> None:
    done = fenceline("check")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("prod: 0 risks; examined: ")
    assert "not examined: " in done.out
    assert json.loads(fenceline("check", "--json", "--cluster", "prod").out)[0]["cluster"] == "prod"
    assert fenceline("check", "--cluster", "gone").status == 2


ALIVE = {"token": 7, "holder": "4017-7f21c0", "expires_at": "2100-01-01T00:00Z", "since_ms": 0}


def capabilities(*states: str) -> dict[str, object]:
    checks = [
        {"name": "lags", "words": "lag of groups", "state": state, "why": "READ is refused",
         "remedies": ["grant READ"]}
        for state in states
    ]  # fmt: skip
    return {"asked_ms": factories.now_ms(), "trouble": "", "checks": checks}
