"""Play scenes that were requested on a page: `python -m sandbox.scenes.player DATA BROKERS DEMO`.

It is a separate part of the stack, so that the supervisor ends a scene in order, and a part that the scene
breaks (a worker, a broker, Redis) does not end the player. It shares only two files in DATA with the
dashboard:

scenes.json     the scenes and the last runs: written by the player, read by the dashboard
scene-request   the requested scene: created exclusively by the dashboard, and removed by the player after
                the scene, so that there is never a second one
"""

import contextlib
import json
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sandbox import SandboxError
from sandbox.folder import write_private
from sandbox.options import DemoSize
from sandbox.scenes.catalogue import SCENES

BOARD, REQUEST = "scenes.json", "scene-request"
READY_LINE = "scenes: waiting for a request"
_POLL_S = 0.25
_MOST_RUNS = 10
#: The automatic scenes of a full demo with their delays in seconds, and their requester.
_SHOWN_FIRST, _SHOW_AFTER_S, _DEMO = ("zombie", "timeout", "driver-crash"), 25.0, "the demo"
_ENDED = "It was cut off: the process that played it was ended. What it had begun may still be open."


class ScenePlayer:
    """Plays requested scenes of one stack, and keeps their board."""

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
        """Request the next automatic scene of the demo, unless there is a request already."""
        played = {run["scene"] for run in self._runs}
        wanted = next((name for name in _SHOWN_FIRST if name not in played), None)
        if wanted is None or not (self._data / SCENES[wanted].needs).exists():
            return
        with contextlib.suppress(FileExistsError), (self._data / REQUEST).open("x") as request:
            json.dump({"scene": wanted, "by": _DEMO}, request)

    def play_requested(self) -> bool:
        """Play the requested scene to its end; return False without a request."""
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
        """Return the runs, an unfinished one as failed, because its player has died. Drop its request."""
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
        # Before the board shows the end: a player killed in between must not play it again.
        (self._data / REQUEST).unlink(missing_ok=True)
        run |= {"state": "failed" if error else "done", "error": error, "ended_ms": _now_ms()}
        print(f"scenes: {name}: {run['state']} {error}".rstrip(), flush=True)
        self._write()

    def _write(self) -> None:
        board = {"scenes": self._offered, "runs": self._runs}
        write_private(self._data / BOARD, json.dumps(board, indent=1) + "\n")


def _failure(name: str, data: Path, report: Any) -> str:
    """Play a scene; return the reason of a failure, "" without one."""
    # Imported now, with the Kafka clients that it needs.
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
    """Wait for a request and play it, then restart: Kafka clients leave threads and memory behind."""
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
