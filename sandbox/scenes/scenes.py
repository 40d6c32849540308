"""Short scenes for the sandbox; Fenceline should show the result of each.

A scene prints its steps and its traces in Fenceline. It uses its own transactional ids, so the demo's
producers continue undisturbed. Playing a scene again uses the same ids, which first ends its leftover
transactions.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pkgutil import resolve_name
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from sandbox import SandboxError as SandboxError
from sandbox import clients
from sandbox.scenes.catalogue import SCENES as SCENES
from sandbox.scenes.scene_context import Report, Stage, make_producer, open_transaction
from sandbox.scenes.scene_context import stack_kafka as stack_kafka

if TYPE_CHECKING:
    from confluent_kafka import Producer

ABANDONED_TIMEOUT_S = 600
_TIMEOUT_S = 3
#: The coordinator checks for timed-out transactions every 10 s; the rest is for a busy machine.
_ABORTED_WITHIN_S = 60
#: The id's timeout after Java's Admin.fenceProducers: the client's request timeout.
_ADMIN_TIMEOUT_MS = 30_000
#: The last epoch of a producer id; the coordinator gives a new producer id after it.
_LAST_EPOCH = 32766
_PROGRESS_EVERY = 8192


def zombie(stage: Stage, report: Report) -> None:
    """A second instance takes over an id during the first instance's transaction."""
    name = "demo-zombie"
    first = make_producer(stage.bootstrap, name)
    offset = open_transaction(first, "orders", 0, "zombie, first instance")
    report(f"1. the first instance of {name} has a transaction open (orders-0, offset {offset})")
    second = make_producer(stage.bootstrap, name)
    report("2. a second instance has initialised the same id: the coordinator aborted and raised the epoch")
    open_transaction(second, "orders", 0, "zombie, second instance")
    second.commit_transaction(30)
    report("3. the second instance has committed")
    report(f"4. the first instance tried to commit and was refused: {_refused_commit(first)}")
    report(
        f"Look for: {name} with a new epoch; PrepareAbort, CompleteAbort, Empty, then the second one's commit"
    )


def timeout(stage: Stage, report: Report) -> None:
    """A producer takes longer than its own transaction timeout."""
    name = "demo-timeout"
    slow = make_producer(stage.bootstrap, name, timeout_s=_TIMEOUT_S)
    offset = open_transaction(slow, "orders", 1, "timeout")
    report(f"1. {name} has a transaction open with a timeout of {_TIMEOUT_S} s (orders-1, offset {offset})")
    report("2. it does not commit in time; the coordinator checks every 10 s …")
    waited = _wait_for_release(stage.bootstrap, offset)
    report(f"3. the coordinator aborted it after {waited:.1f} s, and the last stable offset moved on")
    report(f"4. its commit was refused: {_refused_commit(slow)}, though nobody took over")
    report(f"Look for: {name} in CompleteAbort, aborted by the broker, and no new instance after it")


def abandoned(stage: Stage, report: Report) -> None:
    """A producer dies during a transaction with a timeout of ten minutes."""
    name = "demo-abandoned"
    command = [sys.executable, "-m", "sandbox.scenes.scenes", stage.bootstrap, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise SandboxError(f"the producer of the scene failed: {done.stderr.strip()[-300:]}")
    offset = done.stdout.strip()
    report(f"1. {name} opened a transaction on payments-0 at offset {offset} and its process is gone")
    report(f"2. the last stable offset of payments-0 is stuck at {offset} and blocks the group billing")
    report(f"Look for: {name} Ongoing, too long open, for up to {ABANDONED_TIMEOUT_S // 60} minutes")
    report("To end it sooner: “Fence producer…” on its page")


def _abandon(bootstrap: str, name: str) -> None:
    """Open a transaction and exit silently, like a killed process."""
    offset = open_transaction(make_producer(bootstrap, name, ABANDONED_TIMEOUT_S), "payments", 0, "abandoned")
    print(offset, flush=True)
    os._exit(0)


def fence(stage: Stage, report: Report) -> None:
    """A third party fences a producer during a transaction, as an administrator's tool would."""
    from sandbox.scenes import wire

    name = "demo-fence"
    healthy = make_producer(stage.bootstrap, name)
    offset = open_transaction(healthy, "orders", 2, "fence")
    report(f"1. {name} has a transaction open (orders-2, offset {offset}), well within its timeout")
    with wire.CoordinatorConnection(stage.bootstrap, name) as coordinator:
        given = coordinator.init_producer_id(timeout_ms=_ADMIN_TIMEOUT_MS)
    report(
        f"2. another client initialised the id, as Admin.fenceProducers does; epoch {given.epoch} is unused"
    )
    report(f"3. its commit was refused: {_refused_commit(healthy)}, and no other instance continues")
    report(
        f"Look for: {name} in Empty with a timeout of {_ADMIN_TIMEOUT_MS // 1000} s, and no transaction after"
    )


def rotation(stage: Stage, report: Report) -> None:
    """An id is initialised until its epochs are used up, and continues with a new producer id."""
    from sandbox.scenes import wire

    name = "demo-rotation"
    _commit_one(stage.bootstrap, name, "rotation, before")
    report(f"1. {name} has committed a transaction")
    with wire.CoordinatorConnection(stage.bootstrap, name) as coordinator:
        first = coordinator.init_producer_id()
        left = _LAST_EPOCH - first.epoch + 1
        report(
            f"2. producer id {first.producer_id} is at epoch {first.epoch}: initialising {left} times more …"
        )
        started = time.monotonic()
        for count, given in enumerate(coordinator.init_again(left), 1):
            if count % _PROGRESS_EVERY == 0:
                report(f"   epoch {given.epoch} after {time.monotonic() - started:.1f} s")
    if given.producer_id == first.producer_id:
        raise SandboxError(f"producer id {first.producer_id} is at epoch {given.epoch} and was not replaced")
    report(
        f"3. after {time.monotonic() - started:.1f} s: producer id {given.producer_id}, epoch {given.epoch}"
    )
    _commit_one(stage.bootstrap, name, "rotation, after")
    report(f"4. {name} has committed under its new producer id; no producer was fenced")
    report(f"Look for: {name} with one rotation, from epoch {_LAST_EPOCH} to a new producer id")


def _refused_commit(producer: Producer) -> str:
    """Return Kafka's error for a commit. Raises SandboxError if the producer can commit."""
    from confluent_kafka import KafkaException

    try:
        producer.commit_transaction(30)
    except KafkaException as refused:
        return str(refused.args[0].name())
    raise SandboxError("the producer could commit, which Kafka should have refused")


def _commit_one(bootstrap: str, name: str, text: str) -> None:
    made = make_producer(bootstrap, name)
    open_transaction(made, "orders", 3, text)
    made.commit_transaction(30)


def _wait_for_release(bootstrap: str, offset: int) -> float:
    """Wait until read_committed consumers may read past an offset of orders-1; return the elapsed seconds."""
    from confluent_kafka import Consumer, TopicPartition

    started = time.monotonic()
    # A read_committed consumer's high watermark is the last stable offset.
    own = {"group.id": "demo-scene", "isolation.level": "read_committed"}
    with closing(Consumer({**clients.client_settings(bootstrap, "scene"), **own})) as reader:
        while reader.get_watermark_offsets(TopicPartition("orders", 1), timeout=10)[1] <= offset:
            if time.monotonic() - started > _ABORTED_WITHIN_S:
                raise SandboxError(f"orders-1 is held at {offset} after {_ABORTED_WITHIN_S} s")
            time.sleep(0.2)
    return time.monotonic() - started


@contextmanager
def _orderly_end() -> Iterator[None]:
    """Exit in order on SIGTERM and SIGHUP: restore all settings and processes that a scene changed."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    here = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGTERM, signal.SIGHUP) if here else ()
    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def play(name: str, stage: Stage, report: Report) -> None:
    """Play a scene. Raises SandboxError for an unknown name, or if no broker answers."""
    from confluent_kafka import KafkaException

    if name not in SCENES:
        raise SandboxError(f"no scene {name!r}: choose one of {', '.join(SCENES)}")
    try:
        with _orderly_end():
            clients.ensure_topics(stage.bootstrap)
            resolve_name(SCENES[name].plays)(stage, report)
    except KafkaException as error:
        raise SandboxError(f"the sandbox's Kafka at {stage.bootstrap} refused: {error}") from None


if __name__ == "__main__":
    _abandon(*sys.argv[1:3])
