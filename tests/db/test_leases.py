"""Proves that a lease has one holder, that its token fences off a former one, which then writes nothing, and
that a worker is healthy while its own leases are renewed; that a round which waited in vain for another
writer of SQLite is done again; and that a tail is one slice's at a time and leaves nothing behind."""

import gc
import logging
import os
import shutil
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings as django_settings
from django.core.management import call_command
from django.db import OperationalError, connections
from django.db.models.functions import Now
from pytest_django import Settings

from dashboard.config import ClusterConfig, Config
from dashboard.models import Collector
from dashboard.runtime import collector_names, collector_store, leases, loop
from dashboard.runtime.lease_age import LATE_AFTER_S, is_of, main
from dashboard.runtime.leases import Lease, LeaseLost
from dashboard.runtime.write_transactions import write_transaction
from dashboard.tasks import tails
from sandbox.options import ROOT
from tests.db.conftest import NOW_MS, Take, run_python
from tests.db.writers import WRITERS
from tests.db.writers.cluster import Commits, Coordinators, Engines, Groups, Partitions, Trouble
from tests.db.writers.operators import Alerts, Evaluations
from tests.db.writers.transactions import Audits, Checkpoints, Corrections, Recoveries, Tail
from tests.sql import switch_database


def expire(lease: Lease, seconds: float = 1) -> None:
    leases.collector_row(lease).update(expires_at=Now() - timedelta(seconds=seconds))


def acquire(lease: Lease, holder: str, **fields: int) -> Lease | None:
    return leases.acquire("prod", lease.name, holder=holder, now_ms=0, **fields)


@pytest.mark.sql
def test_a_lease_has_one_holder_until_it_passes_by_its_token_its_expiry_or_its_release(take: Take) -> None:
    first = take()
    assert acquire(first, "other") is None
    expire(first)
    leases.renew(first)
    assert Collector.objects.filter(expires_at__gt=Now()).count() == 1, "nobody had taken it"
    expire(first)
    second = take()
    assert second.token > first.token
    third = take(previous=second.token)
    assert third.token == second.token + 1
    assert acquire(third, "late", previous=second.token) is None
    leases.release(third)
    assert leases.unheld_clusters("transaction_state") == {"transaction_state": ["prod"]}
    take()
    host, _, process = leases.holder_name().partition(":")
    assert (host, int(process.partition("/")[0])) == (socket.gethostname(), os.getpid())


@pytest.mark.sql
def test_a_fenced_holder_can_neither_renew_nor_release(take: Take) -> None:
    paused = take()
    expire(paused)
    current = take()
    with pytest.raises(LeaseLost):
        leases.renew(paused)
    leases.release(paused)
    expected = {"transaction_state": [], "groups": ["prod"]}
    assert leases.unheld_clusters("transaction_state", "groups") == expected
    leases.renew(current)


LEASED = (Alerts, Audits, Checkpoints, Commits, Coordinators, Corrections, Engines, Evaluations, Groups,
          Partitions, Recoveries, Tail, Trouble)  # fmt: skip


def stored_rows() -> Mapping[str, object]:
    """Return all rows of the dashboard's tables."""
    tables = apps.get_app_config("dashboard").get_models()
    return {table.__name__: list(table.objects.order_by("pk").values()) for table in tables}


@pytest.mark.sql
def test_every_writer_with_a_lease_is_among_them(cluster: str) -> None:
    leased = {type(writer) for make in WRITERS if hasattr(writer := make(), "lease")}
    assert {kind.__name__ for kind in leased} - {"Prune"} == {kind.__name__ for kind in LEASED}


@pytest.mark.sql
@pytest.mark.parametrize("kind", LEASED)
def test_a_fenced_writer_writes_nothing(cluster: str, kind: Callable[..., Any]) -> None:
    writer = kind(0) if kind in (Commits, Tail) else kind()
    findings = writer if kind is Evaluations else Evaluations()
    for _ in range(3):
        # What alerts are made of, so that each writer has something to write.
        findings()
        writer()
    findings()
    taken = leases.acquire(
        cluster, writer.lease.name, holder="another", now_ms=NOW_MS, previous=writer.lease.token
    )
    assert taken is not None
    before = stored_rows()
    with pytest.raises(LeaseLost):
        writer()
    assert stored_rows() == before


@pytest.fixture
def watching(settings: Settings) -> None:
    settings.FENCELINE = Config(clusters={"prod": ClusterConfig("prod", {"bootstrap.servers": "h:1"})})


def test_a_worker_is_as_healthy_as_its_oldest_lease(
    watching: None, take: Take, capsys: pytest.CaptureFixture[str]
) -> None:
    tail, judge = take(), take(name="judge")
    assert main(["tail-0"]) == main(["pollers"]) == 0
    expire(tail, LATE_AFTER_S / 2)
    assert main(["tail-0"]) == 0, "another slice may be about to begin"
    expire(tail, LATE_AFTER_S + 3600)
    capsys.readouterr()
    assert main(["tail-0"]) == 1
    assert capsys.readouterr().out.startswith("tail-0: the lease of prod/transaction_state expired 36")
    assert main(["pollers"]) == 0
    expire(judge, LATE_AFTER_S + 3600)
    assert main(["pollers"]) == 1


def test_a_worker_that_never_ran_is_not_healthy_unless_it_has_no_cluster(
    watching: None, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tail-0"]) == 1
    assert capsys.readouterr().out == "tail-0: no collector of it has ever run\n"
    settings.FENCELINE = Config()
    assert main(["pollers"]) == 0


@pytest.mark.parametrize("shards", [1, 2, 12])
def test_each_collector_belongs_to_one_worker(shards: int) -> None:
    workers = [*(f"tail-{shard}" for shard in range(shards)), "pollers"]
    owners = {
        collector_names.tail_name(shard, shards, of): f"tail-{shard}"
        for shard in range(shards)
        for of in (collector_names.TAIL, collector_names.OFFSETS)
    }
    for name in ("JUDGE", "RECONCILE", "PARTITIONS", "ALERTS"):
        owners[getattr(collector_names, name)] = "pollers"
    for name, owner in owners.items():
        assert [worker for worker in workers if is_of(worker, name, shards)] == [owner], name


def test_it_loads_no_app_and_names_an_unreachable_database() -> None:
    program = (
        "import sys; from dashboard.runtime.lease_age import main; status = main(['tail-0']); "
        "sys.exit(status if 'dashboard.models' not in sys.modules else 'apps are loaded')"
    )
    config = str(ROOT / "compose" / "fenceline.toml")
    done = run_python(program, FENCELINE_CONFIG=config, DATABASE_URL="postgres://127.0.0.1:1/none")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("the database cannot be used: ")


NAME = "groups"


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory, django_db_blocker: Any) -> Path:
    """The file of a database with a cluster."""
    path = tmp_path_factory.mktemp("made") / "fenceline.db"
    with django_db_blocker.unblock(), switch_database({**connections.settings["default"], "NAME": str(path)}):
        call_command("migrate", verbosity=0)
        collector_store.sync_clusters(["prod"])
    return path


@pytest.fixture
def path(one_slice: None, made_once: Path, tmp_path: Path, django_db_blocker: Any) -> Iterator[Path]:
    """A copy of that file, in which a write waits for 50 ms."""
    path = shutil.copy(made_once, tmp_path)
    before = connections.settings["default"]
    waits = {**before["OPTIONS"], "timeout": 0.05, "init_command": "PRAGMA journal_mode=WAL"}
    with django_db_blocker.unblock(), switch_database({**before, "NAME": str(path), "OPTIONS": waits}):
        yield path


@pytest.fixture
def one_slice(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(loop, "RETRY_S", 0)
    settings.FENCELINE = replace(django_settings.FENCELINE, clusters={"prod": None})
    yield
    loop.stop_requested.clear()


def run(work: loop.Work) -> None:
    """Run one slice, which gives its lease back."""
    task: Any = None
    loop.run_slice(task, "prod", NAME, work, previous=None)


@pytest.mark.skipif(connections["default"].vendor != "sqlite", reason="locks SQLite's file")
def test_a_round_that_found_the_database_locked_is_done_again(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    holder, rounds = sqlite3.connect(path, isolation_level=None), []

    def work(lease: leases.Lease, end: float) -> None:
        rounds.append(lease.token)
        if len(rounds) == 1:
            holder.execute("BEGIN IMMEDIATE")
        elif len(rounds) == 3:
            holder.execute("ROLLBACK")
        with write_transaction(lease, {"records": len(rounds)}, lock_cluster=False):
            loop.stop_requested.set()

    with caplog.at_level(logging.WARNING):
        run(work)
    holder.close()
    assert len(rounds) == 3
    assert len(set(rounds)) == 1, "the same holder goes on"
    assert Collector.objects.get(name=NAME).records == 3
    assert caplog.text.count("repeating a round") == 2
    assert "starting again" not in caplog.text


@pytest.mark.skipif(connections["default"].vendor != "sqlite", reason="locks SQLite's file")
def test_a_round_is_not_done_again_where_another_one_has_taken_the_lease(path: Path) -> None:
    rounds = []

    def work(lease: leases.Lease, end: float) -> None:
        rounds.append(lease.token)
        if len(rounds) == 1:
            Collector.objects.filter(name=NAME).update(token=lease.token + 1)
            locked = OperationalError("database is locked")
            locked.__cause__ = sqlite3.OperationalError("database is locked")
            locked.__cause__.sqlite_errorname = "SQLITE_BUSY"
            raise locked
        with write_transaction(lease, {"records": 7}, lock_cluster=False):
            pass

    run(work)
    assert len(rounds) == 2
    assert Collector.objects.get(name=NAME).records != 7


@pytest.mark.skipif(connections["default"].vendor != "sqlite", reason="a file of SQLite")
def test_another_error_ends_the_slice(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rounds = []

    def work(lease: leases.Lease, end: float) -> None:
        rounds.append(1)
        raise OperationalError("disk I/O error")

    run(work)
    assert len(rounds) == 1
    assert "starting again soon" in caplog.text


@pytest.fixture
def gc_as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


class _Rest:
    """What lies in a cycle."""

    left = 0

    def __init__(self) -> None:
        self.itself = self
        _Rest.left += 1

    def __del__(self) -> None:
        _Rest.left -= 1


def test_the_rest_of_a_closed_tail_is_freed(gc_as_before: None, monkeypatch: pytest.MonkeyPatch) -> None:
    topic: Any = SimpleNamespace(name="topic")
    lease: Any = SimpleNamespace(cluster="one", shard=0)
    monkeypatch.setattr(tails, "_tails", {})
    tails._tune_garbage_collector()
    for _ in range(3):
        rest = _Rest()
        tails._tails["one", "topic", 0] = SimpleNamespace(close=lambda: None, rest=rest)  # type: ignore[assignment]
        del rest
        # Another tail is opened meanwhile.
        tails._tune_garbage_collector()
        tails._cool(topic, lease)
    assert _Rest.left == 0


def test_two_slices_in_one_process_use_a_tail_one_after_the_other(
    gc_as_before: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, most = [0], [0]

    class Slice:
        def __init__(self, *_: object) -> None: ...

        def read(self) -> None:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.02)
            inside[0] -= 1

    monkeypatch.setattr(tails, "_TailSlice", Slice)
    lease: Any = SimpleNamespace(cluster="one", shard=0)
    slices = [
        threading.Thread(target=tails.read_until, args=(lease, time.monotonic() + 0.1)) for _ in range(3)
    ]
    for each in slices:
        each.start()
    for each in slices:
        each.join(10)
    assert most == [1]
