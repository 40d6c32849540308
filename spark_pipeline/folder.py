"""A job's output folder, opened through Hadoop's FileSystem as Spark does.

With Spark's own file systems a job can use every store that the cluster can write to, with the cluster's
credentials.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any, Generic, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from fenceline.decode.typed import NewerFile, TornFile
from fenceline.history.reports import manifest_name, manifest_number

T = TypeVar("T")


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
