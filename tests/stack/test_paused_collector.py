"""Proves the fencing token: a collector that was paused past its lease is refused, and nothing is doubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from sandbox.kafka import Broker
from sandbox.options import ROOT
from tests import databases
from tests.brokers import create_topics
from tests.deployment import Stack
from tests.transaction_load import Load
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.soak]

DEADLINE_S = 60
IDS = 8


@contextmanager
def second_worker(stack: Stack, log: Path) -> Iterator[None]:
    """A second tail worker on the same queue, as a second machine would have."""
    command = [sys.executable, "-m", "celery", "-A", "dashboard.celery", "worker", "-l", "INFO"]
    command += ["-Q", "tail-0", "-P", "threads", "-c", "1", "-n", "second@fenceline"]
    with log.open("w") as output:
        environment = os.environ | stack.environment()
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            wait_for(lambda: "ready." in log.read_text(), "the second worker is ready", DEADLINE_S)
            yield
        finally:
            process.terminate()
            process.wait(30)


def tail_of(stack: Stack) -> dict[str, int]:
    return next(row for row in stack.api("collectors")["items"] if row["name"] == "transaction_state")


def states(stack: Stack) -> dict[str, str]:
    return {row["transactional_id"]: row["state"] for row in stack.api("transactions")["items"]}


def records_in_topic(bootstrap: str) -> int:
    """Return how many records `__transaction_state` holds; nothing in it was compacted yet."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test"})
    topic = consumer.list_topics("__transaction_state", 10).topics["__transaction_state"]
    ends = [consumer.get_watermark_offsets(TopicPartition(topic.topic, p), 10)[1] for p in topic.partitions]
    consumer.close()
    return sum(ends)


def lease_holder(stack: Stack) -> tuple[int, int]:
    """Return the process that holds the tail's lease, and its token."""
    with databases.reading(stack.described()["database"]) as cursor:
        cursor.execute("SELECT holder, token FROM dashboard_collector WHERE name = 'transaction_state'")
        name, token = cursor.fetchone()
    return int(name.rpartition(":")[2].partition("/")[0]), int(token)


def pause_the_holder(stack: Stack, logs: Sequence[Path]) -> None:
    """Stop the process that holds the lease until the other one reads; it must be refused when it wakes.

    Either worker may hold it. A slice that has just begun outlasts the pause, and so ends by a save.
    """
    _, former = lease_holder(stack)
    wait_for(lambda: lease_holder(stack)[1] > former, "a new slice begins", DEADLINE_S)
    paused, token = lease_holder(stack)
    os.kill(paused, signal.SIGSTOP)
    try:
        assert lease_holder(stack) == (paused, token), "it holds the lease while it is paused"
        wait_for(lambda: lease_holder(stack)[1] > token, "the other one takes over", DEADLINE_S)
        assert lease_holder(stack)[0] != paused
        taken = tail_of(stack)["records"]
        wait_for(lambda: tail_of(stack)["records"] > taken, "the other one reads", DEADLINE_S)
    finally:
        os.kill(paused, signal.SIGCONT)
    refused = f"lease lost, nothing was saved: default/transaction_state: token {token} is outdated"
    wait_for(lambda: any(refused in log.read_text() for log in logs), "it is refused", DEADLINE_S)


def test_a_paused_collector_is_fenced_and_nothing_is_doubled(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka") as broker:
        create_topics(broker.bootstrap, "load", partitions=4)
        second = tmp_path / "second.log"
        with (
            Stack(tmp_path, BOOTSTRAP=broker.bootstrap, DEMO="0") as stack,
            Load(broker.bootstrap, IDS) as load,
            second_worker(stack, second),
        ):
            wait_for(lambda: tail_of(stack)["records"] > 100, "a collector reads", DEADLINE_S)
            pause_the_holder(stack, [stack.data / "logs" / "worker-tail-0.log", second])
            load.finish()
            wait_for(lambda: states(stack) == load.told, "what the clients were told", DEADLINE_S)
            end = records_in_topic(broker.bootstrap)
            wait_for(lambda: tail_of(stack)["records"] >= end, "every record is read", DEADLINE_S)
            assert tail_of(stack)["records"] == end, "each record is counted once"
