"""Proves that one dashboard watches ten clusters, one of them dead and one slow: findings on healthy ones are
stored within 3 s, and the threads, files and memory of each process stay as they are (`make soak`).

Two clusters are real brokers, six are stand-ins before these (`tests/kafka/proxy`), one of which answers 2 s
late; the dead one takes connections and never answers. The fact is a transaction that is open for a second.
"""

import os
import random
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

import psycopg
import pytest

from sandbox.kafka import Broker
from sandbox.ports import HOST
from tests.brokers import PROPERTIES, create_topics
from tests.deployment import Stack
from tests.kafka.producers import LONG, LibrdkafkaProducer
from tests.kafka.proxy.server import KafkaProxy
from tests.seeds import SEED
from tests.stack.postgres.server import Server
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.soak]

SECONDS = int(os.environ.get("FENCELINE_SECONDS", "1800"))
P99_S, LATENCY_S, OPEN_TOO_LONG_S = 3.0, 2.0, 1.0
#: A fact without a finding after this time fails the run.
DEADLINE_S = 60.0
#: Pauses between two facts of one broker.
PAUSES_S = (0.5, 4.0)
SAMPLE_S = 5.0
#: What a process may have more of at the end than in its fifth minute (or after a sixth of a shorter run).
MORE_THREADS, MORE_FILES, MORE_MEMORY, MORE_MB = 3, 15, 1.1, 10
TOPIC = "facts"
#: Leases that live once every cluster is polled: each has more than ten.
LIVE = 100
OPEN = (
    "SELECT k.name FROM dashboard_findingrecord f JOIN dashboard_cluster k ON k.id = f.cluster_id "
    "WHERE f.rule = 'open_too_long' AND f.subject = %s AND f.closed_at IS NULL AND f.id > %s"
)


@dataclass(frozen=True, slots=True)
class Figures:
    """What a process holds."""

    threads: int
    files: int
    rss_mb: float


@dataclass(slots=True)
class Facts:
    """Transactions that stay open on one broker, and how long each took to be a finding of each cluster."""

    broker: Broker
    clusters: frozenset[str]
    dice: random.Random
    database: str
    took_s: dict[str, list[float]] = field(default_factory=dict)
    failure: BaseException | None = None

    def run(self, end: threading.Event) -> None:
        """Make facts until the end."""
        try:
            with psycopg.connect(self.database, autocommit=True) as database:
                producers = {name: self._producer(name) for name in (f"fact-{n}" for n in range(10))}
                while not end.wait(self.dice.uniform(*PAUSES_S)):
                    name = self.dice.choice(list(producers))
                    self._make(name, producers[name], database)
        except BaseException as error:
            self.failure = error

    def _producer(self, name: str) -> LibrdkafkaProducer:
        made = LibrdkafkaProducer(self.broker.bootstrap, name, LONG)
        made.init()
        return made

    def _make(self, name: str, producer: LibrdkafkaProducer, database: psycopg.Connection) -> None:
        before = database.execute("SELECT coalesce(max(id), 0) FROM dashboard_findingrecord").fetchone()
        waiting = set(self.clusters)
        fact = time.monotonic() + OPEN_TOO_LONG_S
        producer.begin()
        producer.send(TOPIC, self.dice.randrange(3))
        producer.flush()
        while waiting:
            time.sleep(0.05)
            rows = database.execute(OPEN, [f"transaction:{name}", *(before or ())]).fetchall()
            found = waiting & {cluster for (cluster,) in rows}
            for cluster in found:
                self.took_s.setdefault(cluster, []).append(time.monotonic() - fact)
            waiting -= found
            assert time.monotonic() < fact + DEADLINE_S, f"{name} is no finding of {sorted(waiting)}"
        producer.commit()


@contextmanager
def dead_address() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with closing(socket.create_server((HOST, 0))) as listener:
        yield f"{HOST}:{listener.getsockname()[1]}"


def write_config(path: Path, clusters: Mapping[str, str]) -> str:
    lines = [f'[clusters.{name}]\n"bootstrap.servers" = "{servers}"\n' for name, servers in clusters.items()]
    path.write_text("\n".join([*lines, f"[limits]\nopen_too_long_s = {OPEN_TOO_LONG_S}\n"]))
    return str(path)


def figures(pid: int) -> Figures:
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
    )
    files = len(os.listdir(f"/proc/{pid}/fd"))
    return Figures(int(status["Threads"]), files, int(status["VmRSS"].split()[0]) / 1024)


def grown(part: str, samples: Sequence[tuple[float, Figures]]) -> list[str]:
    """Return what a part has more of in its last minute than in its fifth."""
    ends = samples[-1][0]
    first = min(240.0, ends / 6)
    early = [sample for at, sample in samples if first <= at <= first + 60]
    late = [sample for at, sample in samples if at >= ends - 60]
    threads, files, rss = (
        (median(getattr(s, name) for s in early), median(getattr(s, name) for s in late))
        for name in ("threads", "files", "rss_mb")
    )
    print(f"{part:16} threads {threads}, files {files}, MB {rss[0]:.0f}, {rss[1]:.0f}")
    bounds = (threads[0] + MORE_THREADS, files[0] + MORE_FILES, rss[0] * MORE_MEMORY + MORE_MB)
    is_more = [late > bound for (_, late), bound in zip((threads, files, rss), bounds, strict=True)]
    return [
        f"{part}: {name}" for name, more in zip(("threads", "files", "memory"), is_more, strict=True) if more
    ]


def watch(stack: Stack, seconds: float) -> Mapping[str, Sequence[tuple[float, Figures]]]:
    """Sample each process of the dashboard for a while; a restart of one would be a new process id."""
    pids, began = stack.pids(), time.monotonic()
    samples: dict[str, list[tuple[float, Figures]]] = {part: [] for part in pids}
    while (now := time.monotonic() - began) < seconds:
        for part, pid in pids.items():
            samples[part].append((now, figures(pid)))
        time.sleep(SAMPLE_S)
    assert stack.pids() == pids, "no part was restarted"
    return samples


def report(took_s: Mapping[str, Sequence[float]]) -> float:
    """Print what findings took, by cluster; return the 99th percentile of all."""
    for cluster, some in sorted(took_s.items()):
        print(f"{cluster:8} {len(some):4} facts, p50 {median(some):.2f} s, most {max(some):.2f} s")
    everything = [each for some in took_s.values() for each in some]
    p99 = quantiles(everything, n=100)[98]
    print(f"{len(everything)} findings: p50 {median(everything):.2f} s, p99 {p99:.2f} s")
    return p99


def live_collectors(database: str) -> int:
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT count(*) FROM dashboard_collector WHERE expires_at > now()"
        ).fetchone()
    return int(row[0]) if row else 0


@dataclass(frozen=True, slots=True)
class Fleet:
    """Ten clusters by name: those that begin with a broker's name are this broker or stand in for it."""

    brokers: Mapping[str, Broker]
    clusters: Mapping[str, str]

    def facts(self, database: str) -> list[Facts]:
        """Return what makes facts on each broker."""
        return [
            Facts(broker, self._watching(name), random.Random(f"{SEED}{name}"), database)
            for name, broker in self.brokers.items()
        ]

    def _watching(self, broker: str) -> frozenset[str]:
        return frozenset(name for name in self.clusters if name.startswith(broker))


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with ExitStack() as stage:
        brokers = {name: stage.enter_context(Broker(tmp_path / name, properties=PROPERTIES)) for name in "ab"}
        clusters = {"dead": stage.enter_context(dead_address())}
        for name, broker in brokers.items():
            create_topics(broker.bootstrap, TOPIC)
            standing = [stage.enter_context(KafkaProxy(broker.port)) for _ in range(3)]
            clusters[name] = broker.bootstrap
            clusters |= {f"{name}{number}": proxy.bootstrap for number, proxy in enumerate(standing)}
        slow = stage.enter_context(KafkaProxy(brokers["a"].port, latency_s=LATENCY_S))
        yield Fleet(brokers, clusters | {"slow": slow.bootstrap})


@pytest.fixture
def stack(tmp_path: Path, fleet: Fleet) -> Iterator[Stack]:
    config = write_config(tmp_path / "fenceline.toml", fleet.clusters)
    # PostgreSQL's own default.
    with (
        Server({"max_connections": "100"}) as server,
        Stack(tmp_path, CONFIG=config, DEMO="0", DATABASE_URL=server.new_database()) as stack,
    ):
        yield stack


@contextmanager
def making(facts: Sequence[Facts]) -> Iterator[None]:
    """Make facts until the block is left."""
    end = threading.Event()
    makers = [threading.Thread(target=each.run, args=(end,)) for each in facts]
    for maker in makers:
        maker.start()
    try:
        yield
    finally:
        end.set()
        for maker in makers:
            maker.join(2 * DEADLINE_S)


def test_ten_clusters_of_which_one_is_dead_and_one_slow(fleet: Fleet, stack: Stack) -> None:
    print(f"\nFENCELINE_SEED={SEED}, {SECONDS} s")
    assert len(fleet.clusters) == 10
    database = stack.described()["database"]
    wait_for(lambda: live_collectors(database) >= LIVE, "every cluster is polled", 120)
    facts = fleet.facts(database)
    with making(facts):
        samples = watch(stack, SECONDS)
    more = [line for part, some in samples.items() for line in grown(part, some)]
    p99 = report({name: some for each in facts for name, some in each.took_s.items()})
    print("load of the machine", os.getloadavg())
    assert [each.failure for each in facts] == [None, None]
    assert more == []
    assert p99 <= P99_S
