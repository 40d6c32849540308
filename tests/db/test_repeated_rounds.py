"""Proves that a round of work that waited in vain for another writer of SQLite is done again in its slice,
and that it is not where the lease is lost meanwhile, or the database refuses for another reason."""

import logging
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.management import call_command
from django.db import OperationalError, connections

from dashboard.models import Collector
from dashboard.runtime import collector_store, leases, loop
from dashboard.runtime.write_transactions import write_transaction
from tests.sql import switch_database

NAME = "groups"


@pytest.fixture
def path(tmp_path: Path, django_db_blocker: Any) -> Iterator[Path]:
    """The file of a database with a cluster, in which a write waits for 50 ms."""
    path = tmp_path / "fenceline.db"
    before = connections.settings["default"]
    waits = {**before["OPTIONS"], "timeout": 0.05, "init_command": "PRAGMA journal_mode=WAL"}
    with django_db_blocker.unblock(), switch_database({**before, "NAME": str(path), "OPTIONS": waits}):
        call_command("migrate", verbosity=0)
        collector_store.sync_clusters(["prod"])
        yield path


@pytest.fixture(autouse=True)
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
