"""Proves that the listener reports the queries of each Spark and Python that users have.

Needs a package index: PySpark is installed anew for each version.
"""

from pathlib import Path

import pytest

from sandbox import prepared
from tests.matrix.spark_versions import PLATFORMS, python_with
from tests.spark.conftest import environment, settings
from tests.spark.listener.servers import Dashboard
from tests.spark.listener_reports import assert_listener_reports

pytestmark = [pytest.mark.matrix, pytest.mark.spark]


@pytest.mark.parametrize("platform", PLATFORMS, ids="-".join)
def test_queries_are_reported_on_every_platform(platform: tuple[str, str], tmp_path: Path) -> None:
    python = python_with(platform, tmp_path / "venv")
    own = {key: value for key, value in settings(tmp_path).items() if key != "spark.jars"}
    around = environment(tmp_path) | {
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        prepared.VARIABLE: "",
    }
    with Dashboard(tmp_path) as dashboard:
        dashboard.start()
        assert assert_listener_reports(dashboard, "classic", tmp_path, python, own, around) == {platform[0]}
