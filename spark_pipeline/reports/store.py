"""The history job's output through Hadoop's FileSystem: manifests, and the parts they name.

Through Spark's own file systems and not Python's, so that whatever the cluster can write to will do, with
the credentials it has. Layout: `fenceline.reports`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from fenceline.reports import (
    Manifest,
    NewerFormat,
    NotAManifest,
    batch_of,
    folder_of,
    manifest_name,
    part_folder,
    part_name,
    read_manifest,
    write_manifest,
)

#: Manifests of earlier micro-batches that are left, for readers and for people.
_KEPT = 20


class HistoryError(Exception):
    """The job cannot go on; the text is the reason and the remedy."""


class ReportStore:
    """The output of one cluster."""

    def __init__(self, spark: SparkSession, output: str, cluster: str) -> None:
        self.folder = f"{output.rstrip('/')}/{folder_of(cluster)}"
        self.parts, self._log = f"{self.folder}/parts", f"{self.folder}/log"
        self._jvm: Any = spark._jvm
        self._fs: Any = self._path(self.folder).getFileSystem(spark._jsc.hadoopConfiguration())

    def part_path(self, name: str) -> str:
        """Return where a part lies."""
        return f"{self.parts}/{part_folder(name)}"

    def part_days(self, part: str) -> list[str]:
        """Return the days of which a part has rows, ascending; as text they sort as they do as days."""
        tables = self._names(self.part_path(part))
        found = {name for table in tables for name in self._names(f"{self.part_path(part)}/{table}")}
        # Rows of no day, as those of state, lie in `day=__HIVE_DEFAULT_PARTITION__`.
        return sorted(name[4:] for name in found if name.startswith("day=") and name[4:5].isdigit())

    def newest_manifest(self) -> Manifest | None:
        """Return the newest manifest, None where there is none. Raises HistoryError for a later Fenceline's.

        One that is torn is of a driver that died while it wrote it: its micro-batch comes again, so it goes.
        """
        for batch in sorted(self._batches(), reverse=True):
            path = self._path(f"{self._log}/{manifest_name(batch)}")
            try:
                return read_manifest(self._read(path))
            except Py4JJavaError as error:
                # Of a local folder: it lies beside the sum of what it was to be.
                if not error.java_exception.getClass().getName().endswith(".ChecksumException"):
                    raise
                self._fs.delete(path, False)
            except NewerFormat as error:
                raise HistoryError(f"{path.toString()}: {error}; run the job with that one.") from error
            except NotAManifest:
                self._fs.delete(path, False)
        return None

    def publish_manifest(self, manifest: Manifest) -> None:
        """Write a micro-batch's manifest, unless there is one: then raises HistoryError."""
        path = self._path(f"{self._log}/{manifest_name(manifest.batch)}")
        try:
            stream = self._fs.create(path, False)
        except Py4JJavaError as error:
            if not self._fs.exists(path):
                raise
            raise HistoryError(
                f"another driver has written micro-batch {manifest.batch} to {self.folder}: two of them run "
                "on one checkpoint. Stop one."
            ) from error
        stream.write(bytearray(write_manifest(manifest).encode()))
        stream.close()
        for batch in self._batches():
            if batch < manifest.batch - _KEPT:
                self._fs.delete(self._path(f"{self._log}/{manifest_name(batch)}"), False)

    def delete_parts(self, parts: Iterable[str]) -> None:
        """Delete parts that no manifest names any more."""
        for part in parts:
            self._fs.delete(self._path(self.part_path(part)), True)

    def delete_orphans(self, manifest: Manifest | None) -> None:
        """Delete what attempts left that never came to a manifest.

        Raises HistoryError where there is none and yet parts of later micro-batches than the first: then it
        is the manifests that are missing.
        """
        first = part_folder(part_name(0, ""))
        if manifest is None and any(not name.startswith(first) for name in self._names(self.parts)):
            raise HistoryError(
                f"{self.folder} has parts and no manifest: its folder log was deleted. Restore it, or give "
                "the job a new --output and --checkpoint."
            )
        named = {part.name for part in manifest.parts} | set(manifest.retired) if manifest else set()
        folders = {part_folder(name) for name in named}
        for folder in set(self._names(self.parts)) - folders:
            self._fs.delete(self._path(f"{self.parts}/{folder}"), True)

    def query_of(self, checkpoint: str) -> str:
        """Return the id of the query that a checkpoint is of."""
        path = self._path(f"{checkpoint.rstrip('/')}/metadata")
        fs = path.getFileSystem(self._fs.getConf())
        return self._text(fs.open(path))

    def _batches(self) -> list[int]:
        return [batch for name in self._names(self._log) if (batch := batch_of(name)) is not None]

    def _names(self, folder: str) -> list[str]:
        path = self._path(folder)
        if not self._fs.exists(path):
            return []
        return [status.getPath().getName() for status in self._fs.listStatus(path)]

    def _read(self, path: Any) -> str:
        return self._text(self._fs.open(path))

    def _text(self, stream: Any) -> str:
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode(errors="replace")
        finally:
            stream.close()

    def _path(self, url: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(url)
