"""Proves `watch`: it prints incidents as they open, change and close, until Ctrl-C ends it quietly."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dashboard.models import Cluster, Incident
from tests.client.program import PROGRAM, hear_ctrl_c
from tests.receivers import Receiver, answer
from tests.waiting import wait_for
from tests.web import factories

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


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("viewer")
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


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("viewer")
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
