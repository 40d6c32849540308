"""A checkpoint's folder on HDFS, through the driver's own Hadoop, by py4j.

Only on HDFS: its NameNode renames atomically and never overwrites. Hadoop's clients of other stores, and of
local files, first check whether the name is free and then rename: two drivers can both succeed.
"""

from __future__ import annotations

import uuid
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from spark_pipeline.sink.errors import Refused
from spark_pipeline.sink.storage import HIDDEN, LocalStorage, Storage, open_storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Schemes whose NameNode decides between two creators (`Options.Rename.NONE` in Hadoop's FSDirRenameOp).
NAME_NODES = ("hdfs", "webhdfs", "swebhdfs")


class HadoopStorage(Storage):
    """A folder of HDFS: writes a temporary file and renames it, and never overwrites."""

    def __init__(self, jvm: Any, gateway: Any, context: Any, folder: str) -> None:
        self._jvm, self._gateway, self._context, self._folder = jvm, gateway, context, folder.rstrip("/")
        self._hadoop = jvm.org.apache.hadoop.fs

    @property
    def path(self) -> str:
        return self._folder

    def read(self, name: str) -> bytes | None:
        try:
            stream = self._context.open(self._at(name))
        except Py4JJavaError as error:
            if _is(error, "FileNotFoundException"):
                return None
            raise _as_os_error(error) from error
        with closing(stream):
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))

    def create(self, name: str, data: bytes) -> bool:
        temporary = self._at(f"{HIDDEN}{name}.{uuid.uuid4().hex}.tmp")
        try:
            self._make_folder()
            self._write(temporary, data)
            self._context.rename(temporary, self._at(name), self._no_overwrite())
        except Py4JJavaError as error:
            # If the removal fails too, a hidden file stays, and the first error is raised.
            with suppress(Py4JJavaError):
                self._context.delete(temporary, False)
            if _is(error, "FileAlreadyExistsException"):
                return False
            raise _as_os_error(error) from error
        return True

    def file_names(self) -> list[str]:
        try:
            statuses = self._context.util().listStatus(self._hadoop.Path(self._folder))
        except Py4JJavaError as error:
            if _is(error, "FileNotFoundException"):
                return []
            raise _as_os_error(error) from error
        names = (str(status.getPath().getName()) for status in statuses)
        return [name for name in names if not name.startswith(HIDDEN)]

    def remove(self, name: str) -> None:
        try:
            self._context.delete(self._at(name), False)
        except Py4JJavaError as error:
            if not _is(error, "FileNotFoundException"):
                raise _as_os_error(error) from error

    def subfolder(self, folder: str) -> HadoopStorage:
        return HadoopStorage(self._jvm, self._gateway, self._context, f"{self._folder}/{folder}")

    def _at(self, name: str) -> Any:
        return self._hadoop.Path(f"{self._folder}/{name}")

    def _make_folder(self) -> None:
        anybody = self._hadoop.permission.FsPermission.getDirDefault()
        self._context.mkdir(self._hadoop.Path(self._folder), anybody, True)

    def _write(self, path: Any, data: bytes) -> None:
        create = self._jvm.java.util.EnumSet.of(self._hadoop.CreateFlag.CREATE)
        none = self._gateway.new_array(self._hadoop.Options.CreateOpts, 0)
        with closing(self._context.create(path, create, none)) as stream:
            stream.write(data)
            stream.hsync()

    def _no_overwrite(self) -> Any:
        options = self._gateway.new_array(self._hadoop.Options.Rename, 1)
        options[0] = self._hadoop.Options.Rename.NONE
        return options


def open_from_spark(session: SparkSession, checkpoint: str | None, own: str) -> Storage:
    """Return a checkpoint's folder, resolved by the session's Hadoop; without one the query's `own`.

    Local files are opened directly, other stores but HDFS through fsspec, whose clients can create
    exclusively. Raises `Refused` for a folder that cannot be opened, and for another one than the query's
    `own` ("" if unknown): a copy has the same query id.
    """
    checkpoint = checkpoint or own
    if not checkpoint:
        raise Refused(
            "this Spark does not show the query's checkpointLocation: give the sink the same as checkpoint"
        )
    context: Any = session.sparkContext
    jvm, configuration = context._jvm, context._jsc.hadoopConfiguration()
    path = jvm.org.apache.hadoop.fs.Path(checkpoint)
    if path.toUri().getScheme() in (None, "file", *NAME_NODES):
        path = path.getFileSystem(configuration).makeQualified(path)
    _refuse_other(path.toString(), own)
    uri = path.toUri()
    if uri.getScheme() == "file":
        return LocalStorage(uri.getPath())
    if uri.getScheme() not in NAME_NODES:
        return open_storage(path.toString())
    files = jvm.org.apache.hadoop.fs.FileContext.getFileContext(uri, configuration)
    return HadoopStorage(jvm, context._gateway, files, path.toString())


def _refuse_other(checkpoint: str, own: str) -> None:
    if own and checkpoint.rstrip("/") != own.rstrip("/"):
        raise Refused(
            f"checkpoint is {checkpoint}, and the query's own checkpointLocation is {own}: they must be one. "
            "Leave it out of the sink, which then takes the query's own"
        )


def _is(error: Py4JJavaError, kind: str) -> bool:
    return str(error.java_exception.getClass().getName()).endswith(f".{kind}")


def _as_os_error(error: Py4JJavaError) -> OSError:
    return OSError(str(error.java_exception.toString()))
