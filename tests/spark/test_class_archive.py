"""Proves that drivers take Spark's classes from the archive, and do without where it cannot be made."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import prepared
from sandbox.java import find_java
from tests.spark.conftest import environment

pytestmark = pytest.mark.spark


def test_classes_come_from_the_archive(tmp_path: Path) -> None:
    variables = environment(tmp_path)
    variables[prepared.VARIABLE] += " -Xlog:class+load"
    submit = Path(sys.executable).with_name("spark-submit")
    done = subprocess.run(
        [submit, "--version"], env=os.environ | variables, capture_output=True, text=True, check=True
    )
    assert "org.apache.spark.deploy.SparkSubmit source: shared objects file (top)" in done.stdout


@pytest.mark.matrix
def test_a_failed_training_run_leaves_drivers_without_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyspark").mkdir()
    monkeypatch.setattr(prepared, "_home", lambda: tmp_path / "pyspark")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--no-such-option pyspark-shell")
    said: list[str] = []
    found = prepared.archive_environment(find_java(tmp_path), said.append)
    assert found == {prepared.VARIABLE: ""}
    assert "starts without a class archive: Spark failed" in said[-1]
