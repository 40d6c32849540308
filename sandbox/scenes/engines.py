"""Scenes of applications on other engines than Spark: Kafka Connect, Flink and Kafka Streams.

`connect-restart`: a worker of Kafka Connect dies, and its source connector comes back with fewer tasks. The
task's transaction stays open while no worker runs. The new leader initialises the ids of all former tasks
before it starts new ones (KIP-618), which ends the transaction.

`flink-crash`: a Flink job dies between the completion of a checkpoint and its commits. A MiniCluster copies a
topic exactly once. The scene pauses it after a checkpoint, and kills it if transactions of that checkpoint
are open: their commit is decided, and no process is left to carry it out. Played again, it first restores
the job from its newest checkpoint, which commits the open transactions.

`streams-zombie`: an instance of a Kafka Streams application is paused past its timeouts. Its group gives its
tasks to the other instance, but no producer takes its transactional id over: its open transaction blocks the
application's output until the timeout. Then the instance resumes as a zombie, and its producer is refused.
"""

import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from sandbox import SandboxError, clients, wait_until
from sandbox.engines.flink import FlinkProcess, checkpoint_number
from sandbox.engines.kafka import ConnectWorker, StreamsInstance, connect_worker, streams_instance
from sandbox.scenes.paused import pause_process
from sandbox.scenes.scene_context import Report, Stage, announce_jars, flink_checkpoints, steady_input
from sandbox.scenes.wire import has_open_transaction

GROUP, CONNECTOR, MIRRORED = "demo-connect", "mirror", "demo-connect-in"
TASKS_BEFORE, TASKS_AFTER = 3, 1
#: The task with input, and so with a transaction.
BUSY = f"{GROUP}-{CONNECTOR}-0"
#: Seconds without a worker.
AWAY_S = 25
#: Seconds to wait for each step. The coordinator checks for timed-out transactions every 10 s; the rest is
#: for a busy machine, or for a checkpoint whose commits are slower than the scene.
_WITHIN_S = 120.0
#: A transaction spans many polls: with the default of one per poll, hardly any would be open at a kill.
_CONNECTOR_SETTINGS = {
    "transaction.boundary": "interval",
    "transaction.boundary.interval.ms": "30000",
    "producer.override.transaction.timeout.ms": "300000",
}
FLINK = "2.1"
FLINK_SOURCE, FLINK_TARGET, FLINK_PREFIX = "demo-flink-in", "demo-flink-out", "demo-flink"
SUBTASKS = 2
_FLINK_TIMEOUT_MS = 600_000
#: Seconds until all requests of a killed process have arrived at the broker.
_ARRIVED_S = 1.0
APPLICATION = "demo-streams"
STREAMS_SOURCE, STREAMS_TARGET = f"{APPLICATION}-in", f"{APPLICATION}-out"
SESSION_S, TRANSACTION_S = 6, 40


def connect_restart(stage: Stage, report: Report) -> None:
    """Kill a worker in the middle of a task's transaction, and start its connector with fewer tasks."""
    announce_jars("connect-mirror", report)
    clients.ensure_topics(stage.bootstrap, {MIRRORED: TASKS_BEFORE})
    folder = stage.data_dir / "connect"
    shutil.rmtree(folder, ignore_errors=True)
    with connect_worker(folder, stage.bootstrap, GROUP) as worker:
        _mirror(worker, stage.bootstrap, TASKS_BEFORE)
        report(f"1. a worker of {GROUP} runs the source connector {CONNECTOR} with {TASKS_BEFORE} tasks")
        with steady_input(stage.bootstrap, MIRRORED, 0):
            wait_until(
                lambda: has_open_transaction(stage.bootstrap, BUSY),
                f"{BUSY} has a transaction open",
                _WITHIN_S,
            )
    report(f"2. the worker was killed in the middle of a transaction of task 0: {BUSY}")
    report(f"3. nobody ends it while no worker runs, for {AWAY_S} s …")
    time.sleep(AWAY_S)
    with connect_worker(folder, stage.bootstrap, GROUP) as worker:
        _mirror(worker, stage.bootstrap, TASKS_AFTER)
        _wait_ended(stage.bootstrap)
        report(
            f"4. a worker is back with {TASKS_AFTER} task; its leader initialised the ids of {TASKS_BEFORE}"
        )
        worker.delete(CONNECTOR)
        _wait_ended(stage.bootstrap)
    report(f"Look for: {BUSY}, whose page names connector and task; re-initialisations of the idle ones")


def _wait_ended(bootstrap: str) -> None:
    wait_until(lambda: not has_open_transaction(bootstrap, BUSY), f"{BUSY} has nothing open", _WITHIN_S)


def _mirror(worker: ConnectWorker, bootstrap: str, tasks: int) -> None:
    worker.mirror(CONNECTOR, bootstrap, MIRRORED, tasks, _CONNECTOR_SETTINGS)


def flink_crash(stage: Stage, report: Report) -> None:
    """Kill a job with decided, uncommitted transactions."""
    announce_jars(f"flink-{FLINK}", report)
    clients.ensure_topics(stage.bootstrap, {FLINK_SOURCE: SUBTASKS, FLINK_TARGET: SUBTASKS})
    root = flink_checkpoints(stage.data_dir)
    with steady_input(stage.bootstrap, FLINK_SOURCE, *range(SUBTASKS)):
        checkpoint, opened = _killed(stage.bootstrap, root, report)
    names = " and ".join(opened)
    report(
        f"3. {checkpoint.name} is complete, and the job is dead: it was killed before it committed {names}"
    )
    report(
        f"4. a restore commits them for {_FLINK_TIMEOUT_MS // 60_000} min; after that their records are lost"
    )
    report(f"Look for: the incident “Flink commit pending” of {FLINK_PREFIX}; its checkpoints on Flink jobs")
    report("To end it: “Commit … pending transactions” on the incident, or play the scene again: it restores")


def _killed(bootstrap: str, root: Path, report: Report) -> tuple[Path, Sequence[str]]:
    """Run the job and kill it at the right moment; return the checkpoint and its open transactions."""
    until = time.monotonic() + _WITHIN_S
    while time.monotonic() < until:
        former = list(root.glob("*/"))
        with _flink_job(bootstrap, root).start(_newest(root)) as job:
            report(
                f"1. Flink {FLINK} copies {FLINK_SOURCE} to {FLINK_TARGET}, exactly once, "
                "with two checkpoints a second"
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
    names = [f"{FLINK_PREFIX}-{subtask}-{checkpoint_number(checkpoint)}" for subtask in range(SUBTASKS)]
    return [name for name in names if has_open_transaction(bootstrap, name)]


def _flink_job(bootstrap: str, root: Path) -> FlinkProcess:
    return FlinkProcess(
        FLINK,
        bootstrap,
        root,
        source=FLINK_SOURCE,
        target=FLINK_TARGET,
        prefix=FLINK_PREFIX,
        parallelism=SUBTASKS,
        sink_properties={"transaction.timeout.ms": str(_FLINK_TIMEOUT_MS)},
    )


def _newest(root: Path) -> Path | None:
    """Return the newest completed checkpoint, None without any."""
    files = root.glob("*/chk-*/_metadata")
    return max((path.parent for path in files), key=lambda path: path.stat().st_mtime_ns, default=None)


def streams_zombie(stage: Stage, report: Report) -> None:
    """Pause one of two instances during a transaction until the transaction has timed out."""
    announce_jars("kafka-streams", report)
    clients.ensure_topics(stage.bootstrap, {STREAMS_SOURCE: 2, STREAMS_TARGET: 2})
    folder = stage.data_dir / "streams"
    shutil.rmtree(folder, ignore_errors=True)
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                streams_instance(
                    folder / f"{number}", STREAMS_SOURCE, STREAMS_TARGET, _streams_settings(stage.bootstrap)
                )
            )
            for number in (1, 2)
        ]
        stack.enter_context(steady_input(stage.bootstrap, STREAMS_SOURCE, 0, 1))
        for instance in started:
            instance.wait_running()
        report(f"1. two instances of {APPLICATION} count records, exactly once")
        _pause_one(stage.bootstrap, started[0], report)
        wait_until(lambda: started[0].state == "RUNNING", "the instance has tasks again", _WITHIN_S)
        report("5. the instance is back: its producer was refused, and it has initialised its id again")
    report(f"Look for: the id’s page, which names process and thread; its timeout on Events of {APPLICATION}")


def _pause_one(bootstrap: str, zombie: StreamsInstance, report: Report) -> None:
    name = f"{APPLICATION}-{zombie.process}-1"

    def paused_amid() -> bool:
        zombie.pause()
        if has_open_transaction(bootstrap, name):
            return True
        zombie.resume()
        return False

    wait_until(paused_amid, f"{name} has a transaction open", _WITHIN_S)
    with pause_process(zombie.pid):
        report(f"2. the process {zombie.pid} is paused in the middle of a transaction: {name}")
        report(f"3. after {SESSION_S} s its group gives its tasks away; its transaction stays open …")
        wait_until(lambda: not has_open_transaction(bootstrap, name), "the transaction times out", _WITHIN_S)
        report(f"4. its coordinator has aborted the transaction: a timeout of {TRANSACTION_S} s")


def _streams_settings(bootstrap: str) -> dict[str, str]:
    return {
        "application.id": APPLICATION,
        "bootstrap.servers": bootstrap,
        "session.timeout.ms": str(SESSION_S * 1_000),
        "heartbeat.interval.ms": "1000",
        "commit.interval.ms": "1000",
        "producer.transaction.timeout.ms": str(TRANSACTION_S * 1_000),
        # By default counts are sent only at the commit, and a transaction is open for only some milliseconds.
        "statestore.cache.max.bytes": "0",
    }
