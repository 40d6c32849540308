"""Proves that pip brings the wheel to the oldest Python and to the newest, with all that the sink needs;
there the command line explains what it lacks itself."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import cases
from tests.matrix.spark_versions import find_python
from tests.spark.conftest import ROOT

pytestmark = [pytest.mark.matrix, pytest.mark.spark]

#: Without the checkout: all that is imported is in the environment.
PROBE = """
import spark_listener, spark_pipeline.exactly_once, spark_pipeline.history, spark_pipeline.sink.task.writer
import transaction_admin.kafka_groups
print(spark_pipeline.sink.__file__)
"""


@cases(("3.9", "3.5.6", "needs Python 3.11 or newer, this is 3.9."), ("3.13", "4.2.0", "'fenceline[cli]'"))
def test_pip_installs_it_with_what_the_sink_needs(
    tmp_path: Path, version: str, spark: str, advice: str
) -> None:
    uv = [sys.executable, "-m", "uv"]
    # As `make wheel` does: setuptools packs what it has kept of a build before.
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    subprocess.run([*uv, "build", "-q", "--wheel", "--out-dir", str(tmp_path), str(ROOT)], check=True)
    shutil.rmtree(ROOT / "build")
    (wheel,) = tmp_path.glob("*.whl")
    folder = tmp_path / "venv"
    subprocess.run([*uv, "venv", "-q", "-p", find_python(version), str(folder)], check=True)
    python = str(folder / "bin" / "python")
    wanted = [f"{wheel}[spark]", f"pyspark=={spark}", "setuptools"]
    subprocess.run([*uv, "pip", "install", "-q", "-p", python, *wanted], check=True)
    done = subprocess.run([python, "-c", PROBE], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).is_relative_to(folder)
    # The command line is there, and explains what it lacks.
    lacking = subprocess.run([folder / "bin" / "fenceline"], capture_output=True, text=True, check=False)
    assert (lacking.returncode, lacking.stdout) == (2, "")
    assert advice in lacking.stderr
