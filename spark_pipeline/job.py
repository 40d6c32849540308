"""What the jobs share under spark-submit: results on stdout, an error as one line on stderr, arguments, and
an output folder, opened through Hadoop's FileSystem as Spark does.

With Spark's own file systems a job can use every store that the cluster can write to, with the cluster's
credentials.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any, Generic, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from fenceline.decode.typed import NewerFile, TornFile
from fenceline.history.reports import manifest_name, manifest_number
from fenceline.kafka.applications import LONGEST
from fenceline.owners import Owner

T = TypeVar("T")


class JobError(Exception):
    """A job cannot continue; the text is one sentence with the reason and the remedy."""


class BatchFunction:
    """A function of foreachBatch; it keeps its failure, because Spark wraps the reason in a page of Java."""

    def __init__(self, write: Callable[[DataFrame, int], None]) -> None:
        self._write = write
        self.failure: Exception | None = None

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        try:
            self._write(rows, batch_id)
        except Exception as error:
            self.failure = error
            raise


def run_job(name: str, subject: str, run: Callable[[SparkSession], Iterable[str]]) -> int:
    """Run a job about `subject` in its own session, and print each result; return the exit status."""
    spark = SparkSession.builder.appName(f"fenceline {name} of {subject}").getOrCreate()
    try:
        for result in run(spark):
            print(f"{name}: {result}", flush=True)  # noqa: T201 - a command speaks
    except JobError as error:
        print(f"{name}: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return 1
    finally:
        spark.stop()
    return 0


def job_parser(program: str, description: str, examples: str) -> argparse.ArgumentParser:
    """Return a parser of the cluster's arguments; `@FILE` reads arguments from a file, one a line."""
    parser = argparse.ArgumentParser(
        program, description=description, epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter, fromfile_prefix_chars="@",
    )  # fmt: skip
    parser.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT,…")
    parser.add_argument(
        "--kafka",
        action="append",
        default=[],
        type=key_value,
        metavar="KEY=VALUE",
        help="a property of Kafka's Java clients, such as security.protocol=SSL; repeatable",
    )
    return parser


def java_properties(options: argparse.Namespace) -> dict[str, str]:
    """Return the given properties of Kafka's Java clients."""
    return {**dict(options.kafka), "bootstrap.servers": options.bootstrap_servers}


def named_application(text: str) -> Owner:
    """Return an application's owner from `PATTERN=NAME`; an empty NAME leaves these ids without a name."""
    match, equals, name = text.partition("=")
    if not match or not equals or len(name) > LONGEST or not name.isprintable():
        raise argparse.ArgumentTypeError(f"write PATTERN=NAME, a name of up to {LONGEST} characters")
    return Owner(match, team="", application=name)


def key_value(text: str) -> tuple[str, str]:
    """Return a property of Kafka's Java clients and its value from `KEY=VALUE`."""
    name, value = reader_option(text)
    return name.removeprefix("kafka."), value


def reader_option(text: str) -> tuple[str, str]:
    """Return an option of a reader of Spark and its value from `KEY=VALUE`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"write KEY=VALUE, not {name!r}")
    return name, value


def folder_name(text: str) -> str:
    """Return a name that is valid as a folder's name, such as a cluster's."""
    # As dashboard.config has it.
    if not text or len(text) > 64 or not all((c.isalnum() and c.isascii()) or c in "-_." for c in text):
        raise argparse.ArgumentTypeError("use letters, digits, - _ and . (at most 64)")
    return text


def positive_number(text: str) -> int:
    """Return a whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {number}")
    return number


class OutputFolder:
    """Files and folders below `url`."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self.url = url.rstrip("/")
        self._jvm: Any = spark._jvm
        self._fs: Any = self._path("").getFileSystem(spark._jsc.hadoopConfiguration())

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder; empty if the folder does not exist."""
        path = self._path(folder)
        if not self._fs.exists(path):
            return []
        return [status.getPath().getName() for status in self._fs.listStatus(path)]

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with its content."""
        self._fs.delete(self._path(name), True)

    def read_or_delete(self, name: str, read: Callable[[str], T]) -> T | None:
        """Return the result of `read`; delete a torn file and return None. Raises NewerFile.

        A file is torn where `read` raises TornFile, or where a local file does not match its checksum: a
        driver died while writing it.
        """
        try:
            return read(self._text(self._fs.open(self._path(name))))
        except Py4JJavaError as error:
            # A local file beside the checksum of its complete content.
            if not error.java_exception.getClass().getName().endswith(".ChecksumException"):
                raise
        except NewerFile:
            raise
        except TornFile:
            pass
        self.delete(name)
        return None

    def create(self, name: str, text: str) -> bool:
        """Write a new file; return False if it exists already."""
        path = self._path(name)
        try:
            stream = self._fs.create(path, False)
        except Py4JJavaError:
            if not self._fs.exists(path):
                raise
            return False
        stream.write(bytearray(text.encode()))
        stream.close()
        return True

    def read_elsewhere(self, url: str) -> str:
        """Return the text of a file, also from another file system."""
        path = self._jvm.org.apache.hadoop.fs.Path(url)
        return self._text(path.getFileSystem(self._fs.getConf()).open(path))

    def _text(self, stream: Any) -> str:
        with closing(stream):
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode(errors="replace")

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.url}/{name}" if name else self.url)


class ManifestLog(Generic[T]):
    """The manifests in an output's folder `log`, one per micro-batch or run. The newest one is valid.

    `read` raises TornFile for a broken manifest, and NewerFile for a later layout; `failure` is the job's own
    error. It keeps `kept` manifests, for readers and for people.
    """

    def __init__(
        self,
        files: OutputFolder,
        read: Callable[[str], T],
        *,
        failure: type[Exception],
        kept: int,
    ) -> None:
        self._files, self._read, self._failure, self._kept = files, read, failure, kept

    def newest(self) -> T | None:
        """Return the newest manifest, None without any. Raises `failure` for one of a later Fenceline.

        It deletes torn manifests: their driver died while writing, and the work is repeated.
        """
        for number in sorted(self._numbers(), reverse=True):
            name = _in_log(number)
            try:
                found = self._files.read_or_delete(name, self._read)
            except NewerFile as error:
                path = f"{self._files.url}/{name}"
                raise self._failure(f"{path}: {error}; run the job with that one.") from error
            if found is not None:
                return found
        return None

    def publish(self, number: int, text: str) -> bool:
        """Write a manifest, and delete old ones; return False if this number exists already."""
        if not self._files.create(_in_log(number), text):
            return False
        for old in self._numbers():
            if old <= number - self._kept:
                self._files.delete(_in_log(old))
        return True

    def _numbers(self) -> list[int]:
        names = self._files.names("log")
        return [number for name in names if (number := manifest_number(name)) is not None]


def _in_log(number: int) -> str:
    return f"log/{manifest_name(number)}"
