"""Proves the fencing token: a collector that was paused past its lease is refused, and nothing is doubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from sandbox.kafka import Broker
from sandbox.options import ROOT
from tests.load import Load
from tests.stack import Stack
from tests.waiting import wait_for

pytestmark = pytest.mark.kafka

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


def records_in_topic(bootstrap: str) -> int:
    """Return how many records `__transaction_state` holds; nothing in it was compacted yet."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test"})
    topic = consumer.list_topics("__transaction_state", 10).topics["__transaction_state"]
    ends = [consumer.get_watermark_offsets(TopicPartition(topic.topic, p), 10)[1] for p in topic.partitions]
    consumer.close()
    return sum(ends)


def test_a_paused_collector_is_fenced_and_nothing_is_doubled(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("load", 4, 1)])["load"].result(30)
        with (
            Stack(tmp_path, BOOTSTRAP=broker.bootstrap, DEMO="0") as stack,
            Load(broker.bootstrap, IDS) as load,
            second_worker(stack, tmp_path / "second.log"),
        ):
            wait_for(lambda: tail_of(stack)["records"] > 100, "the first collector reads", DEADLINE_S)
            first, token = stack.pid("worker-tail-0"), tail_of(stack)["token"]
            os.kill(first, signal.SIGSTOP)
            try:
                wait_for(lambda: tail_of(stack)["token"] > token, "the second one takes over", DEADLINE_S)
                taken = tail_of(stack)["records"]
                wait_for(lambda: tail_of(stack)["records"] > taken, "the second one reads", DEADLINE_S)
            finally:
                os.kill(first, signal.SIGCONT)
            wait_for(
                lambda: "lease lost, nothing was saved" in stack.log(), "the first is refused", DEADLINE_S
            )
            load.finish()
            end = records_in_topic(broker.bootstrap)
            wait_for(lambda: tail_of(stack)["records"] >= end, "every record is read", DEADLINE_S)
            assert tail_of(stack)["records"] == end, "each record is counted once"
            rows = stack.api("transactions")["items"]
            assert {row["transactional_id"]: row["state"] for row in rows} == load.told
