"""Segments of a spool: runs of events, each one zlib stream that is flushed behind every event.

So an event is with the operating system when it is written, one that is killed leaves at worst a torn last
line, and the next events cost little: they are alike, and one stream compresses them together.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

#: Fast, and already ten times smaller: events repeat each other.
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
        #: Somebody has deleted its file.
        self.gone = False

    def read(self, offset: int) -> bytes:
        """Return some of what lies behind `offset`; b"" at the end, or where it cannot be read now."""
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
            # Too many open files, or a store that is away for a moment: it is asked again.
            pass
        return b""

    def remove(self) -> None:
        """Delete it."""
        if self.path is not None:
            with suppress(OSError):
                self.path.unlink()


class Writer:
    """Writes the newest segment of a spool. Raises OSError where its file cannot be made."""

    def __init__(self, first: int, folder: Path | None) -> None:
        self.segment = Segment(first, folder and folder / f"{first:020}.z")
        self.since = time.monotonic()
        self._stream = zlib.compressobj(_LEVEL)
        self._fd = -1
        if self.segment.path is not None:
            self._fd = os.open(self.segment.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, line: bytes) -> None:
        """Add a line; raises OSError when the disk does not take it whole: close it then."""
        data = self._stream.compress(line) + self._stream.flush(zlib.Z_SYNC_FLUSH)
        if self._fd < 0:
            self.segment.data += data
        elif os.write(self._fd, data) != len(data):
            raise OSError("the disk took only a part")
        self.segment.size += len(data)

    def close(self) -> None:
        """End the segment behind its last whole event; remove one without any."""
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
    """Reads a segment from its start, as far as it goes; asked again, what was added since."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self._stream = zlib.decompressobj()
        self._offset = 0
        self._rest = b""
        self._lines: Iterator[bytes] = iter(())

    def is_done(self) -> bool:
        """Whether all that its segment has by now was read."""
        return self.segment.gone or self._offset >= self.segment.size

    def next_line(self) -> bytes | None:
        """Return the next whole line, None where there is none yet.

        What cannot be decompressed is lost, with all behind it in its segment.
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
