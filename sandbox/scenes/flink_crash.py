"""The scene `flink-crash`: a Flink job dies between the completion of a checkpoint and its commits.

A MiniCluster copies a topic exactly once. The scene pauses it after a checkpoint, and kills it if
transactions of that checkpoint are open: their commit is decided, and no process is left to carry it out.
Played again, it first restores the job from its newest checkpoint, which commits the open transactions.
"""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from sandbox import SandboxError, topics
from sandbox.engines.flink import FlinkProcess, checkpoint_number
from sandbox.scenes import wire
from sandbox.scenes.scene_context import Report, Stage, announce_jars, flink_checkpoints, steady_input

FLINK = "2.1"
SOURCE, TARGET, PREFIX = "demo-flink-in", "demo-flink-out", "demo-flink"
SUBTASKS = 2
_TIMEOUT_MS = 600_000
#: Seconds to wait for a checkpoint whose commits are slower than this scene.
_WITHIN_S = 120.0
#: Seconds until all requests of a killed process have arrived at the broker.
_ARRIVED_S = 1.0


def play(stage: Stage, report: Report) -> None:
    """Kill a job with decided, uncommitted transactions."""
    announce_jars(f"flink-{FLINK}", report)
    topics.ensure_topics(stage.bootstrap, {SOURCE: SUBTASKS, TARGET: SUBTASKS})
    root = flink_checkpoints(stage.data_dir)
    with steady_input(stage.bootstrap, SOURCE, *range(SUBTASKS)):
        checkpoint, opened = _killed(stage.bootstrap, root, report)
    names = " and ".join(opened)
    report(
        f"3. {checkpoint.name} is complete, and the job is dead: it was killed before it committed {names}"
    )
    report(f"4. a restore commits them for {_TIMEOUT_MS // 60_000} min; after that their records are lost")
    report(f"Look for: the incident “Flink commit pending” of {PREFIX}; its checkpoints on Flink jobs")
    report("To end it: “Commit … pending transactions” on the incident, or play the scene again: it restores")


def _killed(bootstrap: str, root: Path, report: Report) -> tuple[Path, Sequence[str]]:
    """Run the job and kill it at the right moment; return the checkpoint and its open transactions."""
    until = time.monotonic() + _WITHIN_S
    while time.monotonic() < until:
        former = list(root.glob("*/"))
        with _job(bootstrap, root).start(_newest(root)) as job:
            report(
                f"1. Flink {FLINK} copies {SOURCE} to {TARGET}, exactly once, with two checkpoints a second"
            )
            first = job.wait_for_checkpoint(checkpoint_number(_newest(root)))
            for folder in former:
                shutil.rmtree(folder)
            report(f"2. {first.name} is complete; the job is stopped at the next one, before it commits …")
            checkpoint = _stop_before_commit(job, bootstrap, until)
        time.sleep(_ARRIVED_S)
        if opened := _open_ids(bootstrap, checkpoint):
            return checkpoint, opened
    raise SandboxError(f"not within {_WITHIN_S:.0f} s: a checkpoint whose commits are slower than the kill")


def _stop_before_commit(job: FlinkProcess, bootstrap: str, until: float) -> Path:
    """Pause the job while a new checkpoint's transactions are open; return that checkpoint."""
    while time.monotonic() < until:
        checkpoint = job.wait_for_checkpoint(checkpoint_number(job.checkpoints()[-1]), rest_s=0)
        job.pause()
        if _open_ids(bootstrap, checkpoint):
            return checkpoint
        job.resume()
    raise SandboxError(f"not within {_WITHIN_S:.0f} s: a checkpoint whose commits are slower than the stop")


def _open_ids(bootstrap: str, checkpoint: Path) -> Sequence[str]:
    """Return the open transactions that a checkpoint decided: their ids contain its number."""
    names = [f"{PREFIX}-{subtask}-{checkpoint_number(checkpoint)}" for subtask in range(SUBTASKS)]
    return [name for name in names if wire.has_open_transaction(bootstrap, name)]


def _job(bootstrap: str, root: Path) -> FlinkProcess:
    return FlinkProcess(
        FLINK,
        bootstrap,
        root,
        source=SOURCE,
        target=TARGET,
        prefix=PREFIX,
        parallelism=SUBTASKS,
        sink_properties={"transaction.timeout.ms": str(_TIMEOUT_MS)},
    )


def _newest(root: Path) -> Path | None:
    """Return the newest completed checkpoint, None without any."""
    files = root.glob("*/chk-*/_metadata")
    return max((path.parent for path in files), key=lambda path: path.stat().st_mtime_ns, default=None)
