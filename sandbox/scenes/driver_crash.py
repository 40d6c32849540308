"""The scene `driver-crash`: the demo's Spark driver dies between prepared and committed, and comes back.

The scene leaves a request file in the demo's folder. A driver that finds the file after preparing a batch
kills itself and all its children, as kill -9 would. The next start waits for a while, to give you time to
look at the broken link.
"""

import json
import os
import signal
import time
from pathlib import Path

from sandbox import SandboxError, processes, wait_until
from sandbox.folder import write_private
from sandbox.scenes.catalogue import SCENES
from sandbox.scenes.scene_context import Report, Stage

#: Seconds until the driver restarts.
AWAY_S = 20
#: Seconds to wait for a batch: one starts every few seconds, but the query itself may still be starting.
_CRASH_WITHIN_S = 120
_BACK_WITHIN_S = 180


def play(stage: Stage, report: Report) -> None:
    """Kill the driver of orders_enrich with a prepared batch; wait until its restart finishes the batch."""
    folder = stage.data_dir / "spark"
    ledger = stage.data_dir / SCENES["driver-crash"].needs
    if not ledger.is_dir():
        raise SandboxError(
            "the demo's Spark query has written nothing yet: wait for it, or start without DEMO=0"
        )
    if _died(folder).exists():
        raise SandboxError("the driver is still away from the last time: wait until it is back")
    write_private(_wish(folder), json.dumps({"away_s": AWAY_S}))
    report("1. the driver of orders_enrich is to die as soon as it has prepared a batch …")
    wait_until(_died(folder).exists, "the driver prepares a batch", _CRASH_WITHIN_S)
    batch = json.loads(_died(folder).read_text())["batch"]
    report(f"2. batch {batch} is prepared: transactions flushed, decision written; and its driver is dead")
    report(f"   the chain of orders_enrich is broken: no driver commits that batch for the next {AWAY_S} s …")
    wait_until(lambda: any(ledger.glob(f"{batch}.*.done")), f"batch {batch} is finished", _BACK_WITHIN_S)
    report(f"3. the driver is back and has committed batch {batch} first of all (recoverAndCommit)")
    report("Look for: orders_enrich on Queries; every order of that batch once in orders_enriched")


def die_if_wished(folder: Path, batch: int) -> None:
    """Kill this driver and all its children if the scene has requested it."""
    try:
        wish = json.loads(_wish(folder).read_text())
    except FileNotFoundError:
        return
    until = time.time() + wish["away_s"]
    write_private(_died(folder), json.dumps({"batch": batch, "until": until}))
    _wish(folder).unlink()
    others = processes.session_processes({os.getsid(0)}, os.environ[processes.MARKER])
    processes.signal_all(others, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def away_s(folder: Path) -> float:
    """Return the remaining seconds until a driver killed by the scene may restart."""
    try:
        return max(0.0, float(json.loads(_died(folder).read_text())["until"]) - time.time())
    except FileNotFoundError:
        return 0.0


def come_back(folder: Path) -> None:
    _died(folder).unlink(missing_ok=True)


def _wish(folder: Path) -> Path:
    return folder / "driver-crash"


def _died(folder: Path) -> Path:
    return folder / "driver-crashed"
