"""What is made once, for every start of a Kafka or a Spark: class archives and a formatted data folder.

A JVM's archive of loaded classes (AppCDS) is beside its jars: a broker or a driver then starts with half the
CPU time. `python -m sandbox.prepared FOLDER` runs the program of Spark's archive: a session, a job, and a
streaming query.

An archive fits one JVM and one class path, both in its name. A JVM also checks this: it reports a mismatch in
its log and loads the jars as usual. An incomplete archive would abort the JVM (JDK 17), so each has a
checksum file.

Kafka's own tool formats a data folder once per version, later folders get a copy: `bootstrap.checkpoint`
holds the feature levels of a version and nothing of a node or a cluster; `meta.properties` holds the ids of
both and of the folder.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sandbox import SandboxError
from sandbox.java import Java, Progress, file_sha256
from sandbox.ports import HOST

#: Called with a working folder and JVM options; runs the program of the archive until its end.
Training = Callable[[Path, Sequence[str]], None]
#: Options that the launcher gives to a driver's JVM.
VARIABLE = "SPARK_SUBMIT_OPTS"
#: Longer than a small machine needs.
_TRAINING_S = 300
CHECKPOINT, META = "bootstrap.checkpoint", "meta.properties"


def archive_options(
    name: str, folder: Path, java: Java, jars: Sequence[Path], train: Training, progress: Progress
) -> list[str]:
    """Return the JVM options for `folder`'s archive of `name`; empty if it cannot be made.

    The first call makes it in ten seconds of a JVM; concurrent calls wait. A damaged archive is made again.
    An empty file marks a JVM that makes no archives.
    """
    try:
        path = folder / f"{name}-{_fingerprint(java, jars)}.jsa"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_whole(path):
                progress(f"{name}: making its class archive, once")
                _make(path, train)
        return [f"-XX:SharedArchiveFile={path}"] if path.stat().st_size else []
    except (OSError, SandboxError) as error:
        progress(f"{name}: starts without a class archive: {error}")
        return []


def _make(path: Path, train: Training) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{path.stem}-", dir=path.parent) as folder:
        made = Path(folder) / path.name
        train(Path(folder), ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", f"-XX:ArchiveClassesAtExit={made}"))
        if not made.exists():
            made.touch()
        _sum_of(path).write_text(file_sha256(made))
        made.replace(path)


def _is_whole(path: Path) -> bool:
    try:
        return file_sha256(path) == _sum_of(path).read_text()
    except FileNotFoundError:
        return False


def _sum_of(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _fingerprint(java: Java, jars: Sequence[Path]) -> str:
    # A jar that was fetched again has another timestamp: the JVM would refuse the archive.
    files = (f"{jar} {jar.stat().st_mtime_ns}" for jar in jars)
    text = "\n".join((str(java.home), java.build, *files))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def archive_environment(java: Java, progress: Progress) -> dict[str, str]:
    """Return the variable with which this Python's drivers use the archive; makes it at the first call."""
    home = _home()
    jars, name = sorted((home / "jars").glob("*.jar")), f"spark-{version('pyspark')}"
    return {VARIABLE: " ".join(archive_options(name, home, java, jars, partial(_train, java), progress))}


def _home() -> Path:
    # Importing it would take longer than everything else.
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SandboxError("PySpark is missing: `make venv` installs it")
    return Path(spec.origin).parent


def _train(java: Java, folder: Path, options: Sequence[str]) -> None:
    variables = {"JAVA_HOME": str(java.home), "SPARK_LOCAL_IP": HOST, VARIABLE: " ".join(options)}
    command = [sys.executable, "-m", "sandbox.prepared", str(folder)]
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


def is_formatted(data: Path) -> bool:
    return (data / META).exists()


def copy_format(template: Path, data: Path, cluster_id: str, node_id: int) -> None:
    """Format a data folder with the checkpoint of another; raises FileNotFoundError without one.

    The file that marks the folder as formatted is written last.
    """
    checkpoint = template.read_bytes()
    data.mkdir(parents=True, exist_ok=True)
    (data / CHECKPOINT).write_bytes(checkpoint)
    ids = {"node.id": node_id, "directory.id": new_id(), "version": 1, "cluster.id": cluster_id}
    _write(data / META, "".join(f"{key}={value}\n" for key, value in ids.items()).encode())


def keep_format(data: Path, template: Path) -> None:
    """Store the checkpoint of a folder that the tool has formatted."""
    template.parent.mkdir(parents=True, exist_ok=True)
    _write(template, (data / CHECKPOINT).read_bytes())


def new_id() -> str:
    """Return a random id of a cluster or a folder in Kafka's spelling."""
    made = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    # An id with a leading dash would be read as an option.
    return "F" + made[1:]


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    partial = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}")
    partial.write_bytes(content)
    partial.replace(path)


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
