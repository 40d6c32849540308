"""Proves how scenes are played that somebody asks for: one after the other, each to its end, with its steps
and what came of it on the board; and that no scene is played twice when its player is killed. A process that
is paused does nothing, and resumes whatever becomes of the process that paused it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import SandboxError
from sandbox.kafka import Broker
from sandbox.options import ROOT
from sandbox.scenes.catalogue import SCENES
from sandbox.scenes.paused import pause_process
from sandbox.scenes.player import BOARD, REQUEST, ScenePlayer
from tests.brokers import kafka_42
from tests.cases import cases
from tests.waiting import process_state, wait_for

__all__ = ["kafka_42"]
PAUSER = (
    "import sys, time\n"
    "from sandbox.scenes.paused import pause_process\n"
    "with pause_process(int(sys.argv[1])): time.sleep(600)"
)


def board(data: Path) -> Any:
    return json.loads((data / BOARD).read_text())


def request(data: Path, scene: str) -> None:
    partial = data / "partial"
    partial.write_text(json.dumps({"scene": scene, "by": "ada"}))
    partial.rename(data / REQUEST)


def write_stack(data: Path, broker: Broker) -> None:
    """Describe a stack whose Kafka is this broker."""
    assert broker.process
    parts = [{"name": "kafka", "pid": broker.process.pid}]
    described = {"kafka": broker.bootstrap, "data_dir": str(data), "parts": parts}
    (data / "stack.json").write_text(json.dumps(described))


@pytest.mark.kafka
def test_a_scene_is_played_to_its_end_with_its_steps(tmp_path: Path, kafka_42: Broker) -> None:
    write_stack(tmp_path, kafka_42)
    player = ScenePlayer(tmp_path, 1, demo=False)
    assert not player.play_requested()
    request(tmp_path, "fence")
    assert player.play_requested()
    (run,) = board(tmp_path)["runs"]
    assert (run["scene"], run["by"], run["state"], run["error"]) == ("fence", "ada", "done", "")
    assert run["started_ms"] <= run["ended_ms"]
    assert [line[:2] for line in run["lines"][:3]] == ["1.", "2.", "3."]
    assert not (tmp_path / REQUEST).exists()


def test_each_scene_says_whether_this_stack_can_play_it(tmp_path: Path) -> None:
    can = {
        (brokers, demo): {
            each["name"] for each in offered(tmp_path, brokers, demo=demo) if not each["unavailable"]
        }
        for brokers, demo in ((1, True), (1, False), (3, False))
    }
    assert can[1, True] ^ can[1, False] == {"driver-crash"}
    assert can[3, False] ^ can[1, False] == {"late-marker", "coordinator-moves"}


def offered(data: Path, brokers: int, *, demo: bool) -> list[dict[str, str]]:
    ScenePlayer(data, brokers, demo=demo)
    return list(board(data)["scenes"])


@cases(("zombie", "no stack runs here"), ("nonsense", "no stack runs here"), ("", "no stack runs here"))
def test_one_that_fails_says_why_and_lets_the_next_one_begin(tmp_path: Path, scene: str, error: str) -> None:
    player = ScenePlayer(tmp_path, 1, demo=True)
    for count in (1, 2):
        request(tmp_path, scene)
        assert player.play_requested()
        runs = board(tmp_path)["runs"]
        assert [run["state"] for run in runs] == ["failed"] * count
        assert error in runs[0]["error"]
        assert not (tmp_path / REQUEST).exists()


def test_a_kafka_that_is_not_the_sandbox_s_is_left_alone(tmp_path: Path) -> None:
    parts = [{"name": "web", "pid": os.getpid()}]
    described = {"kafka": "kafka.example:9092", "data_dir": str(tmp_path), "parts": parts}
    (tmp_path / "stack.json").write_text(json.dumps(described))
    request(tmp_path, "zombie")
    assert ScenePlayer(tmp_path, 1, demo=True).play_requested()
    assert "not the sandbox's: scenes never touch those" in board(tmp_path)["runs"][0]["error"]


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '"zombie"'])
def test_a_request_that_cannot_be_read_is_dropped(tmp_path: Path, text: str) -> None:
    player = ScenePlayer(tmp_path, 1, demo=True)
    (tmp_path / REQUEST).write_text(text)
    player.play_requested()
    assert not (tmp_path / REQUEST).exists()


def test_one_whose_player_was_killed_has_failed_and_is_not_played_again(tmp_path: Path) -> None:
    player = ScenePlayer(tmp_path, 1, demo=True)
    request(tmp_path, "zombie")
    player.play_requested()
    text = board(tmp_path)
    text["runs"][0] |= {"state": "playing", "ended_ms": None, "error": ""}
    (tmp_path / BOARD).write_text(json.dumps(text))
    request(tmp_path, "zombie")
    after = ScenePlayer(tmp_path, 1, demo=True)
    (run,) = board(tmp_path)["runs"]
    assert run["state"] == "failed"
    assert "cut off" in run["error"]
    assert not after.play_requested()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The part as `make up` starts it."""
    command = [sys.executable, "-m", "sandbox.scenes.player", str(tmp_path), "1", "1"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        yield running
        running.kill()


def test_the_part_starts_anew_after_each_scene_and_keeps_what_was_played(
    tmp_path: Path, process: subprocess.Popen[str]
) -> None:
    wait_for((tmp_path / BOARD).exists, "the board is there", 30)
    for count in (1, 2, 3):
        request(tmp_path, "zombie")
        wait_for(lambda count=count: len(board(tmp_path)["runs"]) == count, "it is played", 30)  # type: ignore[misc]
        wait_for(lambda: not (tmp_path / REQUEST).exists(), "it is over", 30)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == -signal.SIGTERM


@pytest.mark.kafka
def test_a_scene_that_is_ended_with_its_stack_leaves_in_order(
    tmp_path: Path, kafka_42: Broker, process: subprocess.Popen[str]
) -> None:
    write_stack(tmp_path, kafka_42)
    wait_for((tmp_path / BOARD).exists, "the board is there", 30)
    request(tmp_path, "timeout")
    wait_for(lambda: [run for run in board(tmp_path)["runs"] if run["lines"]], "the scene has begun", 60)
    process.send_signal(signal.SIGTERM)
    # By its own way out, not by the signal.
    assert process.wait(30) == 128 + signal.SIGTERM
    ScenePlayer(tmp_path, 1, demo=True)
    (run,) = board(tmp_path)["runs"]
    assert (run["state"], "cut off" in run["error"]) == ("failed", True)
    assert not (tmp_path / REQUEST).exists()


def test_a_full_demo_plays_three_scenes_each_once_it_can(tmp_path: Path) -> None:
    player = ScenePlayer(tmp_path, 1, demo=True)
    asked = []
    for _ in range(5):
        player.request_first()
        if (tmp_path / REQUEST).exists():
            asked.append(json.loads((tmp_path / REQUEST).read_text()))
            # No stack runs here, so it ends at once.
            player.play_requested()
    assert [each["scene"] for each in asked] == ["zombie", "timeout"]
    assert {each["by"] for each in asked} == {"the demo"}
    (tmp_path / SCENES["driver-crash"].needs).mkdir(parents=True)
    player.request_first()
    assert json.loads((tmp_path / REQUEST).read_text())["scene"] == "driver-crash"


@pytest.fixture
def sleeper() -> Iterator[int]:
    """Return the pid of a process that only sleeps."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process.pid
        process.kill()


def fail(pid: int) -> None:
    """Fail while a process is paused."""
    with pause_process(pid):
        wait_for(lambda: process_state(pid) == "T", "the kernel has stopped it")
        raise KeyboardInterrupt


def test_a_paused_process_resumes_afterwards_and_after_a_failure(sleeper: int) -> None:
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            fail(sleeper)
        assert process_state(sleeper) != "T"


def test_a_paused_process_resumes_when_its_pauser_is_killed(sleeper: int) -> None:
    with subprocess.Popen([sys.executable, "-c", PAUSER, str(sleeper)], cwd=ROOT) as pauser:
        wait_for(lambda: process_state(sleeper) == "T", "it is paused")
        pauser.kill()
    wait_for(lambda: process_state(sleeper) != "T", "it goes on")


def test_a_process_that_is_gone_cannot_be_paused() -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    with pytest.raises(SandboxError, match=f"process {gone.pid} cannot be stopped"), pause_process(gone.pid):
        pass
