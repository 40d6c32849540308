"""Catch-up on 2,000,000 commits in `__consumer_offsets`, beside a bare read of the newest value per key.

Ours ends when the database is complete, with members and the last commits of each key; it counts from the
first poll of a worker that runs. The bare read is a confluent-kafka consumer with the same settings that puts
value by key and ends when its positions are at the ends. Pairs are run in turn, and medians compared.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from struct import Struct

from confluent_kafka import Consumer, TopicPartition

from benchmarks.reader import read_all
from benchmarks.seeding import make_producer
from collectors.kafka.clients import consumer_properties
from fenceline.kafka.coordinator import partition_for
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.kafka.group_commits import commit_offsets

TOPIC, PARTITIONS = "__consumer_offsets", 50
COMMITS, GROUPS, OF_GROUP, PAIRS = 2_000_000, 500, 40, 3
#: Version 4, as Kafka writes it from 4.1 on: offset, leader epoch, no metadata, instant, no tags.
_VALUE = Struct(">hqiBqB")


def run() -> dict[str, object]:
    """Measure on a broker of our own."""
    with tempfile.TemporaryDirectory() as folder, _broker(Path(folder) / "kafka") as broker:
        seed_commits(broker.bootstrap, COMMITS, GROUPS, OF_GROUP)
        bare, ours = [], []
        for pair in range(PAIRS):
            bare.append(_newest_value_per_key(broker.bootstrap))
            ours.append(read_all(Path(folder) / f"ours-{pair}", broker.bootstrap, tasks="offsets"))
        assert all(each["records"] >= COMMITS for each in ours)
    theirs, mine = median(bare), median(each["seconds"] for each in ours)
    return {
        "bare newest value per key, s": round(theirs, 2),
        "ours, database complete, s": round(mine, 2),
        "ours / bare (<= 2.0)": round(mine / theirs, 2),
        "keys": GROUPS * OF_GROUP,
        "resident memory, MB": max(each["rss_mb"] for each in ours),
    }


@contextmanager
def _broker(folder: Path) -> Iterator[Broker]:
    """Run a broker that has the topic, with as many partitions as Kafka gives it by itself."""
    properties = {"offsets.topic.num.partitions": str(PARTITIONS)}
    with Broker(folder, properties=properties) as running:
        create_topics(running.bootstrap, "orders")
        commit_offsets(running.bootstrap, "first", "orders", p0=1)
        yield running


def seed_commits(bootstrap: str, records: int, groups: int, of_group: int) -> None:
    """Write so many commits, of keys in random order, the newest of them now."""
    dice, producer = random.Random(7), make_producer(bootstrap)
    names = [f"group-{number}" for number in range(groups)]
    homes = [partition_for(name.encode(), PARTITIONS) for name in names]
    keys = [(home, _key(name, n)) for home, name in zip(homes, names, strict=True) for n in range(of_group)]
    began_ms = time.time_ns() // 1_000_000 - records // 20
    for number in range(records):
        partition, key = keys[int(dice.random() * len(keys))]
        value = _VALUE.pack(4, number, 0, 1, began_ms + number // 20, 0)
        while True:
            try:
                producer.produce(TOPIC, value, key, partition)
                break
            except BufferError:
                producer.poll(0.1)
        if not number % 100:
            producer.poll(0)
    assert producer.flush(120) == 0


def _key(group: str, partition: int) -> bytes:
    name, topic = group.encode(), b"orders"
    head = b"\x00\x01" + len(name).to_bytes(2, "big") + name + len(topic).to_bytes(2, "big") + topic
    return head + partition.to_bytes(4, "big")


def _newest_value_per_key(bootstrap: str) -> float:
    """Return the seconds that it takes to have the newest value of every key in a dict."""
    consumer = Consumer(
        consumer_properties({"bootstrap.servers": bootstrap}) | {"isolation.level": "read_committed"}
    )
    began = time.monotonic()
    try:
        asked = [TopicPartition(TOPIC, number, -1) for number in range(PARTITIONS)]
        left = {each.partition for each in consumer.offsets_for_times(asked, timeout=30) if each.offset > 0}
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in left])
        newest: dict[bytes, bytes] = {}
        while left:
            for message in consumer.consume(10_000, 0.5):
                if message.error() is not None:
                    left.discard(message.partition())  # its end
                else:
                    newest[message.key()] = message.value()
        return time.monotonic() - began
    finally:
        consumer.close()
