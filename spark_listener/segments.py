"""Segments of a spool: runs of events, each a zlib stream that is flushed after every event.

So a written event is with the operating system, and a killed process leaves at worst a torn last line.
Further events are small: they are alike, and one stream compresses them together.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

#: The fastest level: events are alike, so it already makes them ten times smaller.
_LEVEL = 1
_READ_AT_ONCE = 64 * 1024


class Segment:
    """Events from number `first` on, in a file, or in memory where `path` is None."""

    def __init__(self, first: int, path: Path | None, size: int = 0) -> None:
        self.first = first
        self.path = path
        #: Bytes of whole events, compressed.
        self.size = size
        self.data = bytearray()
        #: Its file was deleted.
        self.gone = False

    def read(self, offset: int) -> bytes:
        """Return some bytes after `offset`; b"" at the end, or if the file is unreadable now."""
        most = min(_READ_AT_ONCE, self.size - offset)
        if most <= 0:
            return b""
        if self.path is None:
            return bytes(self.data[offset : offset + most])
        try:
            with self.path.open("rb") as file:
                file.seek(offset)
                return file.read(most)
        except FileNotFoundError:
            self.gone = True
        except OSError:
            # Too many open files, or a store that is briefly unreachable: the caller repeats the read.
            pass
        return b""

    def remove(self) -> None:
        if self.path is not None:
            with suppress(OSError):
                self.path.unlink()


class Writer:
    """Writes the newest segment of a spool. Raises OSError if it cannot make the file."""

    def __init__(self, first: int, folder: Path | None) -> None:
        self.segment = Segment(first, folder and folder / f"{first:020}.z")
        self.since = time.monotonic()
        self._stream = zlib.compressobj(_LEVEL)
        self._fd = -1
        if self.segment.path is not None:
            self._fd = os.open(self.segment.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, line: bytes) -> None:
        """Add a line; raises OSError if the disk does not take it whole: then close the writer."""
        data = self._stream.compress(line) + self._stream.flush(zlib.Z_SYNC_FLUSH)
        if self._fd < 0:
            self.segment.data += data
        elif os.write(self._fd, data) != len(data):
            raise OSError("the disk took only a part")
        self.segment.size += len(data)

    def close(self) -> None:
        """End the segment after its last whole event; remove an empty one."""
        if self._fd < 0:
            return
        with suppress(OSError):
            os.ftruncate(self._fd, self.segment.size)
        with suppress(OSError):
            os.close(self._fd)
        self._fd = -1
        if not self.segment.size:
            self.segment.remove()


class SegmentReader:
    """Reads a segment from its start to its present end, and later the lines added since."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self._stream = zlib.decompressobj()
        self._offset = 0
        self._rest = b""
        self._lines: Iterator[bytes] = iter(())

    def is_done(self) -> bool:
        return self.segment.gone or self._offset >= self.segment.size

    def next_line(self) -> bytes | None:
        """Return the next whole line, None without one yet.

        Damaged data is lost, with the rest of its segment.
        """
        while (line := next(self._lines, None)) is None:
            data = self.segment.read(self._offset)
            if not data:
                return None
            self._offset += len(data)
            try:
                text = self._rest + self._stream.decompress(data)
            except zlib.error:
                self._offset = self.segment.size
                return None
            *lines, self._rest = text.split(b"\n")
            self._lines = iter(lines)
        return line
