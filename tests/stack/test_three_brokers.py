"""Proves observation of three brokers: under a rolling restart and a kill no finding is wrong, what is
unavailable is reported, and soon after all of it is back every figure is Kafka's own.

The oracle is Kafka's ConsumerGroupCommand, and the offsets that confluent-kafka reads.
"""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from sandbox.kafka import Broker
from sandbox.scenes import brokers, scenes
from sandbox.stack import SANDBOX_OPEN_TOO_LONG_S, SANDBOX_STUCK_IN_PREPARE_S
from tests.brokers import topic_ends
from tests.deployment import Stack
from tests.mcp_agent import Agent
from tests.transaction_load import Load
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.soak]

#: What brokers answer for milliseconds while a leader moves (KIP-207).
PASSING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)

PARTITIONS, GROUP = 6, "readers"
#: Five times the 10 s within which all figures are right again.
RIGHT_WITHIN_S = 50
BACK_WITHIN_S = 120
SEEN_WITHIN_S = 5
#: What may be said while brokers come and go: that we, or a coordinator, cannot see.
ABOUT_SIGHT = {"collector_gap", "coordinator_loading"}
#: One transaction of the load in five is aborted by its own client, brokers or no brokers.
TRUE_OF_THE_LOAD = ("abort_ratio", "application:load")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("three"), BROKERS="3", DEMO="0") as stack:
        admin = AdminClient({"bootstrap.servers": stack.described()["kafka"]})
        admin.create_topics([NewTopic("load", PARTITIONS, 3)])["load"].result(60)
        yield stack


class Reader:
    """A read_committed group that reads on, whatever happens to the brokers."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap, "group.id": GROUP, "isolation.level": "read_committed",
                "auto.offset.reset": "earliest", "auto.commit.interval.ms": 500, "log_level": 0,
            }
        )  # fmt: skip
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> None:
        self._consumer.subscribe(["load"])
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._stopped.is_set():
            self._consumer.consume(500, timeout=0.5)


class Watch:
    """Everything that the stack reported while it was watched: rules with their subjects, and gaps."""

    def __init__(self, stack: Stack) -> None:
        self.reported: set[tuple[str, str]] = set()
        self.gaps: set[tuple[str, str]] = set()
        self._stack, self._stopped = stack, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(0.3):
            answer = self._stack.api("findings")
            self.reported |= {(each["rule"], each["subject"]) for each in answer["items"]}
            for noun in ("partitions", "groups"):
                found = self._stack.api(f"{noun}?limit=1")["gaps"]
                self.gaps |= {(each["source"], each["scope"]) for each in found}


def live(bootstrap: str) -> int:
    return len(AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=10).brokers)


def restart(stack: Stack, number: int, how: signal.Signals) -> None:
    """End one broker; its supervisor starts it again. Return when all three are there and in sync."""
    part, bootstrap = f"kafka-{number}", stack.described()["kafka"]
    before = stack.pid(part)
    os.kill(before, how)
    wait_for(lambda: stack.pids().get(part) not in (None, before), f"{part} is started again", BACK_WITHIN_S)
    wait_for(lambda: live(bootstrap) == 3 and _in_sync(bootstrap), "all are in sync again", BACK_WITHIN_S)


def _in_sync(bootstrap: str) -> bool:
    found = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=10).topics
    partitions = [each for topic in found.values() for each in topic.partitions.values()]
    return all(len(each.isrs) == 3 and each.leader > 0 for each in partitions)


def ends(bootstrap: str) -> dict[int, tuple[int, int]] | None:
    """Return LSO and high watermark by partition, as confluent-kafka reads them; None while a leader is
    new.
    """
    try:
        return topic_ends(bootstrap, "load")
    except KafkaException as error:
        if error.args[0].code() in PASSING:
            return None
        raise


def our_ends(stack: Stack) -> dict[int, tuple[int, int]]:
    rows = stack.api("partitions?q=load&limit=100")["items"]
    return {row["partition"]: (row["lso"], row["high_watermark"]) for row in rows if row["topic"] == "load"}


def lags(bootstrap: str, tool: Broker) -> dict[int, tuple[int, int]]:
    """Return committed offset and lag by partition, as Kafka's own tool describes the group."""
    command = tool.tool_command(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        "--bootstrap-server", bootstrap, "--describe", "--group", GROUP,
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(GROUP)]
    return {int(row[2]): (int(row[3]), int(row[5])) for row in rows}


def our_lags(stack: Stack) -> dict[int, tuple[int, int]]:
    detail: Any = stack.api(f"groups/sandbox/{GROUP}")
    return {each["partition"]: (each["offset"], each["lag_hw"]) for each in detail["offsets"]}


def until(condition: Callable[[], bool], what: str) -> float:
    """Wait until a figure is right; return for how many seconds it was not."""
    began = time.monotonic()
    wait_for(condition, what, RIGHT_WITHIN_S)
    return time.monotonic() - began


@pytest.fixture
def tool(tmp_path: Path) -> Broker:
    """Kafka's own programs; this broker is never started."""
    broker = Broker(tmp_path / "tool")
    broker.prepare()
    return broker


def test_no_finding_is_wrong_and_all_figures_become_correct_again(stack: Stack, tool: Broker) -> None:
    bootstrap = stack.described()["kafka"]
    with Load(bootstrap, 8) as load, Reader(bootstrap):
        wait_for(lambda: len(our_ends(stack)) == PARTITIONS, "every partition is seen", RIGHT_WITHIN_S)
        with Watch(stack) as watch:
            for number in (1, 2, 3):
                restart(stack, number, signal.SIGTERM)
            restart(stack, 2, signal.SIGKILL)
            load.finish()
            took_s = until(lambda: our_ends(stack) == ends(bootstrap), "the oracle's ends")
            print(f"the oracle's ends {took_s:.1f} s after the last broker was back and the load's end")
        said = {each for each in watch.reported if each[0] not in ABOUT_SIGHT} - {TRUE_OF_THE_LOAD}
        # While brokers were away some could not commit: the load knows how long each took.
        limits = {"open_too_long": SANDBOX_OPEN_TOO_LONG_S, "stuck_in_prepare": SANDBOX_STUCK_IN_PREPARE_S}
        assert said <= {
            (rule, f"transaction:{name}")
            for rule, limit_s in limits.items()
            for name, seconds in load.longest.items()
            if seconds > limit_s
        }
        assert watch.gaps, "what could not be seen was said"
        # Read on until nothing changes any more: then both have looked at the same.
        took_s = until(lambda: our_lags(stack) == lags(bootstrap, tool), "the oracle's lags")
        print(f"the oracle's lags {took_s:.1f} s after that")
    wait_for(lambda: not stack.api("partitions?limit=1")["gaps"], "everything is seen again", RIGHT_WITHIN_S)


def played(
    stack: Stack, scene: str, seen: Callable[[], bool], *, since: str, then: Callable[[], None] = lambda: None
) -> float:
    """Play a scene; return how long after its step `since` something was seen; `then` follows."""
    steps: dict[str, float] = {}
    took: list[float] = []

    def watch() -> None:
        wait_for(lambda: since in steps, f"step {since} of {scene}", BACK_WITHIN_S)
        wait_for(seen, f"{scene} is seen", BACK_WITHIN_S)
        took.append(time.monotonic() - steps[since])
        then()

    watcher = threading.Thread(target=watch)
    watcher.start()
    stage = scenes.stack_kafka(stack.data / "stack.json")
    scenes.play(scene, stage, lambda line: steps.setdefault(line[:2], time.monotonic()) and None)
    watcher.join()
    return took[0]


def test_a_coordinator_that_moves_is_one_event_within_5_s(stack: Stack) -> None:
    def events() -> list[Any]:
        return list(stack.api("events?source=coordinator&last=15m")["items"])

    # The first transaction makes the topic.
    scenes.play("zombie", scenes.stack_kafka(stack.data / "stack.json"), lambda line: None)
    wait_for(lambda: bool(stack.api("clusters/sandbox/coordinators")["failovers"]), "leaders are known", 60)
    before = len(events())
    took_s = played(stack, "coordinator-moves", lambda: len(events()) > before, since="2.")
    print(f"the event {took_s:.1f} s after the hand-over began")
    assert took_s <= SEEN_WITHIN_S
    wait_for(lambda: "answered within" in events()[0]["text"], "the new coordinator has answered", 30)
    assert len(events()) == before + 1
    agent = Agent(stack)
    (told,) = [
        each
        for each in agent.call("list_events", cluster="sandbox", last="15m", limit=100)["items"]
        if each["text"] == events()[0]["text"]
    ]
    assert "moved" in told["text"]


def test_one_late_leader_of_three_is_one_incident_that_names_it_within_5_s(stack: Stack) -> None:
    def late() -> list[Any]:
        found = [each for each in stack.api("findings")["items"] if each["rule"] == "stuck_in_prepare"]
        return [each for each in found if each["subject"] == f"transaction:{brokers.LATE_ID}"]

    incidents: set[int] = set()
    agent = Agent(stack)
    explained: list[Any] = []

    def ask() -> None:
        explained.append(agent.explain("sandbox", brokers.LATE_ID))

    def seen() -> bool:
        numbers = [each["number"] for each in stack.api("incidents")["items"]]
        incidents.update(
            number for number in numbers if brokers.LATE_ID in json.dumps(stack.api(f"incidents/{number}"))
        )
        return any(each["next_step"].startswith("Bring back broker ") for each in late())

    took_s = played(stack, "late-marker", seen, since="4.", then=ask)
    print(f"the incident named its leader {took_s:.1f} s after the decision was seen to wait")
    assert took_s <= SEEN_WITHIN_S
    assert len(incidents) == 1
    assert explained[-1]["cause"]["next_step"].startswith("Bring back broker ")
    assert agent.calls <= 3
    wait_for(lambda: not late(), "it is over", BACK_WITHIN_S)
