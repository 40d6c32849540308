"""Proves that after each of a hundred random faults of a busy day, compressed, every row is what the log
says: an offline replay of every record that was ever in it, to the byte, and Kafka's list of transactions.

The day has its rates, ids that come, go and expire, fences and timeouts; the log is compacted all the time,
behind the collectors. FENCELINE_FAULTS is the number of faults, FENCELINE_SEED what they are drawn with.
"""

import os
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from operator import not_
from pathlib import Path

import psycopg
import pytest
from py4j.java_gateway import JavaGateway

from fenceline.decode import text
from sandbox.cluster import KafkaCluster
from tests import databases, offline_replay
from tests.brokers import PROPERTIES, create_topics, java
from tests.deployment import Stack
from tests.java.clients import JavaAdmin, Listing
from tests.kafka.random_transactions import ClientCluster
from tests.kafka.topic_records import raw_records
from tests.seeds import SEED
from tests.stack.day import faults
from tests.stack.day.busy_day import BusyDay
from tests.stack.day.cutting_proxy import CuttingProxy
from tests.stack.day.recorder import Recorder
from tests.stack.postgres.server import Server
from tests.transaction_load import commit
from tests.waiting import wait_for

__all__ = ["java"]

pytestmark = [pytest.mark.kafka, pytest.mark.soak]

FAULTS = int(os.environ.get("FENCELINE_FAULTS", "100"))
#: To look at one kind of faults: a part of its name.
ONLY = os.environ.get("FENCELINE_FAULT", "")
DEADLINE_S = 120
#: Pollers that were killed leave leases of 40 s behind, the one that follows actions 90 s.
LONGEST_LEASE_S = 90
#: A segment ends after 5 s and is cleaned 3 min later: no fault keeps a collector from it for so long. Ids
#: expire within a minute.
COMPACTED = {
    **PROPERTIES,
    "log.roll.ms": "5000",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.min.compaction.lag.ms": "180000",
    "log.cleaner.backoff.ms": "2000",
    "log.cleaner.delete.retention.ms": "1000",
    "transactional.id.expiration.ms": "40000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "5000",
}
TOPICS = ("day-a", "day-b")
#: A client gives up soon, so that the load can be paused: by default it sends a record for two minutes.
JAVA_SETTINGS = {"delivery.timeout.ms": "10000", "request.timeout.ms": "5000", "max.block.ms": "20000"}
#: Their hashes differ by one, and so do their partitions of ten.
PROBES = ("probe-0", "probe-1")
#: Kinds of transitions that the load makes for certain in a day that is not too short.
KINDS = (
    {"client_abort", "takeover", "reinit", "timeout", "abort", "admin_fence", "expiry"}
    if FAULTS > 30
    else set()
)
_LIST = "SELECT transactional_id, producer_id, state FROM dashboard_transaction"
_AWAY = (sqlite3.OperationalError, psycopg.OperationalError, OSError)


class Checker:
    """Compares what is stored with the witness and with Kafka's list."""

    def __init__(self, database: str, recorder: Recorder, cluster: ClientCluster) -> None:
        self._database, self._recorder, self._cluster = database, recorder, cluster

    def check(self, what: str) -> None:
        """Wait until everything up to now is stored; compare it. Nothing may be under way.

        A commit in a partition of either shard comes first: whoever reads them is back.
        """
        for name in PROBES:
            commit(self._cluster.bootstrap, name)
        ends = self._recorder.wait_for_ends()
        wait_for(lambda: self._is_read(ends), f"{what}: the log is read to {ends}", DEADLINE_S)
        with databases.snapshot(self._database) as cursor:
            positions, rows = offline_replay.positions(cursor), offline_replay.stored_rows(cursor)
        records = wait_for(lambda: self._recorder.before(positions), "the witness reads", DEADLINE_S)
        wrong = offline_replay.differences(offline_replay.replay_records(records), rows)
        assert not wrong, "\n".join([what, *wrong])
        wait_for(self._unlike_the_list, f"{what}: the rows are Kafka's list", DEADLINE_S, until=not_)

    def _is_read(self, ends: Mapping[int, int]) -> bool:
        try:
            with databases.reading(self._database) as cursor:
                stored = offline_replay.positions(cursor)
        except _AWAY:
            return False
        return all(stored.get(number, 0) >= end for number, end in ends.items())

    def _unlike_the_list(self) -> list[str]:
        """Return where the rows differ from Kafka's list, in words: ids may expire between the two."""
        listed = {
            text.escape_bytes(name.encode()): row
            for name, row in self._cluster.admin.list_transactions().items()
        }
        with databases.reading(self._database) as cursor:
            cursor.execute(_LIST)
            rows = {name: Listing(producer_id, state) for name, producer_id, state in cursor.fetchall()}
        names = sorted(name for name in rows.keys() | listed.keys() if rows.get(name) != listed.get(name))
        return [f"{name}: Kafka lists {listed.get(name)}, stored is {rows.get(name)}" for name in names]


def draw(kinds: Sequence[str], dice: random.Random) -> list[str]:
    """Return a name for each fault: each kind as often as any other, in random order."""
    kinds = [name for name in kinds if ONLY in name]
    drawn = [*kinds] * (FAULTS // len(kinds)) + dice.sample([*kinds], FAULTS % len(kinds))
    dice.shuffle(drawn)
    return drawn


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[KafkaCluster, CuttingProxy]]:
    """Three brokers that compact their log, and a way to them that may break."""
    cluster = KafkaCluster(tmp_path / "kafka", properties=COMPACTED)
    with CuttingProxy(cluster, SEED) as proxy, cluster:
        create_topics(cluster.bootstrap, *TOPICS, replicas=3)
        create_topics(cluster.bootstrap, "t", replicas=3)
        commit(cluster.bootstrap, PROBES[0])
        yield cluster, proxy


@contextmanager
def deployed(
    folder: Path, brokers: tuple[KafkaCluster, CuttingProxy], admin: JavaAdmin, database: Server | None
) -> Iterator[faults.Deployment]:
    """A whole stack that sees the brokers through the proxy."""
    cluster, proxy = brokers
    url = database.new_database() if database else ""
    with (
        Stack(folder, BOOTSTRAP=proxy.bootstrap, DEMO="0", SHARDS="1", DATABASE_URL=url) as stack,
        faults.SecondWorker(stack, folder / "second.log") as second,
    ):
        dice = random.Random(SEED)
        yield faults.Deployment(stack, second, cluster, proxy, admin, dice, database)


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_every_row_is_what_the_log_says_after_each_fault(
    tmp_path: Path, brokers: tuple[KafkaCluster, CuttingProxy], java: JavaGateway, database: str
) -> None:
    print(f"\nFENCELINE_SEED={SEED} FENCELINE_FAULTS={FAULTS}")
    bootstrap = brokers[0].bootstrap
    with ExitStack() as opened:
        server = opened.enter_context(Server()) if database == "postgresql" else None
        admin = opened.enter_context(JavaAdmin(java, bootstrap))
        recorder = opened.enter_context(Recorder(bootstrap))
        world = opened.enter_context(deployed(tmp_path, brokers, admin, server))
        clients = ClientCluster(bootstrap, java, admin, TOPICS, JAVA_SETTINGS)
        day = opened.enter_context(BusyDay(clients, SEED))
        checker = Checker(world.stack.described()["database"], recorder, clients)
        play_the_day(world, day, checker, faults.POSTGRESQL if server else faults.SQLITE)
        with day.paused():
            check_the_end(world, recorder)


def play_the_day(
    world: faults.Deployment, day: BusyDay, checker: Checker, kinds: Mapping[str, faults.Fault]
) -> None:
    """Play fault after fault, and compare all rows after each."""
    for number, name in enumerate(draw([*kinds], world.dice)):
        day.hour = number * 24 / FAULTS
        began = time.monotonic()
        world.lasts(0, 1.5)
        with kinds[name](world):
            world.lasts(0, 0.5)
        mended = time.monotonic()
        with day.paused():
            checker.check(f"FENCELINE_SEED={SEED}, fault {number}, {name}")
        took_s, right_s = time.monotonic() - began, time.monotonic() - mended
        print(f"{number:3} {day.hour:4.1f} h {name}: {took_s:.1f} s, right {right_s:.1f} s after it")
    print(f"{dict(day.outcomes)}")


def check_the_end(world: faults.Deployment, recorder: Recorder) -> None:
    """The log was compacted, ids have expired, and nothing is hidden or broken any more."""
    ends = recorder.wait_for_ends()
    records = wait_for(lambda: recorder.before(ends), "the witness reads", DEADLINE_S)
    left = sum(1 for _ in raw_records(world.brokers.bootstrap))
    expired = sum(record.value is None for record in records)
    print(f"{len(records)} records, of which {left} are left, {expired} tombstones")
    assert left < len(records), "the log was compacted"
    with databases.reading(world.stack.described()["database"]) as cursor:
        cursor.execute("SELECT kind, count(*) FROM dashboard_transitionrecord GROUP BY kind")
        kinds = dict(cursor.fetchall())
    print(f"{kinds}")
    assert kinds.keys() >= KINDS, "the load has every kind"
    wait_for(lambda: _troubles(world.stack), "nothing is hidden", LONGEST_LEASE_S + DEADLINE_S, until=not_)
    log = world.stack.log() + world.second.log
    assert "Traceback" not in log, _tracebacks(log)
    assert "deadlock" not in log
    pauses = log.count("lease lost, nothing was saved")
    print(f"{pauses} saves of outdated leases were refused")


def _troubles(stack: Stack) -> list[object]:
    found = stack.api("collectors")
    broken = [row for row in found["items"] if row["error"] or row["undecoded"]]
    return [*broken, *found["gaps"]]


def _tracebacks(log: str) -> str:
    """Return each kind of traceback with how often it came."""
    parts = log.split("Traceback (most recent call last):\n")[1:]
    ends = Counter(next((line for line in part.splitlines() if line[:1].strip()), "") for part in parts)
    return f"{ends.most_common(10)}\n{parts[0][:4_000]}"
