"""Checkpoints as Spark writes them, made by hand on any store, and a collector that polls them. One store
is in memory and fails where a test sets a fault: `faulty://…`, as fsspec opens it."""

import json
from collections.abc import Callable
from typing import Any

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

from collectors.checkpoints.collector import CheckpointsCollector, ObservedCheckpoints
from dashboard.config import CheckpointRoot
from fenceline.decode import ledger as ledgers
from fenceline.spark.records import Checkpoint, Decided, Decision

ID = "9e0e48fd-8628-4fc5-ba71-6cd718564ea4"
NOW_MS = 1_795_000_000_000
ROOT = "faulty://box/checkpoints"


def write_file(folder: str, path: str, text: str) -> None:
    with fsspec.open(f"{folder}/{path}", "wb", **_making(folder)) as file:
        file.write(text.encode())


def _making(folder: str) -> dict[str, Any]:
    return {} if "://" in folder and not folder.startswith("file:") else {"auto_mkdir": True}


def remove(folder: str, path: str) -> None:
    files, inside = fsspec.core.url_to_fs(f"{folder}/{path}")
    files.rm(inside, recursive=True)


def plan_batches(folder: str, *batches: int, from_ms: int = NOW_MS) -> None:
    for batch in batches:
        meta = {"batchWatermarkMs": 0, "batchTimestampMs": from_ms + batch, "conf": {"a": "b"}}
        write_file(folder, f"offsets/{batch}", f'v1\n{json.dumps(meta)}\n{{"t":{{"0":{batch * 10}}}}}')


def finish_batches(folder: str, *batches: int) -> None:
    for batch in batches:
        write_file(folder, f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')


def make_checkpoint(folder: str, last: int = 2, query_id: str = ID) -> str:
    """Make a checkpoint whose batches up to `last` are planned and done."""
    write_file(folder, "metadata", json.dumps({"id": query_id}))
    plan_batches(folder, *range(last + 1))
    finish_batches(folder, *range(last + 1))
    return folder


def collector(*roots: str, known: tuple[str, ...] = ()) -> CheckpointsCollector:
    return CheckpointsCollector([CheckpointRoot(root, "prod") for root in roots or (ROOT,)], known)


def poll(of: CheckpointsCollector) -> ObservedCheckpoints:
    return of.poll(NOW_MS, every_s=0.1)


def polled_checkpoints(looked: ObservedCheckpoints) -> dict[str, Checkpoint]:
    return {each.checkpoint.path: each.checkpoint for each in looked.observations}


def write_decision(folder: str, batch: int) -> None:
    decision = Decision(batch, 0, Decided.PREPARED, "driver", NOW_MS, "ledger", ID, "run", 1)
    name = f"{ledgers.FOLDER}/{ledgers.decision_name(ledgers.Round(batch, 0))}"
    write_file(folder, name, ledgers.encode_decision(decision).decode())


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
