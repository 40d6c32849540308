"""The tables of SQLite in memory, which one worker of a run migrates and the others copy."""

import fcntl
import sqlite3
from contextlib import closing
from pathlib import Path


class MigratedTables:
    """The database in memory that Django's connections of this process share, and its copy in a file."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = folder / "migrated.sqlite3"
        self._lock = (folder / "migrated.lock").open("w")
        # It lasts as long as one connection to it.
        self._memory = sqlite3.connect(name, uri=True)

    def restore(self) -> None:
        """Copy the tables of a worker that has made them, or keep others waiting until `keep`."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        if self._file.exists():
            with closing(sqlite3.connect(self._file)) as copy:
                copy.backup(self._memory)
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def keep(self) -> None:
        """Copy the tables for other workers, unless they are from there."""
        if not self._file.exists():
            with closing(sqlite3.connect(self._file)) as copy:
                self._memory.backup(copy)
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the connection and the lock."""
        self._memory.close()
        self._lock.close()
