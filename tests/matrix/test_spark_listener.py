"""Proves that the listener hears the queries of older Sparks, each in an environment of its own.

Needs a package index: PySpark is installed anew for each version.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.listener.servers import Dashboard
from tests.spark.conftest import environment, settings
from tests.spark.hearing import hear

pytestmark = [pytest.mark.matrix, pytest.mark.spark]


def python_with(version: str, folder: Path) -> str:
    """Return a Python that has this PySpark and nothing else."""
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "-q", "-p", sys.executable, str(folder)], check=True)
    python = str(folder / "bin" / "python")
    subprocess.run([*uv, "pip", "install", "-q", "-p", python, f"pyspark=={version}"], check=True)
    return python


@pytest.mark.parametrize("version", ["3.5.6", "4.0.1", "4.1.1"])
def test_queries_of_older_sparks_are_heard(version: str, tmp_path: Path) -> None:
    python = python_with(version, tmp_path / "venv")
    own = {key: value for key, value in settings(tmp_path).items() if key != "spark.jars"}
    around = environment(tmp_path) | {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    with Dashboard(tmp_path) as dashboard:
        dashboard.start()
        assert hear(dashboard, "classic", tmp_path, python, own, around) == {version}
