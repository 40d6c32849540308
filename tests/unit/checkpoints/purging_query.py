"""Imitates a query of Spark that keeps few batches.

As a program: `python -m tests.unit.checkpoints.purging_query FOLDER KEEP`.

It writes each file beside its place and renames it, as Spark's CheckpointFileManager does: offsets/N, then
commits/N; then it deletes what is older than KEEP batches, until its standard input is closed.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ID = "9e0e48fd-8628-4fc5-ba71-6cd718564ea4"
_PLANNED = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1795000000000,"conf":{"a":"b"}}\n{"t":{"0":%d}}'
_COMMITTED = 'v1\n{"nextBatchWatermarkMs":0}'


class ImitatedQuery:
    """A checkpoint in `folder` whose logs grow batch by batch."""

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder, self._keep = folder, keep
        self._batch = 0
        for log in ("offsets", "commits"):
            (folder / log).mkdir(parents=True, exist_ok=True)
        (folder / "metadata").write_text(json.dumps({"id": ID}))

    def run_batch(self) -> None:
        """Plan a batch, finish it, and delete what is older than the batches that are kept."""
        self._write("offsets", _PLANNED % self._batch)
        self._write("commits", _COMMITTED)
        self._batch += 1
        for log in ("offsets", "commits"):
            oldest = self._batch - 1 - self._keep
            (self._folder / log / str(oldest)).unlink(missing_ok=True)

    def _write(self, log: str, text: str) -> None:
        written = self._folder / log / f".{self._batch}.tmp"
        written.write_text(text)
        written.rename(self._folder / log / str(self._batch))


@contextmanager
def purging(folder: Path, keep: int) -> Iterator[None]:
    """Run such a query in a process of its own; it has run its first batches when this begins."""
    command = [sys.executable, "-m", "tests.unit.checkpoints.purging_query", str(folder), str(keep)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        try:
            yield
            assert process.poll() is None
        finally:
            process.communicate()


def main(folder: str, keep: str) -> None:
    """Run batches until the standard input is closed."""
    query = ImitatedQuery(Path(folder), int(keep))
    closed = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), closed.set()), daemon=True).start()
    for _ in range(int(keep) + 3):
        query.run_batch()
    print("running", flush=True)
    while not closed.is_set():
        query.run_batch()


if __name__ == "__main__":
    main(*sys.argv[1:])
