"""Proves on PostgreSQL that no two writers can deadlock, wherever one is when the other one begins.

Each writer is stopped after each of its statements that locks rows; then another one runs until it is done
or waits for the first, which then continues. With two orders of locks one of these schedules would deadlock.
SQLite has one writer at a time.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import permutations
from typing import Any

import pytest
from django.db import connection

from dashboard.runtime import collector_store, notify
from tests.db.writers import WRITERS, Writer, name_of, row_counts
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    # SQLite has one writer at a time.
    pytest.mark.sql("postgresql"),
]
#: Writers of the same rows, the one that is stopped first.
CONTENDING = (
    ("Checkpoints", "Progress"),
    ("Progress", "Checkpoints"),
    ("Tail-0", "Corrections"),
    ("Channels", "Alerts"),
    ("Evaluations", "Prune"),
    ("Evaluations", "Operators"),
    ("Operators", "Evaluations"),
)
#: How often each writer writes in the short run, and for how long in the long one.
ROUNDS, SOAK_S = 4, 600
_LOCKING = ("INSERT", "UPDATE", "DELETE")


class Runner:
    """A thread with a connection of its own, which can stop behind a statement."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._stop_at, self._locked = 0, 0
        self._reached, self._go_on = threading.Event(), threading.Event()
        self.backend: int = self._pool.submit(self._connect).result()

    def _connect(self) -> int:
        connection.ensure_connection()
        with suppress(Exception), connection.cursor() as cursor:
            # Only an administrator may: else each deadlock lasts a second.
            cursor.execute("SET deadlock_timeout = '10ms'")
        assert connection.connection is not None
        connection.execute_wrappers.append(self._execute)
        return int(connection.connection.info.backend_pid)

    def _execute(self, execute: Callable[..., Any], sql: Any, *others: Any) -> Any:
        result = execute(sql, *others)
        words = str(sql).lstrip("( ").upper()
        if connection.in_atomic_block and (words.startswith(_LOCKING) or "FOR NO KEY UPDATE" in words):
            self._locked += 1
            if self._locked == self._stop_at:
                self._reached.set()
                assert self._go_on.wait(60), "nobody said that it goes on"
        return result

    def start(self, work: Callable[[], None], *, stop_at: int = 0) -> Future[int]:
        """Run it; return how many statements have locked rows. It stops after one of them until
        `run_to_end`.
        """
        self._stop_at, self._locked = stop_at, 0
        self._reached.clear()
        self._go_on.clear()

        def run() -> int:
            work()
            return self._locked

        return self._pool.submit(run)

    def is_stopped(self) -> bool:
        """Whether it is stopped after the statement where it was to stop."""
        return self._reached.is_set()

    def run_to_end(self) -> None:
        """Let it run to its end."""
        self._go_on.set()

    def close(self) -> None:
        """End its connection and its thread."""
        self._pool.submit(lambda: connection.close()).result()
        self._pool.shutdown()


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Writer]:
    monkeypatch.setattr(notify, "notify_change", lambda *_, **__: None)
    monkeypatch.setattr("dashboard.alerts.deliver.notify_pages", lambda: None)
    collector_store.sync_clusters(["prod"])
    return {name_of(writer): writer for writer in [make() for make in WRITERS]}


@pytest.fixture
def runners() -> Iterator[tuple[Runner, Runner]]:
    pair = Runner(), Runner()
    yield pair
    for each in pair:
        each.close()


def waits(backend: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT cardinality(pg_blocking_pids(%s))", [backend])
        return bool(cursor.fetchone()[0])


def meet(first: Writer, second: Writer, stop_at: int, runners: tuple[Runner, Runner]) -> bool:
    """Run one writer while another one is stopped after a statement; return whether it stopped there."""
    held, met = runners
    one = held.start(first, stop_at=stop_at)
    wait_for(lambda: held.is_stopped() or one.done(), f"{name_of(first)} stops or ends", 60, rest_s=0.0005)
    if one.done():
        one.result()
        return False
    two = met.start(second)
    wait_for(lambda: two.done() or waits(met.backend), f"{name_of(second)} ends or waits", 60, rest_s=0.0005)
    held.run_to_end()
    for each in one, two:
        each.result(60)
    return True


def schedules(first: Writer, second: Writer, runners: tuple[Runner, Runner]) -> int:
    """Let two writers meet at each of the first one's statements; return how often they did."""
    stop_at = 1
    while meet(first, second, stop_at, runners):
        stop_at += 1
    return stop_at - 1


def deadlocks() -> int:
    """Return how many deadlocks the server has resolved in this database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


def test_no_schedule_of_two_writers_of_the_same_rows_deadlocks(
    writers: Mapping[str, Writer], runners: tuple[Runner, Runner], caplog: pytest.LogCaptureFixture
) -> None:
    for each in writers.values():
        each()
    for first, second in CONTENDING:
        assert schedules(writers[first], writers[second], runners) > 1, (first, second)
        assert "deadlock" not in caplog.text, (first, second)


@pytest.mark.soak
def test_no_schedule_of_any_two_writers_deadlocks(
    writers: Mapping[str, Writer], runners: tuple[Runner, Runner], caplog: pytest.LogCaptureFixture
) -> None:
    for each in writers.values():
        each()
    met = 0
    for first, second in permutations(writers.values(), 2):
        met += schedules(first, second, runners)
        assert "deadlock" not in caplog.text, f"{name_of(first)} and {name_of(second)}"
    print(f"{met} schedules of {len(writers)} writers")
    assert met > len(writers) ** 2


def write_concurrently(writers: Mapping[str, Writer], is_over: Callable[[Writer], bool]) -> None:
    """Let every writer write on a thread and a connection of its own until it is over."""

    def run(writer: Writer) -> None:
        try:
            while not is_over(writer):
                writer()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(writers)) as pool:
        for future in [pool.submit(run, writer) for writer in writers.values()]:
            future.result()


def assert_all_is_there(writers: Mapping[str, Writer], caplog: pytest.LogCaptureFixture) -> None:
    repeated = caplog.text.count("it is repeated")
    figures = {name: writer.number for name, writer in writers.items()}
    print(f"writes {figures}, repeated {repeated}, deadlocks {deadlocks()}, rows {row_counts()}")
    lost = {name: writer.lost() for name, writer in writers.items()}
    assert not {name: how for name, how in lost.items() if how and how != (0, 0)}
    assert not repeated
    assert deadlocks() == 0


def test_all_writers_at_once_lose_nothing(
    writers: Mapping[str, Writer], caplog: pytest.LogCaptureFixture
) -> None:
    write_concurrently(writers, lambda writer: writer.number >= ROUNDS)
    assert_all_is_there(writers, caplog)


@pytest.mark.soak
def test_all_writers_at_once_lose_nothing_for_ten_minutes(
    writers: Mapping[str, Writer], caplog: pytest.LogCaptureFixture
) -> None:
    end = time.monotonic() + SOAK_S
    write_concurrently(writers, lambda writer: time.monotonic() > end)
    assert_all_is_there(writers, caplog)
