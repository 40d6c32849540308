"""Proves that no fault of server or disk loses an event, or else that what is lost is counted."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fenceline.decode.ingest_payload import decode_post as read_post
from spark_listener import FencelineListener
from spark_listener.emit import Pace
from tests.db.listener_posts import QUERY, RUN
from tests.spark.listener.driver import Driver
from tests.spark.listener.events import QUICK, TOKEN, call_listener, finished, started, terminated
from tests.spark.listener.servers import TAKEN, Posted, Reply, Scripted, Silent, problem
from tests.waiting import wait_for

DEADLINE_S = 60
EVENTS = 1_200


@pytest.fixture
def server() -> Iterator[Scripted]:
    with Scripted() as server:
        yield server


@pytest.fixture
def listen(server: Scripted, tmp_path: Path) -> Iterator[Callable[..., FencelineListener]]:
    made: list[FencelineListener] = []

    def listen(**options: Any) -> FencelineListener:
        arguments = {"url": server.url, "token": TOKEN, "spool": tmp_path / "spool", "pace": QUICK, **options}
        made.append(FencelineListener(**arguments))
        return made[-1]

    yield listen
    for each in made:
        each.close()


def all_there(server: Scripted, count: int = EVENTS) -> None:
    wait_for(lambda: set(server.numbers) == set(range(count)), "every batch is taken", DEADLINE_S)


def test_events_arrive_once_and_in_order(server: Scripted, listen: Any) -> None:
    server.start()
    listener = listen(cluster="prod")
    listener.onQueryStarted(started())
    call_listener(listener, range(EVENTS))
    all_there(server)
    assert server.taken[-1].document["report"]["alive"] == [[QUERY, RUN]]
    listener.onQueryTerminated(terminated(exception="it broke"))
    wait_for(lambda: server.taken[-1].document["events"][-1]["kind"] == "terminated", "the end", DEADLINE_S)
    assert server.numbers == list(range(EVENTS))
    assert set(server.paths) == {"POST /ingest/v1/progress"}
    first, last = server.taken[0], server.taken[-1]
    assert (first.token, first.document["v"], first.document["cluster"]) == (TOKEN, 1, "prod")
    assert last.document["events"][-1]["exception"] == "it broke"
    assert last.document["report"]["alive"] == []
    assert abs(first.document["sent_ms"] - time.time() * 1_000) < 600_000


def test_a_server_that_is_down_is_waited_for(server: Scripted, listen: Any) -> None:
    call_listener(listen(), range(EVENTS))
    server.start()
    all_there(server)
    assert server.taken[0].document["report"]["oldest_age_ms"] >= 0


def test_a_slow_server_delays_no_callback(server: Scripted, listen: Any) -> None:
    answering = threading.Event()

    def reply(posted: Posted) -> Reply:
        assert answering.wait(DEADLINE_S)
        return TAKEN

    server.reply = reply
    server.start()
    listener = listen()
    call_listener(listener, range(EVENTS // 2))
    wait_for(lambda: server.posted, "it has got a post", DEADLINE_S)
    call_listener(listener, range(EVENTS // 2, EVENTS))
    assert listener._spool.waiting == EVENTS, "all callbacks are back, and nothing was answered"
    answering.set()
    all_there(server)
    assert server.numbers == list(range(EVENTS))


def test_neither_a_callback_nor_the_end_waits_for_a_server_that_never_answers(listen: Any) -> None:
    with Silent() as silent:
        listener = listen(url=silent.url)
        call_listener(listener, range(EVENTS))
        before = time.monotonic()
        listener.close()
        assert time.monotonic() - before < DEADLINE_S
    assert listener._spool.waiting == EVENTS


@pytest.mark.parametrize(
    "refusal",
    [
        problem(500),
        problem(503, Retry_After="0"),
        problem(429, Retry_After="0"),
        problem(429, Retry_After="Wed, 21 Oct 2015 07:28:00 GMT"),
        problem(401),
        problem(403),
        problem(422, "name a cluster"),
        (404, {}, b"<html>nothing here</html>"),
        (302, {"Location": "/login"}, b""),
        (200, {}, b"<html>sign in to this network</html>"),
        (400, {}, b"a proxy does not like this"),
    ],
)
def test_a_post_that_is_refused_for_a_while_is_repeated(
    server: Scripted, listen: Any, refusal: Reply
) -> None:
    refusals = iter([refusal] * 3)
    server.reply = lambda posted: next(refusals, TAKEN)
    server.start()
    call_listener(listen(), range(600))
    all_there(server, 600)
    assert server.numbers == list(range(600))
    assert len(server.posted) == len(server.taken) + 3
    assert set(server.paths) == {"POST /ingest/v1/progress"}, "no redirect is followed"


def test_a_wrong_token_loses_nothing_and_is_logged_once(
    server: Scripted, listen: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "token"
    token.write_text("wrong")
    server.reply = lambda posted: (
        TAKEN if posted.token == "right" else problem(401, "Nobody knows this token.")
    )
    server.start()
    with caplog.at_level(logging.WARNING, "spark_listener"):
        call_listener(listen(token=f"file:{token}"), range(EVENTS))
        wait_for(lambda: len(server.posted) >= 3, "it is tried", DEADLINE_S)
        token.write_text("right\n")
        all_there(server)
    said = [record.getMessage() for record in caplog.records if "401" in record.getMessage()]
    assert len(said) == 1
    assert "create_token NAME --role ingest" in said[0]


def test_a_post_that_is_too_large_is_divided(server: Scripted, listen: Any) -> None:
    server.reply = lambda posted: problem(413) if len(posted.numbers) > 10 else TAKEN
    server.start()
    call_listener(listen(), range(300))
    all_there(server, 300)


def test_an_event_that_is_refused_on_its_own_is_dropped_and_counted(server: Scripted, listen: Any) -> None:
    server.reply = lambda posted: problem(413) if 7 in posted.numbers else TAKEN
    listener = listen()
    call_listener(listener, range(100))
    server.start()
    wait_for(lambda: set(server.numbers) == set(range(100)) - {7}, "all others", DEADLINE_S)
    call_listener(listener, range(100, 101))
    wait_for(lambda: 100 in server.numbers, "the next", DEADLINE_S)
    assert server.taken[-1].document["report"]["dropped"] == 1


def test_a_full_spool_drops_the_oldest_events_and_counts_them(server: Scripted, listen: Any) -> None:
    listener = listen(spool_mb=0.01)
    call_listener(listener, range(EVENTS))
    assert listener._spool.size <= 0.01 * 2**20
    server.start()
    wait_for(lambda: EVENTS - 1 in server.numbers, "the newest is taken", DEADLINE_S)
    dropped = server.taken[-1].document["report"]["dropped"]
    assert dropped > 0
    assert len(server.numbers) == EVENTS - dropped
    assert server.numbers[-1] == EVENTS - 1
    in_hand = set(server.numbers) - set(range(dropped, EVENTS))
    assert len(in_hand) <= 500, "what was read before it was dropped is posted all the same"


@pytest.mark.parametrize("largest", [0, 20_000])
def test_with_a_full_disk_events_stay_in_memory(server: Scripted, tmp_path: Path, largest: int) -> None:
    with Driver(server.url, tmp_path / "spool", 0, EVENTS, largest) as driver:
        server.start()
        all_there(server)
        assert server.numbers == list(range(EVENTS))
        assert server.taken[-1].document["report"]["dropped"] == 0
        driver.kill()
    assert driver.output.count("cannot be written") == 1
    assert "give another spool= folder" in driver.output


def test_without_a_folder_events_stay_in_memory(server: Scripted, listen: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    call_listener(listen(spool=tmp_path / "file" / "spool"), range(EVENTS))
    server.start()
    all_there(server)


def test_events_of_a_deleted_folder_are_lost_and_counted(
    server: Scripted, listen: Any, tmp_path: Path
) -> None:
    listener = listen()
    call_listener(listener, range(600))
    for path in (tmp_path / "spool").glob("*/*"):
        os.unlink(path)
    server.start()
    number = 600
    while not server.numbers or server.numbers[-1] < 600:
        call_listener(listener, range(number, number + 1))
        number += 1
    wait_for(lambda: number - 1 in server.numbers, "what came later", DEADLINE_S)
    assert len(server.numbers) + server.taken[-1].document["report"]["dropped"] == number


def test_refused_leftovers_of_another_driver_do_not_delay_new_events(
    server: Scripted, listen: Any, tmp_path: Path
) -> None:
    with Driver("http://127.0.0.1:1", tmp_path / "spool", 0, 50):
        pass

    def reply(posted: Posted) -> Reply:
        return problem(422) if any(number < 50 for number in posted.numbers) else TAKEN

    server.reply = reply
    server.start()
    call_listener(listen(), range(50, 60))
    wait_for(lambda: set(server.numbers) == set(range(50, 60)), "our own", DEADLINE_S)
    server.reply = lambda posted: TAKEN
    all_there(server, 60)


def test_a_driver_without_events_sends_heartbeats_with_their_interval(
    server: Scripted, tmp_path: Path
) -> None:
    server.start()
    pace = replace(QUICK, alive_every=0.1)
    listener = FencelineListener(server.url, TOKEN, spool=tmp_path, pace=pace)
    listener.onQueryStarted(started())
    wait_for(lambda: sum(not each.document["events"] for each in server.taken) > 2, "it says so", DEADLINE_S)
    assert server.taken[-1].document["report"]["alive"] == [[QUERY, RUN]]
    assert read_post(server.taken[-1].document).report.heartbeat_every_ms == 100
    listener.close()
    assert Pace().alive_every == 5, "twelve seconds without one are two that are missing, and two to spare"


def test_leftovers_of_another_driver_do_not_delay_heartbeats(server: Scripted, tmp_path: Path) -> None:
    """A dead driver's events, in posts without the driver's own queries, used to count as its heartbeat."""
    with Driver("http://127.0.0.1:1", tmp_path / "spool", 0, EVENTS):
        pass
    server.reply = lambda posted: problem(413) if len(posted.numbers) > 5 else TAKEN
    server.start()
    pace = replace(QUICK, alive_every=0.001, adopt_every=0.05)
    listener = FencelineListener(server.url, TOKEN, spool=tmp_path / "spool", pace=pace)
    listener.onQueryStarted(started())
    all_there(server)
    listener.close()
    beats = [bool(each.document["report"]["alive"]) for each in server.taken]
    others = [n for n, each in enumerate(server.taken) if each.numbers and not beats[n]]
    assert len(others) > 2
    assert any(beats[others[0] : others[-1]]), "a heartbeat of our own comes between its posts"


def test_close_delivers_the_remaining_events(server: Scripted, tmp_path: Path) -> None:
    server.start()
    listener = FencelineListener(server.url, TOKEN, spool=tmp_path, pace=Pace(every=600))
    call_listener(listener, range(20))
    listener.close()
    assert server.numbers == list(range(20))


def test_an_event_that_cannot_be_serialised_affects_no_other(server: Scripted, listen: Any) -> None:
    server.start()
    listener = listen()
    for broken in (None, object(), finished(1).progress):
        listener.onQueryStarted(broken)
        listener.onQueryProgress(broken)
        listener.onQueryIdle(broken)
        listener.onQueryTerminated(broken)
    call_listener(listener, range(1))
    all_there(server, 1)
