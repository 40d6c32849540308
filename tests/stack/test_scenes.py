"""Scenes have their described effects on a real broker, and refuse every Kafka but the sandbox's own."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from kafka.protocol.admin.transactions import DescribeProducersRequest, DescribeProducersResponse

from fenceline.facts import TransactionState
from sandbox import SandboxError, clients, demo
from sandbox.kafka import Broker
from sandbox.scenes import hanging, resends, scenes, wire
from sandbox.scenes.scene_context import Stage, make_producer, open_transaction
from tests.cases import cases
from tests.kafka.topic_records import committed_values, end_offset, last_record
from tests.waiting import wait_for

#: Takes the records that the scene's own topic must not have.
STRAYS = "strays"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Return a broker that checks for timed-out transactions twice a second."""
    often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    with Broker(tmp_path_factory.mktemp("kafka"), properties=often) as broker:
        assert broker.process
        yield Stage(broker.bootstrap, {1: broker.process.pid})


@pytest.mark.kafka
@pytest.mark.parametrize(("name", "partition"), [("zombie", 0), ("timeout", 1)])
def test_the_first_producer_is_fenced_and_nothing_stays_open(stage: Stage, name: str, partition: int) -> None:
    said: list[str] = []
    scenes.play(name, stage, said.append)
    assert [line for line in said if line.startswith("4.") and "refused: _FENCED" in line]
    stable, high = (
        end_offset(stage.bootstrap, "orders", partition, committed=committed) for committed in (True, False)
    )
    assert stable == high > 0


@pytest.mark.kafka
def test_a_batch_that_is_sent_twice_is_stored_once(stage: Stage) -> None:
    """Twice: the second play has a producer of its own, which begins at sequence 0 again."""
    for played in (1, 2):
        scene_output(stage, "lost-ack")
        assert len(committed_values(stage.bootstrap, resends.LOST_ACK)) == 2 * played


@pytest.mark.kafka
def test_output_without_its_offsets_is_aborted_and_made_again(stage: Stage) -> None:
    for played in (1, 2):
        scene_output(stage, "crash-before-offsets")
        values = committed_values(stage.bootstrap, resends.INVOICES)
        assert len(values) == len(set(values)) == resends.RECORDS * played
        assert end_offset(stage.bootstrap, resends.INVOICES, 0, committed=False) >= 2 * len(values)


@pytest.mark.kafka
def test_fence_ends_a_healthy_transaction_and_leaves_no_producer(stage: Stage) -> None:
    said: list[str] = []
    scenes.play("fence", stage, said.append)
    assert [line for line in said if line.startswith("3.") and "refused: _FENCED" in line]
    assert end_offset(stage.bootstrap, "orders", 2, committed=True) > 0
    last = last_record(stage.bootstrap, "demo-fence")
    assert (last.state, last.producer_epoch, last.timeout_ms) == (TransactionState.EMPTY, 2, 30_000)


@pytest.mark.kafka
@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_rotation_continues_with_another_producer_id_each_time(stage: Stage, times: int) -> None:
    seen = set()
    for _ in range(times):
        said: list[str] = []
        scenes.play("rotation", stage, said.append)
        last = last_record(stage.bootstrap, "demo-rotation")
        assert (last.state, last.producer_epoch) == (TransactionState.COMPLETE_COMMIT, 1)
        assert [line for line in said if f"producer id {last.producer_id}, epoch 0" in line]
        seen.add(last.producer_id)
    assert len(seen) == times


@pytest.mark.kafka
def test_a_refusal_of_the_coordinator_is_explained(stage: Stage) -> None:
    with wire.CoordinatorConnection(stage.bootstrap, "refused") as coordinator:
        coordinator.init_producer_id()
        with pytest.raises(wire.CoordinatorRefused, match=r"^InitProducerId was refused: PRODUCER_FENCED$"):
            coordinator.init_producer_id(wire.Identity(12_345, 7))


def test_an_unreachable_kafka_is_explained() -> None:
    with pytest.raises(SandboxError, match=r"no Kafka answers at 127\.0\.0\.1:1"):
        wire.CoordinatorConnection("127.0.0.1:1", "x")


@pytest.mark.kafka
def test_abandoned_blocks_the_lso_until_a_takeover(stage: Stage) -> None:
    said: list[str] = []
    for _ in range(2):
        scenes.play("abandoned", stage, said.append)
        held = int(said[-4].rpartition("offset ")[2].split()[0])
        assert end_offset(stage.bootstrap, "payments", 0, committed=True) == held
        assert end_offset(stage.bootstrap, "payments", 0, committed=False) == held + 1
    make_producer(stage.bootstrap, "demo-abandoned")
    wait_for(lambda: end_offset(stage.bootstrap, "payments", 0, committed=True) > held, "the LSO moves on")


def scene_output(stage: Stage, name: str) -> list[str]:
    """Play a scene; return what it said."""
    said: list[str] = []
    scenes.play(name, stage, said.append)
    return said


def active_producers(stage: Stage) -> dict[int, int]:
    """Return the start offset of what each producer has open on the scene's partition, by producer id."""
    request = DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name=hanging.TOPIC, partition_indexes=[0])]
    )
    with wire.Connection(stage.bootstrap) as broker:
        (partition,) = broker.send_request(request, DescribeProducersResponse, 0).topics[0].partitions
    return {each.producer_id: each.current_txn_start_offset for each in partition.active_producers}


def stray_record(stage: Stage, name: str) -> int:
    """Write a record of a transaction that is unknown to every coordinator; return its offset. Raises
    Refused.
    """
    with (
        wire.CoordinatorConnection(stage.bootstrap, name) as coordinator,
        wire.Connection(stage.bootstrap) as broker,
    ):
        identity = coordinator.init_producer_id()
        return wire.produce_records(broker, name, identity, (STRAYS, 0), [b"x"])


def make_topic_for_strays(stage: Stage) -> None:
    """Make the topic, and return once its leader takes records."""
    clients.ensure_topics(stage.bootstrap, {STRAYS: 1})
    made = make_producer(stage.bootstrap, "test-strays")
    open_transaction(made, STRAYS, 0, "none of the strays")
    made.commit_transaction(30)


@pytest.mark.kafka
def test_hanging_blocks_the_lso_and_is_unknown_to_its_coordinator(stage: Stage) -> None:
    for number, held in (1, 0), (2, hanging.RECORDS):
        said = scene_output(stage, "hanging")
        assert [line for line in said if line.startswith("4.") and line.endswith("has the id in Empty")]
        assert said[-1].endswith(f"abort --topic {hanging.TOPIC} --partition 0 --start-offset {held}")
        last = last_record(stage.bootstrap, f"demo-stray-{number}")
        assert (last.state, last.partitions) == (TransactionState.EMPTY, None)
        assert active_producers(stage)[last.producer_id] == held
        assert end_offset(stage.bootstrap, hanging.TOPIC, 0, committed=True) == 0
        assert end_offset(stage.bootstrap, hanging.TOPIC, 0, committed=False) == held + hanging.RECORDS
    make_topic_for_strays(stage)
    with pytest.raises(wire.CoordinatorRefused) as refused:
        stray_record(stage, "refused-stray")
    assert refused.value.code in hanging.VERIFIED


@pytest.mark.kafka
def test_verification_is_on_again_when_a_scene_fails(stage: Stage) -> None:
    make_topic_for_strays(stage)
    with pytest.raises(KeyboardInterrupt):
        fail_without_verification(stage)
    wait_for(lambda: not accepts_strays(stage), "the broker asks the coordinator again")


def fail_without_verification(stage: Stage) -> None:
    """Fail as a scene that is ended in the middle."""
    with hanging.verification_off(AdminClient(clients.client_settings(stage.bootstrap, "test")), 1):
        wait_for(lambda: accepts_strays(stage), "the broker takes what it cannot know")
        raise KeyboardInterrupt


@pytest.mark.kafka
def test_a_scene_that_is_stopped_cleans_up(stage: Stage) -> None:
    def listen(line: str) -> None:
        if line.startswith("2."):
            wait_for(lambda: accepts_strays(stage), "the broker takes what it cannot know")
            os.kill(os.getpid(), signal.SIGTERM)

    make_topic_for_strays(stage)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit):
        scenes.play("hanging", stage, listen)
    assert signal.getsignal(signal.SIGTERM) is before
    wait_for(lambda: not accepts_strays(stage), "the broker asks the coordinator again")


def accepts_strays(stage: Stage) -> bool:
    """Whether the broker takes a transaction's record without asking its coordinator."""
    try:
        stray_record(stage, f"stray-{time.monotonic_ns()}")
    except wire.CoordinatorRefused:
        return False
    return True


@pytest.mark.kafka
@pytest.mark.parametrize("scene", ["late-marker", "coordinator-moves"])
def test_a_scene_of_three_brokers_needs_them(stage: Stage, scene: str) -> None:
    with pytest.raises(SandboxError, match=r"needs 3 brokers and this stack has 1: .*`make up BROKERS=3`"):
        scene_output(stage, scene)


@pytest.mark.kafka
def test_the_demo_commits_to_every_topic_and_stops_on_request(stage: Stage) -> None:
    import threading

    traffic = demo.Demo(stage.bootstrap)
    thread = threading.Thread(target=traffic.run)
    thread.start()
    try:
        for topic in ("orders", "payments", "payments_ledger"):
            wait_for(lambda topic=topic: sum(_ends(stage.bootstrap, topic)) > 0, f"records on {topic}", 60)  # type: ignore[misc]
    finally:
        traffic.stop.set()
        thread.join(60)
    assert not thread.is_alive()


def _ends(bootstrap: str, topic: str) -> list[int]:
    from sandbox.clients import TOPICS

    return [end_offset(bootstrap, topic, number, committed=True) for number in range(TOPICS[topic])]


def stack_file(folder: Path, parts: list[str]) -> Path:
    """Write a stack.json with these parts."""
    path = folder / "stack.json"
    described = {
        "kafka": "127.0.0.1:1",
        "data_dir": str(folder),
        "parts": [{"name": name, "pid": pid} for pid, name in enumerate(parts, 1)],
    }
    path.write_text(json.dumps(described))
    return path


def test_scenes_use_the_sandboxes_kafka(tmp_path: Path) -> None:
    stage = scenes.stack_kafka(stack_file(tmp_path, ["redis", "kafka"]))
    assert stage == Stage("127.0.0.1:1", {1: 2}, tmp_path)


def test_scenes_never_use_another_kafka(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=r"a Kafka that is not the sandbox's: scenes never touch those"):
        scenes.stack_kafka(stack_file(tmp_path, ["redis", "web"]))


@cases((None, "no stack runs here"), ("{", "cannot be read"), ('{"parts": 3}', "cannot be read"))
def test_a_missing_stack_is_reported(tmp_path: Path, text: str | None, line: str) -> None:
    path = tmp_path / "stack.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SandboxError, match=line):
        scenes.stack_kafka(path)


def test_an_unknown_scene_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SandboxError, match=r"no scene 'sleeping': choose one of zombie, timeout, abandoned"):
        scenes.play("sleeping", Stage("127.0.0.1:1", {}), print)
