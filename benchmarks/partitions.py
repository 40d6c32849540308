"""One poll of all partitions, read, evaluated, and in the database, beside the floor: confluent-kafka's
`list_offsets` of the same partitions in both isolation levels.

2,000 partitions of which transactions hold 50, then 20,000; on three brokers, since one process may not have
as many files open. Between two polls nothing happens, or every partition gets a record: then each has
changed. As a process, in one of `reader.reader_environment`'s: `python -m benchmarks.partitions BOOTSTRAP`;
it polls once for each line that it reads, and prints seconds of reading, seconds of saving, requests,
partitions, and how many of them are held.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.cimpl import NewTopic

from benchmarks.reader import NAME, reader_environment, run_redis
from sandbox.cluster import KafkaCluster
from sandbox.options import ROOT
from tests.waiting import wait_for

PER_TOPIC, FEW, MANY, PINNED, OF_PRODUCER, POLLS = 100, 2_000, 20_000, 50, 10, 5
#: One copy of everything, and room for 7,000 partitions on each broker.
PROPERTIES = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
    "min.insync.replicas": "1",
    "transaction.max.timeout.ms": "3600000",
}
_HEAP = "900m"


def run() -> dict[str, object]:
    """Measure on three brokers and in a process of our own."""
    with tempfile.TemporaryDirectory() as folder, run_redis(Path(folder)) as url:
        cluster = KafkaCluster(Path(folder) / "kafka", properties=PROPERTIES)
        for broker in cluster.brokers:
            broker.heap = _HEAP
        with cluster:
            where = cluster.bootstrap
            make_topics(where, 0, FEW)
            held = hold_partitions(where)
            variables = reader_environment(Path(folder) / "ours", where, url)
            with _watcher(variables, where) as poller:
                figures = _measure(poller, where, FEW, "2,000 partitions, 50 held", 1.0)
                make_topics(where, FEW, MANY)
                figures |= _measure(poller, where, MANY, "20,000 partitions", 3.0)
            del held
    return figures


class PollFigures(NamedTuple):
    """The figures of one poll."""

    asked_s: float
    saved_s: float
    requests: float
    partitions: float
    held: float

    @property
    def all_s(self) -> float:
        """From the first question to the last row."""
        return self.asked_s + self.saved_s


def _measure(poller: _Poller, bootstrap: str, number: int, name: str, limit_s: float) -> dict[str, object]:
    first = poller.poll_until(number)
    idle, busy, floor = [], [], []
    for _ in range(POLLS):
        floor.append(list_offsets(bootstrap, number))
        idle.append(poller.poll_once())
        write_everywhere(bootstrap, number)
        busy.append(poller.poll_once())
    assert busy[-1].held >= PINNED
    ours, theirs = median(each.all_s for each in idle), median(floor)
    return {
        f"{name}: list_offsets in both isolation levels, s": round(theirs, 2),
        f"{name}: first poll, s": round(first.all_s, 2),
        f"{name}: a poll, s (<= {limit_s})": round(ours, 2),
        f"{name}: of it asking the brokers, s": round(median(each.asked_s for each in idle), 2),
        f"{name}: a poll that changes every row, s": round(median(each.all_s for each in busy), 2),
        f"{name}: a poll / list_offsets": round(ours / theirs, 2),
        f"{name}: requests a poll": round(median(each.requests for each in idle)),
    }


def make_topics(bootstrap: str, first: int, last: int) -> None:
    """Make the topics of partitions `first` to `last`, and wait until each has a leader that answers."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    for number in range(first // PER_TOPIC, last // PER_TOPIC):
        client.create_topics([NewTopic(f"t{number}", PER_TOPIC, 1)])[f"t{number}"].result(60)
    wait_for(lambda: list_offsets(bootstrap, last), "all partitions have leaders", 300)


def first_partitions(number: int) -> list[TopicPartition]:
    """Return the first so many partitions."""
    return [TopicPartition(f"t{n // PER_TOPIC}", n % PER_TOPIC) for n in range(number)]


def hold_partitions(bootstrap: str) -> list[Producer]:
    """Open transactions that hold partitions, spread over all topics, for as long as their producers live."""
    spread = first_partitions(FEW)[:: FEW // PINNED]
    producers = []
    for number in range(0, PINNED, OF_PRODUCER):
        settings = {"transactional.id": f"holds-{number}", "transaction.timeout.ms": 3_600_000}
        producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **settings})
        producer.init_transactions(60)
        producer.begin_transaction()
        for each in spread[number : number + OF_PRODUCER]:
            producer.produce(each.topic, b"x", partition=each.partition)
        assert producer.flush(60) == 0
        producers.append(producer)
    return producers


def write_everywhere(bootstrap: str, number: int) -> None:
    """Write a record to every partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "log_level": 0})
    for each in first_partitions(number):
        producer.produce(each.topic, b"x", partition=each.partition)
        producer.poll(0)
    assert producer.flush(120) == 0


def list_offsets(bootstrap: str, number: int) -> float:
    """Return the seconds that confluent-kafka takes for the ends of partitions; 0 where one is missing."""
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    client.list_topics(timeout=60)
    latest = {each: OffsetSpec.latest() for each in first_partitions(number)}
    began = time.monotonic()
    try:
        for level in IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED:
            for future in client.list_offsets(latest, isolation_level=level, request_timeout=60).values():
                future.result()
    except KafkaException:
        return 0.0
    return time.monotonic() - began


class _Poller:
    """A process that polls on request."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def poll_once(self) -> PollFigures:
        """Let it poll everything once."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("look\n")
        self._process.stdin.flush()
        return PollFigures(*map(float, self._process.stdout.readline().split()))

    def poll_until(self, number: int) -> PollFigures:
        """Return the first poll; go on until what is held is known, and everything is seen."""
        first = self.poll_once()
        wait_for(
            lambda: (seen := self.poll_once()).partitions >= number and seen.held >= PINNED,
            "all is seen",
            120,
        )
        return first


@contextmanager
def _watcher(variables: dict[str, str], bootstrap: str) -> Iterator[_Poller]:
    command = [sys.executable, "-m", "benchmarks.partitions", bootstrap]
    with subprocess.Popen(
        command, cwd=ROOT, env=variables, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            yield _Poller(process)
        finally:
            process.kill()


def main(arguments: Sequence[str]) -> None:
    """Poll once for each line."""
    import django

    django.setup()
    from collectors.kafka.partitions import PartitionCollector
    from dashboard.partitions import store as partition_store
    from dashboard.runtime import leases, loop
    from fenceline.kafka.partitions import PartitionVerdict
    from transaction_admin.kafka_python import KafkaPythonAdmin
    from transaction_admin.kafka_reads import KafkaPythonReads

    lease = leases.acquire(NAME, partition_store.NAME, holder="bench", now_ms=loop.now_ms())
    assert lease is not None
    ours = partition_store.PartitionRows(lease, (), vouched=True)
    properties = {"bootstrap.servers": arguments[0]}
    reads, admin = KafkaPythonReads(properties, 60), KafkaPythonAdmin(properties, 60)
    watcher = PartitionCollector(reads, admin, ours, every_s=0.0, grace_s=15.0)
    for _ in sys.stdin:
        watcher._full_at = began = time.monotonic()
        seen = watcher.poll(loop.now_ms(), ours)
        asked = time.monotonic()
        partition_store.save_partitions(lease, seen, now_ms=loop.now_ms())
        saved = time.monotonic()
        held = sum(seen.verdicts.values()) - seen.verdicts.get(PartitionVerdict.CLEAR, 0)
        figures = asked - began, saved - asked, seen.requests, sum(seen.verdicts.values()), held
        print(*figures, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
