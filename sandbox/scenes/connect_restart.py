"""The scene `connect-restart`: a worker of Kafka Connect dies, and its source connector comes back with fewer
tasks.

The task's transaction stays open while no worker runs. The new leader initialises the ids of all former tasks
before it starts new ones (KIP-618), which ends the transaction.
"""

import shutil
import time

from sandbox import topics, wait_until
from sandbox.engines.connect import ConnectWorker, connect_worker
from sandbox.scenes.scene_context import Report, Stage, announce_jars, steady_input
from sandbox.scenes.wire import has_open_transaction

GROUP, CONNECTOR, TOPIC = "demo-connect", "mirror", "demo-connect-in"
TASKS_BEFORE, TASKS_AFTER = 3, 1
#: The task with input, and so with a transaction.
BUSY = f"{GROUP}-{CONNECTOR}-0"
#: Seconds without a worker.
AWAY_S = 25
_WITHIN_S = 120.0
#: A transaction spans many polls: with the default of one per poll, hardly any would be open at a kill.
_SETTINGS = {
    "transaction.boundary": "interval",
    "transaction.boundary.interval.ms": "30000",
    "producer.override.transaction.timeout.ms": "300000",
}


def play(stage: Stage, report: Report) -> None:
    """Kill a worker in the middle of a task's transaction, and start its connector with fewer tasks."""
    announce_jars("connect-mirror", report)
    topics.ensure_topics(stage.bootstrap, {TOPIC: TASKS_BEFORE})
    folder = stage.data_dir / "connect"
    shutil.rmtree(folder, ignore_errors=True)
    with connect_worker(folder, stage.bootstrap, GROUP) as worker:
        _mirror(worker, stage.bootstrap, TASKS_BEFORE)
        report(f"1. a worker of {GROUP} runs the source connector {CONNECTOR} with {TASKS_BEFORE} tasks")
        with steady_input(stage.bootstrap, TOPIC, 0):
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
    worker.mirror(CONNECTOR, bootstrap, TOPIC, tasks, _SETTINGS)
