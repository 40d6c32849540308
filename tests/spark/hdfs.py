"""A real HDFS of one NameNode and one DataNode, for tests of what Hadoop promises there."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from sandbox.java import classpath, fetch_jars, find_java
from sandbox.ports import HOST, free_port
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
