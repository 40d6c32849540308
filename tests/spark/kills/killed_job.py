"""A job under spark-submit that is killed with SIGKILL, its Python workers with it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.spark.conftest import ROOT, environment, settings
from tests.waiting import wait_for


def kill_job(script: Path, arguments: Sequence[str], folder: Path, there: Callable[[], object]) -> None:
    """Run a script and kill it once `there` is true; its output is in `folder/driver.log`."""
    confs = [word for key, value in settings(folder).items() for word in ("--conf", f"{key}={value}")]
    submit = str(Path(sys.executable).with_name("spark-submit"))
    variables = os.environ | environment(folder) | {"PYTHONPATH": str(ROOT)}
    log = folder / "driver.log"
    with log.open("w") as out:
        driver = subprocess.Popen(
            [submit, *confs, str(script), *arguments],
            env=variables, stdout=out, stderr=out, cwd=folder, start_new_session=True,
        )  # fmt: skip
        try:
            wait_for(lambda: there() or driver.poll() is not None, "the moment to kill the driver", 240)
            assert driver.poll() is None, log.read_text()
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
