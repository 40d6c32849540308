"""Proves the commands that read: lists as tables for people and pipes, or the API's JSON, with hostile
names, gaps and limits; `safe-to-stop`, `doctor` and `check` by their exit status; `why` for each noun by
its name, with what it blocks, its incident and the next step; `watch`, which prints incidents as they open,
change and close, until Ctrl-C ends it quietly."""

import json
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dashboard.models import Cluster, Incident, Position
from tests.client.conftest import Fenceline
from tests.client.program import PROGRAM, hear_ctrl_c, terminal
from tests.receivers import Receiver, answer
from tests.waiting import wait_for
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
    expected = "Nothing on cluster prod is named 'nobody'. Check its spelling."
    assert fenceline("why", "nobody", "--cluster", "prod").error == expected
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


EMPTY = b'{"items": [], "next": null, "as_of": null, "gaps": []}'


@contextmanager
def watching(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path, Path]]:
    """Run `watch`; yield its process, and the files of what it prints."""
    out, err = folder / "out", folder / "err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            [*PROGRAM, "watch", "--interval", "1", *arguments],
            stdout=stdout,
            stderr=stderr,
            preexec_fn=hear_ctrl_c,
        )
    try:
        yield process, out, err
    finally:
        process.kill()
        process.wait()


def wait_for_text(path: Path, text: str) -> None:
    wait_for(lambda: text in path.read_text(), f"{text} in {path.name}", 60)


def test_incidents_are_followed_until_ctrl_c(prod: Cluster, tmp_path: Path) -> None:
    with watching(tmp_path) as (process, out, err):
        wait_for_text(out, "No incident is open.")
        row = factories.incident_of(prod, factories.finding(prod, "transaction:payments-7\x1b"))
        wait_for_text(out, f"opened   {row.pk}  warning  prod")
        Incident.objects.filter(pk=row.pk).update(acknowledged_by="ada")
        wait_for_text(out, "(acknowledged by ada)")
        Incident.objects.filter(pk=row.pk).update(
            closed_ms=factories.now_ms(), outcome="payments-7 was fenced by ada."
        )
        wait_for_text(out, "payments-7 was fenced by ada.")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert err.read_text().strip() == ""
    changes = [line.split("  ")[1].strip() for line in out.read_text().splitlines()[1:]]
    assert changes == ["opened", "changed", "closed"]
    assert "\x1b" not in out.read_text()


def test_a_program_gets_a_line_of_json_each(prod: Cluster, tmp_path: Path) -> None:
    row = factories.incident_of(prod, factories.finding(prod, "transaction:payments-7"))
    with watching(tmp_path, "--json", "--cluster", "prod") as (_, out, _):
        wait_for(lambda: out.read_text().endswith("\n"), "a line")
    change = json.loads(out.read_text())
    assert (change["change"], change["incident"]["number"]) == ("open", row.pk)


def test_a_server_that_restarts_is_waited_for_and_a_refusal_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FENCELINE_TOKEN", "secret")
    listed = answer(200, EMPTY, content_type="application/json")
    manners = [listed, answer(503), answer(503), listed, answer(502), answer(401)]
    with Receiver(manners=manners, usually=answer(500)) as there:
        monkeypatch.setenv("FENCELINE_URL", there.url.removesuffix("/hook"))
        with watching(tmp_path) as (process, _, err):
            assert process.wait(60) == 2
    lines = err.read_text().splitlines()
    assert [line.partition(" answered ")[2][:3] for line in lines] == ["503", "502", "401"]
