"""Proves that alerting may be killed. A tick may be killed in the middle and raced by another: each group is
notified once. A worker or its database may be killed in the middle of sending: every message arrives, each
kill costs at most one that comes twice, with the id by which its receiver knows it again. And a receiver
which answers nothing delays no other, and memory does not grow with what was sent."""

import json
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dashboard.alerts import senders
from tests import receivers
from tests.alert_processes import GROUPS, AlertProcesses
from tests.delivery_workers import Worker
from tests.receivers import Receiver
from tests.seeds import SEED
from tests.stack.postgres.server import Server
from tests.waiting import wait_for

DEADLINE_S = 120
SECRET = senders.new_secret()
#: Messages between two kills.
BETWEEN = 8


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.matrix), "postgresql"])
def alerting(request: pytest.FixtureRequest, tmp_path: Path) -> AlertProcesses:
    if request.param == "sqlite":
        return AlertProcesses(tmp_path, f"sqlite:///{tmp_path / 'fenceline.db'}")
    postgres: Server = request.getfixturevalue("postgres")
    return AlertProcesses(tmp_path, postgres.new_database())


def test_a_killed_tick_writes_nothing_and_two_racing_ticks_notify_each_group_once(
    alerting: AlertProcesses,
) -> None:
    with alerting.start("hang") as hanging:
        assert line(hanging) == "in the middle\n"
        hanging.kill()
    with alerting.start("race") as first, alerting.start("race") as second:
        for each in (first, second):
            assert json.loads(line(each)) == {"made": 0, "firing": 0, "fates": [], "groups": [], "ids": []}
        told = [json.loads(each.communicate("go\n")[0]) for each in (first, second)]
        assert [first.returncode, second.returncode] == [0, 0]
    assert sum(each["made"] for each in told) == GROUPS
    last = max(told, key=lambda each: len(each["ids"]))
    assert len(last["groups"]) == len(set(last["groups"])) == len(set(last["ids"])) == GROUPS
    assert last["firing"] == GROUPS
    assert [(len(fates), fates[0][1]) for fates in last["fates"]] == [(1, "delivery")] * GROUPS


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.fixture(autouse=True)
def databases(django_db_blocker: Any) -> Iterator[None]:
    """Workers have databases of their own, which they make."""
    with django_db_blocker.unblock():
        yield


def durable_database(postgres: Server) -> str:
    """Return the URL of a new database that has what it confirmed when its server is killed."""
    url = postgres.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {url.rpartition('/')[2]} SET synchronous_commit = on".encode())
    return url


def kill_database(postgres: Server) -> None:
    """Kill -9 the server, and start it again: at once it is refused, while the old one's children end."""

    def started() -> bool:
        try:
            postgres.start()
        except AssertionError:
            return False
        return True

    postgres.stop(signal.SIGKILL)
    wait_for(started, "PostgreSQL starts again", DEADLINE_S)


def kill_while_sending(worker: Worker, times: int, postgres: Server | None = None) -> None:
    """Kill the worker, or its database, at moments of several sorts; then let it finish and check."""
    print(f"\nFENCELINE_SEED={SEED}")
    dice = random.Random(SEED)
    with Receiver() as receiver:
        sent = worker.add("ops", receiver.url, SECRET, BETWEEN * (times + 1))
        for number in range(times):
            enough = len(receiver.received) + dice.randrange(1, BETWEEN // 2)
            if dice.random() < 0.5:
                receiver.usually = holding_after(receiver, enough)
            worker.start()
            wait_for(lambda enough=enough: len(receiver.received) >= enough, "some arrive", DEADLINE_S)
            if postgres and number % 2:
                worker.forget()
                kill_database(postgres)
            worker.kill()
            receiver.usually = receivers.answer(200)
        worker.start()
        check(worker, receiver, sent, times + (times // 2 if postgres else 0))


def holding_after(receiver: Receiver, count: int) -> receivers.Manner:
    """Answer until `count` requests have arrived; the receiver has that one and does not answer."""

    def manner(handler: receivers.Handler) -> None:
        held = len(receiver.received) >= count
        (receivers.hold if held else receivers.answer(200))(handler)

    return manner


def check(worker: Worker, receiver: Receiver, sent: list[str], kills: int) -> None:
    """Compare what arrived, and the rows, with what was to be sent."""
    wait_for(lambda: {each.message_id for each in receiver.received} == set(sent), "all arrive", DEADLINE_S)
    rows = wait_for(lambda: all_ended(worker), "all are written down", DEADLINE_S)
    arrived = Counter(each.message_id for each in receiver.received)
    twice = arrived.total() - len(sent)
    # A machine so slow that a held request timed out before its worker was killed.
    slow = sum(bool(tried["error"]) for row in rows for tried in row["tries"])
    print(f"{len(sent)} messages, {kills} kills, {twice} came twice")
    assert {row["state"] for row in rows} == {"delivered"}
    assert sorted(row["message_id"] for row in rows) == sorted(sent)
    assert twice <= kills + slow
    assert [row for row in rows if arrived[row["message_id"]] > row["attempts"]] == []
    bodies = {each.message_id: each.body for each in receiver.received}
    assert all(each.body == bodies[each.message_id] for each in receiver.received)
    assert receiver.received[-1].verified(SECRET)


def all_ended(worker: Worker) -> list[dict[str, Any]]:
    rows = worker.report()
    return rows if all(row["state"] != "pending" for row in rows) else []


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.soak)])
def test_a_worker_may_be_killed_at_any_moment(tmp_path: Path, kills: int) -> None:
    with Worker(tmp_path, f"sqlite:///{tmp_path / 'fenceline.db'}") as worker:
        kill_while_sending(worker, kills)


@pytest.mark.parametrize("kills", [2, pytest.param(50, marks=pytest.mark.soak)])
def test_worker_and_database_may_be_killed_at_any_moment(
    tmp_path: Path, postgres: Server, kills: int
) -> None:
    with Worker(tmp_path, durable_database(postgres)) as worker:
        kill_while_sending(worker, kills, postgres)
        assert "Traceback" not in worker.log


@pytest.mark.soak
def test_a_receiver_without_answers_delays_no_other_and_memory_stays_flat(tmp_path: Path) -> None:
    with (
        Worker(tmp_path, f"sqlite:///{tmp_path / 'fenceline.db'}") as worker,
        Receiver(usually=receivers.hold) as silent,
        Receiver() as quick,
    ):
        for number in range(4):
            worker.add(f"silent-{number}", silent.url, SECRET, 50)
        first = worker.add("quick", quick.url, SECRET, 50)
        worker.start()
        wait_for(lambda: len(quick.received) == len(first), "the first arrive", DEADLINE_S)
        before_kb = worker.rss_kb
        later = worker.add("quick", quick.url, SECRET, 300)
        wait_for(lambda: len(quick.received) == len(first + later), "the others arrive", DEADLINE_S)
        arrived = [each.message_id for each in quick.received]
        assert arrived == first + later, "one at a time, the oldest first"
        assert worker.rss_kb - before_kb < 15_000, "backlog and history are rows, not memory"
        assert len(silent.received) < 100, "who is silent is told one thing at a time"
