"""Proves that pollers share few threads and get fair turns: a cluster that hangs delays no other, a stop
gives leases back, a lost lease ends its slice alone, and leases are kept while their slices wait."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, connections
from django.db.models import F
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from kombu.exceptions import OperationalError as RedisAway

from dashboard.config import ClusterConfig, Config
from dashboard.models import Cluster, Collector
from dashboard.runtime import collector_store, leases, loop
from dashboard.tasks import slice
from dashboard.tasks.slice import PER_CLUSTER, SLOW_S, TurnLane, TurnLanes, TurnPool
from tests.sql import switch_database
from tests.waiting import wait_for

NAMES = ("dead", "slow", "well")
THREADS = 10


class _Task:
    """Takes the messages of slices that end."""

    def __init__(self) -> None:
        self.sent: list[tuple[object, ...]] = []
        self.failure: Exception | None = None

    def apply_async(self, arguments: tuple[object, ...], **_: object) -> None:
        if self.failure:
            raise self.failure
        self.sent.append(arguments)


@pytest.fixture
def task() -> Any:
    return _Task()


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory, django_db_blocker: Any) -> Iterator[None]:
    """A database that threads share."""
    before = connections.settings["default"]
    is_file = before["ENGINE"].endswith("sqlite3")
    name = str(tmp_path_factory.mktemp("turns") / "fenceline.db") if is_file else before["NAME"]
    with django_db_blocker.unblock(), switch_database({**before, "NAME": name}):
        call_command("migrate", verbosity=0)
        yield


@pytest.fixture(autouse=True)
def cluster(database: None, settings: Any) -> Iterator[None]:
    """Three clusters, whose rows are removed behind the test: it runs in no transaction."""
    settings.FENCELINE = Config(clusters={name: ClusterConfig(name, {}) for name in NAMES})
    collector_store.sync_clusters(NAMES)
    yield
    Cluster.objects.filter(name__in=NAMES).delete()
    loop.stop_requested.clear()


@pytest.fixture
def pool(cluster: None) -> Iterator[TurnPool]:
    made = TurnPool(THREADS)
    yield made
    loop.stop_requested.set()
    made.close(10)


Begin = Callable[..., loop.Slice]


@pytest.fixture
def begin(task: Any) -> Begin:
    def begin(cluster: str, name: str, rounds: loop.Rounds, **options: Any) -> loop.Slice:
        made = loop.begin_slice(task, cluster, name, rounds, previous=None, **options)
        assert made is not None
        return made

    return begin


def held() -> set[tuple[str, str]]:
    return set(Collector.objects.filter(expires_at__gt=Now()).values_list("cluster__name", "name"))


def test_a_cluster_that_hangs_delays_no_other(pool: TurnPool, begin: Begin) -> None:
    answers, hanging, took = threading.Event(), Counter[str](), Counter[str]()

    def hang(lease: leases.Lease) -> loop.Turns:
        while True:
            hanging[lease.cluster] += 1
            answers.wait(60)
            hanging[lease.cluster] -= 1
            yield 0.0

    def poll(lease: leases.Lease) -> loop.Turns:
        while True:
            took[f"{lease.cluster}/{lease.name}"] += 1
            yield 0.01

    try:
        for number in range(PER_CLUSTER * 2):
            for cluster in ("dead", "slow"):
                pool.add(begin(cluster, f"c{number}", hang), asks=True)
        wait_for(lambda: sum(hanging.values()) == THREADS * 4 // 5, "questions have their threads")
        assert max(hanging.values()) == PER_CLUSTER
        pool.add(begin("dead", "judge", poll), asks=False)
        wait_for(lambda: took["dead/judge"] > 20, "the dead cluster is judged meanwhile")
    finally:
        answers.set()


def test_clusters_that_were_slow_share_a_third_of_the_threads() -> None:
    lanes, mine = TurnLanes(THREADS), iter(range(1_000))

    def put(cluster: str, times: int = PER_CLUSTER) -> None:
        for _ in range(times):
            lanes.put(TurnLane(cluster, True), next(mine))  # type: ignore[arg-type]

    def start_all(now: float) -> list[tuple[TurnLane, loop.Slice]]:
        return list(iter(lambda: lanes.start(now), None))  # type: ignore[arg-type]

    put("dead")
    put("slow")
    started = start_all(0.0)
    assert Counter(lane.cluster for lane, _ in started) == {"dead": 4, "slow": 4}, "nobody knows it yet"
    put("well")
    assert start_all(SLOW_S) == []
    for lane, turn in started:
        lanes.end(lane, turn, SLOW_S)
    put("dead")
    put("slow")
    again = start_all(SLOW_S)
    assert Counter(lane.cluster for lane, _ in again) == {"well": 4, "dead": 2, "slow": 1}
    for lane, turn in again:
        lanes.end(lane, turn, SLOW_S + 0.1)
    put("dead")
    assert Counter(lane.cluster for lane, _ in start_all(SLOW_S + 0.1))["dead"] == PER_CLUSTER, "not slow now"


def test_lanes_go_in_turn_in_the_one_pool_of_a_process() -> None:
    assert slice.pool() is slice.pool()
    lanes = TurnLanes(THREADS)
    for number in range(3):
        for cluster in ("a", "b"):
            lanes.put(TurnLane(cluster, False), f"{cluster}{number}")  # type: ignore[arg-type]
    order = [mine for _, mine in iter(lambda: lanes.start(0.0), None)]  # type: ignore[arg-type]
    assert order == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_a_stop_gives_leases_back_at_once(pool: TurnPool, begin: Begin, task: Any) -> None:
    closed = []

    def wait_long(lease: leases.Lease) -> loop.Turns:
        try:
            while True:
                yield 60.0
        finally:
            closed.append(lease.name)

    for name in ("partitions", "groups"):
        pool.add(begin("well", name, wait_long), asks=True)
    wait_for(lambda: len(pool._later) == 2, "both wait")
    loop.stop_requested.set()
    pool.close(10)
    assert held() == set()
    assert sorted(closed) == ["groups", "partitions"]
    assert task.sent == []


def test_a_lost_lease_or_an_error_of_ours_ends_its_slice_alone(
    pool: TurnPool, begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    took = Counter[str]()

    def save(lease: leases.Lease) -> loop.Turns:
        while True:
            leases.renew(lease, read=1)
            took[lease.name] += 1
            yield 0.01

    def fail(lease: leases.Lease) -> loop.Turns:
        yield 0.0
        raise KeyError(lease.name)

    for name, rounds in (("partitions", save), ("groups", save), ("engines", fail)):
        pool.add(begin("well", name, rounds), asks=True)
    wait_for(lambda: "well/engines: an error of ours" in caplog.text, "it is logged")
    wait_for(lambda: min(took["groups"], took["partitions"]) > 2, "both save")
    Collector.objects.filter(name="groups").update(token=F("token") + 1)
    wait_for(lambda: "well/groups: lease lost" in caplog.text, "its next save finds another token")
    records = Collector.objects.get(name="groups").records
    more = took["partitions"] + 5
    wait_for(lambda: took["partitions"] > more, "the other goes on")
    assert Collector.objects.get(name="groups").records == records


def test_leases_are_kept_while_slices_wait(pool: TurnPool, begin: Begin) -> None:
    def wait_long(_: leases.Lease) -> loop.Turns:
        while True:
            yield 60.0

    ttl = timedelta(seconds=6)
    for name in ("partitions", "groups"):
        pool.add(begin("well", name, wait_long, ttl=ttl), asks=True)
    first = set(Collector.objects.values_list("expires_at", flat=True))

    def renewed() -> bool:
        return first.isdisjoint(Collector.objects.values_list("expires_at", flat=True))

    wait_for(renewed, "both are renewed")


def test_waiting_leases_are_renewed_together_and_only_ours(begin: Begin) -> None:
    def nothing(_: leases.Lease) -> loop.Turns:
        yield 0.0

    ours = [begin("well", f"c{n}", nothing).lease for n in range(5)]
    leases._renewed.clear()
    Collector.objects.filter(name="c0").update(token=F("token") + 1, expires_at=Now())
    with CaptureQueriesContext(connection) as captured:
        leases.renew_waiting(ours)
    assert len([row for row in captured if row["sql"].startswith("UPDATE")]) == 1
    assert held() == {("well", f"c{n}") for n in range(1, 5)}
    with CaptureQueriesContext(connection) as captured:
        leases.renew_waiting(ours)
    assert len(captured) == 0, "they are new"


def test_a_slice_that_is_over_hands_on_or_goes_on_without_redis(begin: Begin, task: Any) -> None:
    began = []

    def work(lease: leases.Lease) -> loop.Turns:
        began.append(lease.token)
        yield 0.0

    mine = begin("well", "groups", work, lasts_s=0.0)
    mine._lasts_s = 60.0
    task.failure = RedisAway("gone")
    assert mine.turn()
    assert mine.turn(), "the slice goes on"
    task.failure = None
    assert not mine.turn(), "its turns are over"
    assert task.sent == [("well", mine.lease.token)]
