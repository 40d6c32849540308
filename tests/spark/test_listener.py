"""Proves that a real Spark's queries are reported, by a session of its own kind and by Spark Connect.

Started, finished batches, idle, stopped and failed: each as it is in the dashboard's database. Older
versions of Spark: tests/matrix/test_spark_listener.py.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.conftest import environment, settings
from tests.spark.listener.servers import Dashboard
from tests.spark.listener_reports import assert_listener_reports

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    with Dashboard(tmp_path_factory.mktemp("dashboard")) as dashboard:
        dashboard.start()
        yield dashboard


@pytest.mark.parametrize("how", ["classic", pytest.param("connect", marks=pytest.mark.soak)])
def test_queries_are_reported_from_start_to_end(dashboard: Dashboard, tmp_path: Path, how: str) -> None:
    around = environment(tmp_path)
    assert assert_listener_reports(dashboard, how, tmp_path, sys.executable, settings(tmp_path), around) == {
        "4.2.0"
    }
