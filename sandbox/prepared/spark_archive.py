"""The class archive of Spark's driver, beside PySpark's jars: a driver then starts with half the CPU time.

`python -m sandbox.prepared.spark_archive FOLDER` runs the program of the archive: a session, a job, and a
streaming query.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sandbox.errors import SandboxError
from sandbox.java import Java, Progress
from sandbox.ports import HOST
from sandbox.prepared import class_archive

#: Options that the launcher gives to a driver's JVM.
VARIABLE = "SPARK_SUBMIT_OPTS"
#: Longer than a small machine needs.
_TRAINING_S = 300


def archive_environment(java: Java, progress: Progress) -> dict[str, str]:
    """Return the variable with which this Python's drivers use the archive; makes it at the first call."""

    def train(folder: Path, options: Sequence[str]) -> None:
        _train(java, folder, options)

    home = _home()
    jars, name = sorted((home / "jars").glob("*.jar")), f"spark-{version('pyspark')}"
    return {VARIABLE: " ".join(class_archive.archive_options(name, home, java, jars, train, progress))}


def _home() -> Path:
    # Importing it would take longer than everything else.
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SandboxError("PySpark is missing: `make venv` installs it")
    return Path(spec.origin).parent


def _train(java: Java, folder: Path, options: Sequence[str]) -> None:
    variables = {"JAVA_HOME": str(java.home), "SPARK_LOCAL_IP": HOST, VARIABLE: " ".join(options)}
    command = [sys.executable, "-m", "sandbox.prepared.spark_archive", str(folder)]
    try:
        subprocess.run(
            command,
            env=os.environ | variables,
            capture_output=True,
            text=True,
            check=True,
            timeout=_TRAINING_S,
        )
    except subprocess.TimeoutExpired:
        raise SandboxError(f"Spark did not end in {_TRAINING_S} s") from None
    except subprocess.CalledProcessError as failed:
        raise SandboxError(f"Spark failed: {failed.stderr.strip().splitlines()[-1:]}") from None


def main(folder: str) -> None:
    """Load the classes of drivers, and wait until the JVM has written its archive and ended."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").appName("class archive")
    settings = {"spark.ui.enabled": "false", "spark.local.dir": folder, "spark.sql.warehouse.dir": folder}
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.range(100).selectExpr("id % 7 AS key").groupBy("key").count().collect()
    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    writer = rows.selectExpr("cast(value AS STRING) AS value").writeStream.format("noop")
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination(60)
    query.stop()
    gateway: Any = session.sparkContext._gateway
    session.stop()
    # The driver's JVM lives as long as the pipe to it.
    gateway.proc.stdin.close()
    gateway.proc.wait(_TRAINING_S)


if __name__ == "__main__":
    main(sys.argv[1])
