"""One real Spark for all tests of a process, and the broker that they share.

Spark allows one session's JVM per process: a test that kills a driver starts it as a process of its own.
Queries of tests have names, topics and checkpoints of their own, and are stopped by those who started them.
"""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sandbox.java import fetch_jars, find_java
from sandbox.prepared import spark_archive
from tests.brokers import kafka_42
from tests.spark.hdfs import hdfs

__all__ = ["kafka_42"]

ROOT = Path(__file__).parents[2]
LOGGING = ROOT / "sandbox" / "log4j2.properties"


def settings(folder: Path) -> dict[str, str]:
    """Return the settings of a small session with Kafka's connector that keeps its files in `folder`.

    A process of its own builds its session with the same ones, after `environment`.
    """
    return {
        "spark.master": "local[2]",
        "spark.jars": ",".join(str(path) for path in fetch_jars("spark-connector", lambda line: None)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "tmp"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        # Python workers import the tests' own functions.
        "spark.executorEnv.PYTHONPATH": str(ROOT),
    }


def environment(folder: Path) -> dict[str, str]:
    """Return what the environment of a driver needs: a Java that Spark takes, and this Python."""
    java = find_java(folder)
    pythons = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return {"JAVA_HOME": str(java.home), **pythons, **spark_archive.archive_environment(java, print)}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark 4.2 with the jars of Kafka, Delta and databases, two cores and two shuffle partitions."""
    folder = tmp_path_factory.mktemp("spark")
    # It tells of every call back into Python.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(folder).items():
            patch.setenv(name, value)
        known = settings(folder)
        jars = (known["spark.jars"], *map(str, fetch_jars("tables", lambda line: None)))
        builder = SparkSession.builder.appName("tests").config(map={**known, "spark.jars": ",".join(jars)})
        session = builder.getOrCreate()
    yield session
    for query in session.streams.active:
        query.stop()
    session.stop()


@pytest.fixture(scope="session")
def hdfs_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The root of a real HDFS, `hdfs://127.0.0.1:port`."""
    with hdfs(tmp_path_factory.mktemp("hdfs")) as url:
        yield url
