"""A store in memory that fails where a test sets a fault: `faulty://…`, as fsspec opens it."""

from collections.abc import Callable
from typing import Any

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

#: Raises, or does something else, before a path is listed or read.
Fault = Callable[[], None]


class FaultyFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """Memory, with faults by path."""

    protocol = "faulty"
    store: dict[str, Any] = {}
    pseudo_dirs = [""]
    on_list: dict[str, Fault] = {}
    on_read: dict[str, Fault] = {}
    #: Every file that was read, in order.
    reads: list[str] = []

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        bare = path.removeprefix("faulty://").strip("/")
        return f"/{bare}" if bare else ""

    @classmethod
    def forget(cls) -> None:
        """Empty the store and take all faults away."""
        cls.store.clear()
        cls.pseudo_dirs[:] = [""]
        cls.on_list.clear()
        cls.on_read.clear()
        cls.reads.clear()

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        """List a folder, with its fault."""
        self.on_list.get(self._strip_protocol(path), _nothing)()
        return super().ls(path, detail=detail, **options)

    def cat_file(self, path: str, start: Any = None, end: Any = None, **options: Any) -> bytes:
        """Read a file, with its fault."""
        self.on_read.get(self._strip_protocol(path), _nothing)()
        self.reads.append(self._strip_protocol(path))
        found: bytes = super().cat_file(path, start, end, **options)
        return found


def raising(error: Exception) -> Fault:
    """Return a fault that raises an error."""

    def fault() -> None:
        raise error

    return fault


def _nothing() -> None:
    """No fault."""


fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)
