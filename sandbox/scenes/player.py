"""Plays the scenes that are asked for on a page: `python -m sandbox.scenes.player DATA BROKERS DEMO`.

A part of the stack of its own, so that its supervisor ends a scene in order, and what the scene breaks (a
worker, a broker, Redis) does not end the one who plays it. Two files in DATA are all that it and the
dashboard share:

scenes.json       what can be played, and the last runs: written here, read there
scene-request     the scene that is wanted: made there, exclusively, and removed here when the scene is over,
                  so that there is never a second one
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sandbox.errors import SandboxError
from sandbox.folder import write_private
from sandbox.options import DemoSize
from sandbox.scenes.catalogue import SCENES

BOARD, REQUEST = "scenes.json", "scene-request"
READY_LINE = "scenes: waiting for a request"
_POLL_S = 0.25
_MOST_RUNS = 10
#: What a full demo plays by itself, each after so many seconds, and who asks for it.
_SHOWN_FIRST, _SHOW_AFTER_S, _DEMO = ("zombie", "timeout", "driver-crash"), 25.0, "the demo"
_ENDED = "It was cut off: the process that played it was ended. What it had begun may still be open."


class ScenePlayer:
    """The board of one stack, and who plays what is asked for."""

    def __init__(self, data: Path, brokers: int, *, demo: bool) -> None:
        self._data = data
        self._offered = [
            {
                "name": name,
                "summary": scene.summary,
                "lasts": scene.lasts,
                "subject": scene.subject,
                "unavailable": scene.unavailable(brokers, demo=demo),
            }
            for name, scene in SCENES.items()
        ]
        self._runs = self._cut_off(self._previous_runs())
        self._write()

    def request_first(self) -> None:
        """Ask for the next of the scenes that the demo shows by itself, unless another one is wanted."""
        played = {run["scene"] for run in self._runs}
        wanted = next((name for name in _SHOWN_FIRST if name not in played), None)
        if wanted is None or not (self._data / SCENES[wanted].needs).exists():
            return
        with contextlib.suppress(FileExistsError), (self._data / REQUEST).open("x") as request:
            json.dump({"scene": wanted, "by": _DEMO}, request)

    def play_requested(self) -> bool:
        """Play what is asked for, to its end; False where nothing is."""
        request = self._read_request()
        if request is None:
            return False
        self._play(str(request.get("scene", "")), str(request.get("by", "")))
        return True

    def _previous_runs(self) -> Sequence[dict[str, Any]]:
        try:
            return list(json.loads((self._data / BOARD).read_text())["runs"])
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def _cut_off(self, runs: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """Return the runs, one that was still playing as failed: who played it is dead. Drop its request."""
        for run in runs:
            if run["state"] == "playing":
                run |= {"state": "failed", "error": _ENDED, "ended_ms": _now_ms()}
                (self._data / REQUEST).unlink(missing_ok=True)
        return runs

    def _read_request(self) -> Mapping[str, Any] | None:
        try:
            return dict(json.loads((self._data / REQUEST).read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            print(f"scenes: {self._data / REQUEST} cannot be read and is removed: {error}", flush=True)
            (self._data / REQUEST).unlink(missing_ok=True)
            return None

    def _play(self, name: str, by: str) -> None:
        run: dict[str, Any] = {"scene": name, "by": by, "state": "playing", "lines": [], "error": ""}
        run |= {"started_ms": _now_ms(), "ended_ms": None}
        self._runs = [run, *self._runs][:_MOST_RUNS]

        def report(line: str) -> None:
            print(f"scenes: {name}: {line}", flush=True)
            run["lines"].append(line)
            self._write()

        self._write()
        error = _failure(name, self._data, report)
        # Before the run is over on the board: whoever is ended in between plays it no second time.
        (self._data / REQUEST).unlink(missing_ok=True)
        run |= {"state": "failed" if error else "done", "error": error, "ended_ms": _now_ms()}
        print(f"scenes: {name}: {run['state']} {error}".rstrip(), flush=True)
        self._write()

    def _write(self) -> None:
        board = {"scenes": self._offered, "runs": self._runs}
        write_private(self._data / BOARD, json.dumps(board, indent=1) + "\n")


def _failure(name: str, data: Path, report: Any) -> str:
    """Play a scene; return why it failed, "" where it did not."""
    # Loaded now, with the clients of Kafka that they need.
    from sandbox.scenes import scenes

    try:
        scenes.play(name, scenes.stack_kafka(data / "stack.json"), report)
    except SandboxError as error:
        return str(error)
    except Exception as error:
        traceback.print_exc()
        return f"An error of the scene's own ({type(error).__name__}: {error}): see logs/scenes.log."
    return ""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def main(data: str, brokers: str, demo: str) -> None:
    """Wait for a request and play it, then start anew: clients of Kafka leave threads and memory behind."""
    size = DemoSize(demo)
    player = ScenePlayer(Path(data), int(brokers), demo=size is not DemoSize.NONE)
    print(READY_LINE, flush=True)
    idle_until = time.monotonic() + _SHOW_AFTER_S
    while not player.play_requested():
        time.sleep(_POLL_S)
        if size is DemoSize.FULL and time.monotonic() > idle_until:
            player.request_first()
    os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - itself


if __name__ == "__main__":
    main(*sys.argv[1:4])
