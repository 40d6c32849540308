"""Proves that batches outlive a dashboard that is down (in `make soak` an hour of 10 a second), and a killed
driver; and that all that a real Spark's queries do is in its database, by a session of its own kind and by
Spark Connect. Older versions of Spark: tests/matrix/test_spark_listener.py.
"""

import os
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_listener import FencelineListener
from tests.db.listener_posts import QUERY
from tests.spark.conftest import environment, settings
from tests.spark.listener.driver import Driver
from tests.spark.listener.events import QUICK, TOKEN, call_listener, started
from tests.spark.listener.servers import Dashboard
from tests.spark.listener_reports import assert_listener_reports
from tests.waiting import wait_for

DEADLINE_S = 300
QUERIES = 50
#: Of each query in an hour of 10 batches a second.
HOUR_BATCHES = 36_000 // QUERIES


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    with Dashboard(tmp_path_factory.mktemp("dashboard")) as dashboard:
        yield dashboard


def batches_in_database(dashboard: Dashboard) -> dict[str, list[int]]:
    """Return the batches of each query `orders` that the dashboard's database has."""
    found = defaultdict(list)
    with sqlite3.connect(dashboard.database) as connection:
        for query, number in connection.execute(
            "SELECT q.query_id, b.batch_id "
            "FROM dashboard_batch b JOIN dashboard_query q ON q.id = b.query_id "
            "WHERE q.name = 'orders'"
        ):
            found[query].append(number)
    return found


def name(number: int) -> str:
    return f"{number:08}{QUERY[8:]}"


@pytest.mark.parametrize("batches", [100, pytest.param(HOUR_BATCHES, marks=pytest.mark.soak)])
def test_all_batches_are_there_after_an_outage(dashboard: Dashboard, tmp_path: Path, batches: int) -> None:
    dashboard.stop()
    listener = FencelineListener(dashboard.url, TOKEN, spool=tmp_path / "spool", pace=QUICK)
    for query in range(QUERIES):
        listener.onQueryStarted(started(name(query), name(query)))
    for number in range(batches):
        for query in range(QUERIES):
            call_listener(listener, range(number, number + 1), query=name(query), run=name(query))
    dashboard.start()
    wait_for(lambda: listener._spool.waiting == 0, "everything is delivered", DEADLINE_S)
    listener.close()
    found = batches_in_database(dashboard)
    assert found.keys() == {name(query) for query in range(QUERIES)}
    assert all(sorted(numbers) == list(range(batches)) for numbers in found.values())
    assert not list((tmp_path / "spool").iterdir()), "nothing is left behind"
    assert "Traceback" not in dashboard.log()


def test_events_of_a_killed_driver_are_posted_by_the_next_one(dashboard: Dashboard, tmp_path: Path) -> None:
    dashboard.start()
    spool = tmp_path / "spool"
    # The first of them ends in the middle of an event, as a full disk or a lost machine leaves it.
    for first, torn in ((0, True), (300, False)):
        with Driver("http://127.0.0.1:1", spool, first, 300) as driver:
            driver.kill()
        if torn:
            newest = max(spool.glob("*/*.z"))
            os.truncate(newest, newest.stat().st_size - 10)
    with Driver(dashboard.url, spool, 600, 300):
        wait_for(
            lambda: len(batches_in_database(dashboard)[QUERY]) >= 899, "all but the torn one", DEADLINE_S
        )
        wait_for(lambda: len(list(spool.iterdir())) == 1, "the others' folders are gone", DEADLINE_S)
    assert set(batches_in_database(dashboard)[QUERY]) == set(range(900)) - {299}


@pytest.mark.matrix
def test_two_drivers_that_share_a_folder_never_mix(dashboard: Dashboard, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    dashboard.stop()
    with Driver(dashboard.url, spool, 1_000, 200), Driver(dashboard.url, spool, 1_200, 200):
        assert len(list(spool.iterdir())) == 2
        dashboard.start()
        both = set(range(1_000, 1_400))
        wait_for(lambda: both <= set(batches_in_database(dashboard)[QUERY]), "all of both", DEADLINE_S)
        assert len(list(spool.iterdir())) == 2, "each keeps its own"


@pytest.mark.spark
@pytest.mark.parametrize("how", ["classic", pytest.param("connect", marks=pytest.mark.soak)])
def test_queries_of_a_real_spark_are_reported_from_start_to_end(
    dashboard: Dashboard, tmp_path: Path, how: str
) -> None:
    dashboard.start()
    reported = assert_listener_reports(
        dashboard, how, tmp_path, sys.executable, settings(tmp_path), environment(tmp_path)
    )
    assert reported == {"4.2.0"}
