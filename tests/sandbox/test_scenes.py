"""Scenes do to a real broker what they say, and refuse every Kafka but the sandbox's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from fenceline.decode.transaction_state import decode
from fenceline.encode import encode_key
from fenceline.facts import State, TransactionRecord
from sandbox import clients, demo, scenes, wire
from sandbox.errors import SandboxError
from sandbox.kafka import Broker
from tests.kafka.observe import raw_records
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return a broker that looks for timed-out transactions twice a second."""
    often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    with Broker(tmp_path_factory.mktemp("kafka"), properties=often) as broker:
        yield broker.bootstrap


def end_of(bootstrap: str, topic: str, partition: int, isolation: str) -> int:
    """Return the LSO (read_committed) or the high watermark (read_uncommitted)."""
    own = {"group.id": "test", "isolation.level": isolation}
    reader = Consumer({**clients.settings(bootstrap, "test"), **own})
    try:
        return int(reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)[1])
    finally:
        reader.close()


@pytest.mark.kafka
@pytest.mark.parametrize(("name", "partition"), [("zombie", 0), ("timeout", 1)])
def test_the_loser_is_fenced_and_nothing_stays_open(bootstrap: str, name: str, partition: int) -> None:
    said: list[str] = []
    scenes.play(name, bootstrap, said.append)
    assert [line for line in said if line.startswith("4.") and "refused: _FENCED" in line]
    stable, high = (
        end_of(bootstrap, "orders", partition, f"read_{kind}") for kind in ("committed", "uncommitted")
    )
    assert stable == high > 0


def last_record(bootstrap: str, transactional_id: str) -> TransactionRecord:
    """Return what the coordinator wrote last of an id."""
    key = encode_key(transactional_id)
    values = [record.value for record in raw_records(bootstrap) if record.key == key]
    found = decode(key, values[-1])
    assert isinstance(found, TransactionRecord)
    return found


@pytest.mark.kafka
def test_fence_ends_a_healthy_transaction_and_leaves_nobody(bootstrap: str) -> None:
    said: list[str] = []
    scenes.play("fence", bootstrap, said.append)
    assert [line for line in said if line.startswith("3.") and "refused: _FENCED" in line]
    assert end_of(bootstrap, "orders", 2, "read_committed") > 0
    last = last_record(bootstrap, "demo-fence")
    assert (last.state, last.producer_epoch, last.timeout_ms) == (State.EMPTY, 2, 30_000)


@pytest.mark.kafka
def test_rotation_goes_on_under_another_producer_id_as_often_as_it_is_played(bootstrap: str) -> None:
    seen = set()
    for _ in range(2):
        said: list[str] = []
        scenes.play("rotation", bootstrap, said.append)
        last = last_record(bootstrap, "demo-rotation")
        assert (last.state, last.producer_epoch) == (State.COMPLETE_COMMIT, 1)
        assert [line for line in said if f"producer id {last.producer_id}, epoch 0" in line]
        seen.add(last.producer_id)
    assert len(seen) == 2


@pytest.mark.kafka
def test_what_the_coordinator_refuses_is_said_in_words(bootstrap: str) -> None:
    with wire.Coordinator(bootstrap, "refused") as coordinator:
        coordinator.init_producer_id()
        with pytest.raises(wire.Refused, match=r"^InitProducerId was refused: PRODUCER_FENCED$"):
            coordinator.init_producer_id(wire.Identity(12_345, 7))


def test_a_kafka_that_is_gone_is_said_in_words() -> None:
    with pytest.raises(SandboxError, match=r"no Kafka answers at 127\.0\.0\.1:1"):
        wire.Coordinator("127.0.0.1:1", "x")


@pytest.mark.kafka
def test_abandoned_holds_the_lso_until_somebody_takes_over(bootstrap: str) -> None:
    said: list[str] = []
    for _ in range(2):
        scenes.play("abandoned", bootstrap, said.append)
        held = int(said[-4].rpartition("offset ")[2].split()[0])
        assert end_of(bootstrap, "payments", 0, "read_committed") == held
        assert end_of(bootstrap, "payments", 0, "read_uncommitted") == held + 1
    scenes.producer(bootstrap, "demo-abandoned")
    wait_for(lambda: end_of(bootstrap, "payments", 0, "read_committed") > held, "the LSO moves on")


@pytest.mark.kafka
def test_the_demo_commits_to_every_topic_and_stops_when_told(bootstrap: str) -> None:
    import threading

    traffic = demo.Demo(bootstrap)
    thread = threading.Thread(target=traffic.run)
    thread.start()
    try:
        for topic in ("orders", "payments", "payments_ledger"):
            wait_for(lambda topic=topic: sum(_ends(bootstrap, topic)) > 0, f"records on {topic}", 60)  # type: ignore[misc]
    finally:
        traffic.stop.set()
        thread.join(60)
    assert not thread.is_alive()


def _ends(bootstrap: str, topic: str) -> list[int]:
    from sandbox.topics import TOPICS

    return [end_of(bootstrap, topic, number, "read_committed") for number in range(TOPICS[topic])]


def stack_file(folder: Path, parts: list[str]) -> Path:
    """Write a stack.json with these parts."""
    path = folder / "stack.json"
    described = {"kafka": "127.0.0.1:1", "parts": [{"name": name, "pid": 1} for name in parts]}
    path.write_text(json.dumps(described))
    return path


def test_it_takes_the_sandboxes_kafka_from_the_stack(tmp_path: Path) -> None:
    assert scenes.sandbox_bootstrap(stack_file(tmp_path, ["redis", "kafka"])) == "127.0.0.1:1"


def test_it_never_touches_another_kafka(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=r"a Kafka that is not the sandbox's: scenes never touch those"):
        scenes.sandbox_bootstrap(stack_file(tmp_path, ["redis", "web"]))


@pytest.mark.parametrize(
    ("text", "line"),
    [(None, "no stack runs here"), ("{", "cannot be read"), ('{"parts": 3}', "cannot be read")],
)
def test_it_says_when_no_stack_can_be_seen(tmp_path: Path, text: str | None, line: str) -> None:
    path = tmp_path / "stack.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SandboxError, match=line):
        scenes.sandbox_bootstrap(path)


def test_it_names_the_scenes_it_has() -> None:
    with pytest.raises(SandboxError, match=r"no scene 'hanging': choose one of zombie, timeout, abandoned"):
        scenes.play("hanging", "127.0.0.1:1", print)
