"""Write synthetic records of `__transaction_state` to the benchmark's broker, in any number and at any rate
(docs/design/kafka.md §0).

A producer whose client id is `__admin_client` may write to internal topics. Never use it on a real cluster.
The coordinator does not know these ids until its next start. As a process: `python -m benchmarks.seeding
BOOTSTRAP IDS RATE SECONDS` seeds at a steady rate and prints the actual rate.
"""

import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct

from confluent_kafka import Producer

from fenceline.facts import TopicPartitions, TransactionRecord, TransactionState
from fenceline.kafka.coordinator import partition_for
from sandbox.kafka import Broker
from tests.transaction_state_records import encode_key, encode_value

TOPIC = "__transaction_state"
#: Kafka's default.
PARTITIONS = 50
#: Records of a transaction: begun, a partition added, prepared, complete.
RECORDS = 4
#: Share of transactions that end by a timeout instead of a commit.
NOTABLE = 0.02
_PARTITIONS = (TopicPartitions("orders", (0, 1, 2)), TopicPartitions("payments", (4,)))
_TIMEOUT_MS = 60_000
#: librdkafka's default.
_BATCH_RECORDS = 10_000
_HEAD, _TIMES = Struct(">hqhib"), Struct(">qq")
#: The tag section of a client of protocol 0 or 1.
_NO_TAGS = b"\x00"


def _middle(partitions: tuple[TopicPartitions, ...]) -> bytes:
    """Return the bytes of a value's partitions, the same for every transaction here."""
    record = TransactionRecord("", TransactionState.ONGOING, 0, 0, 0, partitions, 0, 0)
    return encode_value(record)[_HEAD.size : -_TIMES.size - 1]


_OPEN, _DONE = _middle(_PARTITIONS), _middle(())


class Seeds:
    """Transactions of ids in random order; `applications` ids share a name each."""

    def __init__(self, ids: int, seed: int = 7, applications: int = 100) -> None:
        self._dice = random.Random(seed)
        names = [f"app-{number % applications:03}-{number}" for number in range(ids)]
        self._keys = [encode_key(name) for name in names]
        self._partitions = [partition_for(name.encode(), PARTITIONS) for name in names]
        self._epochs = [0] * ids

    def transaction_records(self, now_ms: int) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield partition, key and value of the four records of a transaction that ends at `now_ms`."""
        number = int(self._dice.random() * len(self._keys))
        key, partition, epoch = self._keys[number], self._partitions[number], self._epochs[number]
        times_out = self._dice.random() < NOTABLE
        began_ms = now_ms - (_TIMEOUT_MS + 500 if times_out else 5 + number % 200)
        for status, at_ms in ((1, began_ms), (1, began_ms + 1)):
            yield partition, key, _value(number, epoch, status, _OPEN, at_ms, began_ms)
        if times_out:
            epoch = self._epochs[number] = (epoch + 1) % 30_000
        prepared = 3 if times_out else 2
        yield partition, key, _value(number, epoch, prepared, _OPEN, now_ms - 2, began_ms)
        yield partition, key, _value(number, epoch, prepared + 2, _DONE, now_ms, began_ms)


def _value(number: int, epoch: int, status: int, partitions: bytes, at_ms: int, began_ms: int) -> bytes:
    head = _HEAD.pack(1, 1_000_000 + number, epoch, _TIMEOUT_MS, status)
    return head + partitions + _TIMES.pack(at_ms, began_ms) + _NO_TAGS


def make_producer(bootstrap: str, batch_records: int = _BATCH_RECORDS) -> Producer:
    """Return a producer that may write to internal topics, with at most this number of records in a batch."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "__admin_client",
            "linger.ms": 20,
            "batch.size": 262_144,
            "batch.num.messages": batch_records,
            "queue.buffering.max.messages": 100_000,
            "acks": 1,
        }
    )


@contextmanager
def run_broker(folder: Path) -> Iterator[Broker]:
    """Run a broker that has the topic, with Kafka's default number of partitions."""
    with Broker(folder, properties={"transaction.state.log.num.partitions": str(PARTITIONS)}) as running:
        # Initialising a transactional id makes the broker create `__transaction_state`.
        settings = {"bootstrap.servers": running.bootstrap, "transactional.id": "first", "log_level": 0}
        Producer(settings).init_transactions(60)
        yield running


def seed_records(bootstrap: str, records: int, ids: int, batch_records: int = _BATCH_RECORDS) -> None:
    """Write a number of records at once; the newest ends now.

    The coordinator writes one record a batch. A million such records take 80 s to seed.
    """
    producer, seeds = make_producer(bootstrap, batch_records), Seeds(ids)
    began_ms = time.time_ns() // 1_000_000 - records // 40
    for number in range(records // RECORDS):
        _produce(producer, seeds, began_ms + number // 10)
    producer.flush(120)


def write_steadily(bootstrap: str, ids: int, rate: float, seconds: float) -> float:
    """Write `rate` records a second for a time, in steps of 10 ms; return the actual rate."""
    producer, seeds = make_producer(bootstrap), Seeds(ids)
    began, done = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < seconds:
        now_ms = time.time_ns() // 1_000_000
        while done < elapsed * rate:
            _produce(producer, seeds, now_ms)
            done += RECORDS
        time.sleep(0.01)
    producer.flush(120)
    return done / (time.monotonic() - began)


def _produce(producer: Producer, seeds: Seeds, now_ms: int) -> None:
    for partition, key, value in seeds.transaction_records(now_ms):
        while True:
            try:
                producer.produce(TOPIC, value, key, partition)
                break
            except BufferError:
                producer.poll(0.1)
    producer.poll(0)


if __name__ == "__main__":
    held = write_steadily(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
    print(f"{held:.0f}")
