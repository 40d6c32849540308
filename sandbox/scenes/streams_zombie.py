"""The scene `streams-zombie`: an instance of a Kafka Streams application is paused past its timeouts.

Its group gives its tasks to the other instance, but no producer takes its transactional id over: its open
transaction blocks the application's output until the timeout. Then the instance resumes as a zombie, and its
producer is refused.
"""

import shutil
from contextlib import ExitStack

from sandbox import topics, wait_until
from sandbox.engines.streams import StreamsInstance, streams_instance
from sandbox.scenes.paused import pause_process
from sandbox.scenes.scene_context import Report, Stage, announce_jars, steady_input
from sandbox.scenes.wire import has_open_transaction

APPLICATION = "demo-streams"
SOURCE, TARGET = f"{APPLICATION}-in", f"{APPLICATION}-out"
SESSION_S, TRANSACTION_S = 6, 40
#: The coordinator checks for timed-out transactions every 10 s; the rest is for a busy machine.
_WITHIN_S = 120.0


def play(stage: Stage, report: Report) -> None:
    """Pause one of two instances during a transaction until the transaction has timed out."""
    announce_jars("kafka-streams", report)
    topics.ensure_topics(stage.bootstrap, {SOURCE: 2, TARGET: 2})
    folder = stage.data_dir / "streams"
    shutil.rmtree(folder, ignore_errors=True)
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                streams_instance(folder / f"{number}", SOURCE, TARGET, _settings(stage.bootstrap))
            )
            for number in (1, 2)
        ]
        stack.enter_context(steady_input(stage.bootstrap, SOURCE, 0, 1))
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


def _settings(bootstrap: str) -> dict[str, str]:
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
