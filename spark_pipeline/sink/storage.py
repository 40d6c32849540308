"""Storage of a checkpoint's files: a Protocol, local files, and any store of fsspec.

The ledger needs two properties of a store: if two clients create the same name, one fails; and a name never
has partial content. A store without them is refused when it is opened.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from fenceline.formatting import error_line
from fenceline.spark.paths import scheme_of, to_url
from spark_pipeline.sink.errors import Refused

#: Prefix of temporary files and probes; `file_names` omits them.
HIDDEN = "."


class Storage(Protocol):
    """One folder. Every method raises OSError, or the client's own error, if the store is unreachable."""

    @property
    def path(self) -> str:
        """The folder, as people write it."""

    def read(self, name: str) -> bytes | None:
        """Return a file's content, None when there is no such file."""

    def create(self, name: str, data: bytes) -> bool:
        """Write a new file, whole and durable, or return False because it is there already."""

    def file_names(self) -> list[str]:
        """Return the names of the files in it; none when there is no such folder."""

    def remove(self, name: str) -> None:
        """Remove a file; nothing happens when there is none."""

    def subfolder(self, folder: str) -> Storage:
        """Return a folder of it, which is made when the first file is created in it."""


class LocalStorage(Storage):
    """A folder of this machine, local or mounted."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    @property
    def path(self) -> str:
        return str(self._folder)

    def read(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def create(self, name: str, data: bytes) -> bool:
        self._folder.mkdir(parents=True, exist_ok=True)
        temporary = self._folder / f"{HIDDEN}{name}.{uuid.uuid4().hex}.tmp"
        try:
            _write_durably(temporary, data)
            # A link is never overwritten, and its target is complete.
            os.link(temporary, self._folder / name)
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(self._folder)
        return True

    def file_names(self) -> list[str]:
        try:
            return [name for name in os.listdir(self._folder) if not name.startswith(HIDDEN)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def remove(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)

    def subfolder(self, folder: str) -> LocalStorage:
        return LocalStorage(self._folder / folder)


class FsspecStorage(Storage):
    """A folder of any store of fsspec."""

    def __init__(self, filesystem: Any, folder: str, shown: str) -> None:
        self._filesystem, self._folder, self._shown = filesystem, folder.rstrip("/"), shown.rstrip("/")

    @property
    def path(self) -> str:
        return self._shown

    def read(self, name: str) -> bytes | None:
        try:
            content: bytes = self._filesystem.cat_file(f"{self._folder}/{name}")
        except FileNotFoundError:
            return None
        return content

    def create(self, name: str, data: bytes) -> bool:
        try:
            self._filesystem.pipe_file(f"{self._folder}/{name}", data, mode="create")
        except FileExistsError:
            return False
        return True

    def file_names(self) -> list[str]:
        # Another driver may write there: ignore this process's cached listing.
        self._filesystem.invalidate_cache(self._folder)
        try:
            paths = self._filesystem.ls(self._folder, detail=False)
        except FileNotFoundError:
            return []
        names = (str(path).rstrip("/").rsplit("/", 1)[-1] for path in paths)
        return [name for name in names if not name.startswith(HIDDEN)]

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._filesystem.rm_file(f"{self._folder}/{name}")

    def subfolder(self, folder: str) -> FsspecStorage:
        return FsspecStorage(self._filesystem, f"{self._folder}/{folder}", f"{self._shown}/{folder}")


def open_storage(url: str, options: Mapping[str, Any] | None = None) -> Storage:
    """Open a folder by a URL or path in Spark's spelling; `options` are fsspec's for that store.

    Raises `Refused` for a folder that cannot be opened here.
    """
    scheme = scheme_of(url)
    if not scheme:
        return LocalStorage(url)
    if scheme == "file":
        return LocalStorage(local_path(url))
    return FsspecStorage(*_fsspec(to_url(url), url, options or {}), url)


def local_path(url: str) -> str:
    """Return the path of a `file:` URL in any of Hadoop's forms."""
    return unquote(urlsplit(url).path)


def refuse_weak(folder: Storage) -> None:
    """Raise `Refused` unless the second of two creations of a file fails and reads the first content."""
    name = f"{HIDDEN}probe.{uuid.uuid4().hex}"
    try:
        first, second = folder.create(name, b"1"), folder.create(name, b"2")
        content = folder.read(name)
        folder.remove(name)
    except Exception as error:  # A store's client raises what it likes.
        raise Refused(
            f"cannot keep a ledger in {folder.path}: {_said(error)}. The sink needs a store where it may "
            "write and that creates files exclusively"
        ) from error
    if not first or second or content != b"1":
        raise Refused(
            f"cannot keep a ledger in {folder.path}: this store lets a file be created twice, so two drivers "
            "could each decide about a batch: keep the checkpoint on a store that creates exclusively, as "
            "`python -m spark_pipeline.sink.check_store URL` proves of one"
        )


def _fsspec(url: str, shown: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs

        filesystem, folder = url_to_fs(url, **options)
    except Exception as error:  # A store's client raises what it likes.
        raise Refused(
            f"cannot open {shown}: {_said(error)}. Check its name, and that the driver has its fsspec "
            "package (s3fs for S3, gcsfs for Google's, adlfs for Azure's); HDFS is opened by foreachBatch, "
            "through Spark's own Hadoop"
        ) from error
    return filesystem, folder


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error_line(error).rstrip('.')}"


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
