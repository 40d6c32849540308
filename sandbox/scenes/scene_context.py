"""The stage of scenes, only the sandbox's own Kafka, and shared steps."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox import SandboxError, clients

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer


Report = Callable[[str], None]
#: The brokers' part names in `make up`: a single one, or by node id.
_BROKER = re.compile(r"kafka(?:-(\d+))?")
ANY_PARTITION = -1


@dataclass(frozen=True, slots=True)
class Stage:
    """The sandbox's Kafka: `host:port` of its brokers, the process of each by its node id, and its folder."""

    bootstrap: str
    pids: Mapping[int, int]
    #: The stack's folder.
    data_dir: Path = Path()


def stack_kafka(stack_file: Path) -> Stage:
    """Return the sandbox's own Kafka from a running stack's description.

    Raises SandboxError if none runs, or if its Kafka is a user's own: scenes break things.
    """
    try:
        stack = json.loads(stack_file.read_text())
        parts = {str(part["name"]): int(part["pid"]) for part in stack["parts"]}
        data_dir = Path(stack["data_dir"])
    except FileNotFoundError:
        raise SandboxError(
            f"no stack runs here ({stack_file} is missing): start one with `make up`"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SandboxError(f"{stack_file} cannot be read ({error}): restart with `make up`") from None
    brokers = {_BROKER.fullmatch(name): pid for name, pid in parts.items()}
    pids = {int(name[1] or 1): pid for name, pid in brokers.items() if name}
    if not pids:
        raise SandboxError("this stack watches a Kafka that is not the sandbox's: scenes never touch those")
    return Stage(str(stack["kafka"]), pids, data_dir)


def require_brokers(stage: Stage, scene: str, brokers: int) -> None:
    """Raise SandboxError if a stack has fewer brokers than a scene needs."""
    if len(stage.pids) < brokers:
        raise SandboxError(
            f"{scene} needs {brokers} brokers and this stack has {len(stage.pids)}: start one with "
            f"`make up BROKERS={brokers}`, in another folder with FENCELINE_DATA="
        )


def flink_checkpoints(data_dir: Path) -> Path:
    """Return the folder of the Flink scene's checkpoints, in the folder of a stack."""
    return data_dir / "flink" / "checkpoints"


def announce_jars(jars: str, report: Report) -> None:
    """Fetch a set of jars, and report a download. Raises SandboxError if it fails."""
    from sandbox.java import fetch_jars

    fetch_jars(jars, lambda line: report(f"   {line} …") if ": fetching" in line else None)


def make_producer(bootstrap: str, transactional_id: str, timeout_s: float = 60) -> Producer:
    """Return an initialised transactional producer, labelled demo; it fences the id's former producer."""
    from confluent_kafka import Producer

    settings = {
        **clients.client_settings(bootstrap, transactional_id),
        "transactional.id": transactional_id,
        "transaction.timeout.ms": int(timeout_s * 1000),
        "linger.ms": 5,
    }
    made = Producer(settings)
    made.init_transactions(30)
    return made


def open_transaction(made: Producer, topic: str, partition: int, text: str) -> int:
    """Begin a transaction and write one record; return its offset after the acknowledgement."""
    made.begin_transaction()
    return write_record(made, topic, partition, text)


def write_record(made: Producer, topic: str, partition: int, text: str) -> int:
    """Write one record in the open transaction; return its offset after the acknowledgement."""
    from confluent_kafka import KafkaException, Message

    offsets: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            offsets.append(message.offset() or 0)

    made.produce(topic, value=record_value(text), partition=partition, on_delivery=delivered)
    if made.flush(30) or not offsets:
        raise KafkaException("the broker did not take the record")
    return offsets[0]


def record_value(text: str) -> bytes:
    return json.dumps({"demo": True, "scene": text}).encode()


@contextmanager
def steady_input(bootstrap: str, topic: str, *partitions: int) -> Iterator[None]:
    """Write records to a topic, or to some of its partitions, while the context is open."""
    from confluent_kafka import Producer

    stop, producer = threading.Event(), Producer(clients.client_settings(bootstrap, "demo-input"))

    def write() -> None:
        number = 0
        while not stop.wait(0.02):
            partition = partitions[number % len(partitions)] if partitions else ANY_PARTITION
            producer.produce(topic, key=str(number % 50), value=b'{"demo": true}', partition=partition)
            producer.poll(0)
            number += 1

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        producer.flush(30)
