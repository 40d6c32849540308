"""A job's output folder through Hadoop's FileSystem, as Spark itself opens it.

Through Spark's own file systems and not Python's, so that whatever the cluster can write to will do, with
the credentials it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

T = TypeVar("T")


class OutputFolder:
    """Files and folders below `url`."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self.url = url.rstrip("/")
        self._jvm: Any = spark._jvm
        self._fs: Any = self._path("").getFileSystem(spark._jsc.hadoopConfiguration())

    def names(self, folder: str) -> list[str]:
        """Return what is in a folder; nothing where there is none."""
        path = self._path(folder)
        if not self._fs.exists(path):
            return []
        return [status.getPath().getName() for status in self._fs.listStatus(path)]

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with all that is in it."""
        self._fs.delete(self._path(name), True)

    def read_or_delete(
        self, name: str, read: Callable[[str], T], *, torn: type[Exception], newer: type[Exception]
    ) -> T | None:
        """Return what `read` makes of a file; one that is torn is deleted, and None. Raises `newer`.

        It is torn where `read` raises `torn`, or where a local file is not what its checksum says: a driver
        died while it wrote it.
        """
        try:
            return read(self._text(self._fs.open(self._path(name))))
        except Py4JJavaError as error:
            # Of a local folder: it lies beside the sum of what it was to be.
            if not error.java_exception.getClass().getName().endswith(".ChecksumException"):
                raise
        except newer:
            raise
        except torn:
            pass
        self.delete(name)
        return None

    def create(self, name: str, text: str) -> bool:
        """Write a new file; return False because it is there already."""
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
        """Return the text of a file that may lie on another file system."""
        path = self._jvm.org.apache.hadoop.fs.Path(url)
        return self._text(path.getFileSystem(self._fs.getConf()).open(path))

    def _text(self, stream: Any) -> str:
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode(errors="replace")
        finally:
            stream.close()

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.url}/{name}" if name else self.url)
