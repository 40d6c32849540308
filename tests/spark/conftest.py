"""One real Spark for all tests of a process, and the broker that they share.

Spark allows one session's JVM per process: a test that kills a driver starts it as a process of its own.
Queries of tests have names, topics and checkpoints of their own, and are stopped by those who started them.
"""

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from sandbox import prepared
from sandbox.java import classpath, fetch_jars, find_java
from sandbox.ports import HOST, free_port
from tests.brokers import kafka_42
from tests.waiting import wait_for

NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-Dlog4j2.level=INFO")
SETTINGS = {
    "dfs.replication": "1",
    # It would look up the name of 127.0.0.1, which not every machine has.
    "dfs.namenode.datanode.registration.ip-hostname-check": "false",
    "dfs.namenode.http-address": f"{HOST}:0",
    "dfs.datanode.address": f"{HOST}:0",
    "dfs.datanode.http.address": f"{HOST}:0",
    "dfs.datanode.ipc.address": f"{HOST}:0",
}
DEADLINE_S = 90


@contextmanager
def hdfs(folder: Path) -> Iterator[str]:
    """Start both with their files in `folder`, yield the URL of the root once blocks can be written."""
    url = f"hdfs://{HOST}:{free_port()}"
    _write_site(folder / "core-site.xml", {"fs.defaultFS": url, "hadoop.tmp.dir": str(folder / "data")})
    _write_site(folder / "hdfs-site.xml", SETTINGS)
    spark = Path(pyspark.__file__).parent / "jars" / "*"
    path = classpath([folder, *fetch_jars("hdfs", lambda line: None), spark])
    java = [find_java(folder).command, *OPTIONS, "-cp", path]
    with _running([*java, NAME_NODE, "-format", "-nonInteractive"], folder / "format.log") as formatting:
        assert formatting.wait(DEADLINE_S) == 0, (folder / "format.log").read_text()
    log = folder / "namenode.log"
    with _running([*java, NAME_NODE], log), _running([*java, DATA_NODE], folder / "datanode.log"):
        wait_for(lambda: "registerDatanode: from" in log.read_text(), "HDFS with its DataNode", DEADLINE_S)
        yield url


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as written:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=written, stderr=written)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _write_site(path: Path, settings: dict[str, str]) -> None:
    rows = (
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()
    )
    path.write_text(f"<configuration>{''.join(rows)}</configuration>")


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
    return {"JAVA_HOME": str(java.home), **pythons, **prepared.archive_environment(java, print)}


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
