"""Proves that failures are played from a page by who may, one at a time, audited, and in a sandbox alone.

The sandbox's own part makes and reads the files that the page goes by; nothing is played here.
"""

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from dashboard.models import AuditEntry, Cluster, Incident, TransitionRecord
from dashboard.system import scenes
from sandbox.scenes.catalogue import SCENES
from sandbox.scenes.player import ScenePlayer
from tests.cases import cases
from tests.web import factories, roles
from tests.web.roles import page_html

pytestmark = pytest.mark.django_db


@pytest.fixture
def data(db: None, tmp_path: Path, settings: Any) -> Path:
    """The folder of this Fenceline, with no sandbox in it."""
    settings.DATA = tmp_path
    factories.tail_collectors(factories.cluster())
    return tmp_path


@pytest.fixture
def player(data: Path, sandbox: ScenePlayer) -> ScenePlayer:
    """A sandbox in that folder."""
    return sandbox


def play(client: Client, scene: str = "zombie") -> Any:
    return client.post("/scenes/play", {"scene": scene})


def audited() -> list[str]:
    """Return who has had what played."""
    rows = AuditEntry.objects.filter(event="scene.played").order_by("pk")
    return [f"{row.actor}: {row.subject_name}" for row in rows]


def requested(data: Path) -> Any:
    path = data / "scene-request"
    return json.loads(path.read_text()) if path.exists() else None


def board(player: ScenePlayer, data: Path, **run: Any) -> None:
    """Write that a scene was played."""
    known = {"scene": "zombie", "by": "ada", "started_ms": 1_795_000_000_000, "ended_ms": None, "lines": []}
    text = json.loads((data / "scenes.json").read_text())
    (data / "scenes.json").write_text(json.dumps(text | {"runs": [known | {"error": ""} | run]}))


def test_every_scene_is_offered_with_what_it_does_and_for_how_long(
    player: ScenePlayer, operator: Client
) -> None:
    text = page_html(operator, "/scenes")
    assert text.count('<tr id="scene-') == len(SCENES)
    for name, scene in SCENES.items():
        assert f'id="scene-{name}"' in text
        assert scene.lasts in text
        assert f"/find?q={scene.subject}" in text
        assert (f'name="scene" value="{name}"' in text) is (scene.brokers == 1)
    assert SCENES["late-marker"].unavailable(1, demo=True) in text


@pytest.mark.parametrize("role", ["operator", "admin"])
def test_who_may_has_a_scene_played_and_it_is_audited(data: Path, player: ScenePlayer, role: str) -> None:
    answer = play(roles.client_with_role(role))
    assert (answer.status_code, answer["Location"]) == (303, "/scenes")
    assert requested(data) == {"scene": "zombie", "by": f"the {role}"}
    assert audited() == [f"the {role}: zombie"]


def test_a_viewer_looks_and_plays_nothing(data: Path, player: ScenePlayer) -> None:
    viewer = roles.client_with_role("viewer")
    text = page_html(viewer, "/scenes")
    assert 'id="cannot-play"' in text
    assert 'action="/scenes/play"' not in text
    assert play(viewer).status_code == 403
    assert (requested(data), audited()) == (None, [])


def test_read_only_plays_nothing(data: Path, player: ScenePlayer, operator: Client, settings: Any) -> None:
    settings.READ_ONLY = True
    assert 'action="/scenes/play"' not in page_html(operator, "/scenes")
    assert play(operator).status_code == 403
    assert (requested(data), audited()) == (None, [])


def test_outside_of_a_sandbox_there_is_no_such_page_and_no_link_to_it(data: Path, operator: Client) -> None:
    assert operator.get("/scenes").status_code == 404
    assert play(operator).status_code == 404
    assert requested(data) is None
    for path in ("/", "/system"):
        assert 'href="/scenes"' not in page_html(operator, path)


def test_in_a_sandbox_the_first_page_and_system_lead_there(player: ScenePlayer, operator: Client) -> None:
    for path in ("/", "/system"):
        assert 'href="/scenes"' in page_html(operator, path)


def test_a_second_one_is_refused_in_words_until_the_first_is_over(
    data: Path, player: ScenePlayer, operator: Client
) -> None:
    play(operator)
    assert 'data-state="waiting"' in page_html(operator, "/scenes")
    play(operator, "timeout")
    text = page_html(operator, "/scenes")
    assert 'id="problem"' in text
    assert "The scene zombie is being played: wait until it is over." in text
    elsewhere = sum(scene.brokers > 1 for scene in SCENES.values())
    assert text.count("disabled") == len(SCENES) - elsewhere
    assert requested(data)["scene"] == "zombie"
    assert audited() == ["the operator: zombie"]
    # No stack runs here, so it ends at once.
    assert player.play_requested()
    play(operator, "timeout")
    assert requested(data)["scene"] == "timeout"


def test_of_many_at_once_one_is_played(tmp_path: Path, settings: Any) -> None:
    settings.DATA = tmp_path
    together = threading.Barrier(8)

    def is_taken(number: int) -> bool:
        together.wait()
        try:
            scenes.leave_request(tmp_path / "scene-request", "zombie", by=str(number))
        except scenes.SceneRefused:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(is_taken, range(8))) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["scene-request"]


@cases(
    ("late-marker", "The scene late-marker cannot be played here. It needs 3 brokers"),
    ("nonsense", "There is no scene “nonsense”: choose one of zombie, timeout,"),
    ("", "There is no scene “”: choose one of"),
    ("x" * 500, f"There is no scene “{'x' * 60}”"),
    ("../../etc", "There is no scene “../../etc”"),
)
def test_what_cannot_be_played_is_refused_in_words(
    data: Path, player: ScenePlayer, operator: Client, scene: str, words: str
) -> None:
    play(operator, scene)
    assert words in page_html(operator, "/scenes")
    assert (requested(data), audited()) == (None, [])


@cases(
    ({"state": "playing", "lines": ["1. begun <b>"]}, ["is being played", "1. begun &lt;b&gt;"]),
    ({"state": "done", "ended_ms": 1_795_000_007_000}, ["is done, after 7 s", "by <bdi>ada</bdi>"]),
    (
        {"state": "failed", "ended_ms": 1_795_000_002_000, "error": "no Kafka answers"},
        ["failed after 2 s: no Kafka answers"],
    ),
)
def test_how_the_last_one_is_going_is_shown(
    data: Path, player: ScenePlayer, operator: Client, run: dict[str, Any], words: list[str]
) -> None:
    assert 'data-state="none"' in page_html(operator, "/scenes")
    board(player, data, **run)
    text = page_html(operator, "/scenes")
    assert f'data-state="{run["state"]}"' in text
    for each in words:
        assert each in text


def test_a_board_that_cannot_be_read_is_no_page(data: Path, operator: Client) -> None:
    for text in ("", "{", "[]", '{"scenes": 3}'):
        (data / "scenes.json").write_text(text)
        assert operator.get("/scenes").status_code == 404


def test_the_open_page_is_fetched_anew_as_soon_as_a_run_moves(
    data: Path, player: ScenePlayer, operator: Client
) -> None:
    first = operator.get("/scenes", headers={"HX-Request": "true"})
    again = {"HX-Request": "true", "If-None-Match": first["ETag"]}
    assert operator.get("/scenes", headers=again).status_code == 304
    board(player, data, state="playing")
    assert operator.get("/scenes", headers=again).status_code == 200


def test_each_step_of_the_tour_is_done_once_its_trace_is_there(
    operator: Client, data: Path, player: ScenePlayer
) -> None:
    def steps() -> str:
        return "".join(re.findall(r'data-done="(y|n)', page_html(operator, "/scenes")))

    now, cluster = factories.now_ms(), Cluster.objects.get()
    run = {"scene": scenes.SCENE, "state": "done", "started_ms": now - 60_000, "ended_ms": now}
    board(player, data, **run, by="demo")
    assert steps() == "nnnnn", "nobody asked for it"
    board(player, data, **run)
    assert steps() == "ynnnn"
    named = {"subject": "transaction:demo-abandoned", "rule": "open_too_long"}
    factories.incident(cluster, opened_ms=now - 90_000, closed_ms=now - 80_000, **named)
    assert steps() == "ynnnn", "that one is of an earlier run"
    row = factories.incident(cluster, opened_ms=now - 50_000, **named)
    operator.post(f"/incidents/{row.pk}/acknowledge")
    assert steps() == "yynnn"
    factories.executed_action(factories.fence_subject("demo-abandoned"))
    assert steps() == "yyynn"
    Incident.objects.filter(pk=row.pk).update(closed_ms=now)
    assert steps() == "yyyyn"
    operator.post(f"/incidents/{row.pk}/notes", {"text": "its host was replaced"})
    assert steps() == "yyyyy"


def test_what_a_scene_left_is_marked_where_it_is_seen(
    player: ScenePlayer, data: Path, operator: Client
) -> None:
    of = factories.cluster()
    for name in (b"demo-zombie", b"payments-7"):
        factories.takeover_history(of, name)
    seen_ms = TransitionRecord.objects.earliest("at_ms").at_ms
    run = {"started_ms": seen_ms - 5_000, "ended_ms": seen_ms + 5_000, "state": "done", "by": "the demo"}
    board(player, data, **run)
    marked = re.findall(r"data-played>([^/]*)</bdi>", page_html(operator, "/events"))
    events = TransitionRecord.objects.filter(transactional_id="demo-zombie").count()
    assert marked == ["played by <bdi>the demo"] * events
    # A former run did not cause what happened later.
    board(player, data, **run | {"started_ms": seen_ms - 900_000, "ended_ms": seen_ms - 890_000})
    assert "data-played" not in page_html(operator, "/events")
