"""A bounded, durable queue of events: a folder of compressed segments, and a cursor of delivered events.

Every event gets the next number. A full spool drops its oldest segment; if the disk takes no data, a smaller
spool stays in memory. Dropped or damaged events are a gap in the numbers, so that every reader counts lost
events exactly. Files are not synced to the disk: events outlive the process, not always the machine.

A driver locks its folder while it lives, so that the next driver finds leftover folders.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from spark_listener.segments import Segment, SegmentReader, Writer

MOST_BYTES = 64 * 1024 * 1024
#: Compressed bytes kept in memory while the disk takes no data.
MOST_MEMORY = 8 * 1024 * 1024
_SEGMENT_BYTES = 1024 * 1024
#: Seconds before a failed disk is tried again.
_DISK_AGAIN_S = 10.0
#: After this time an unfinished folder counts as abandoned.
_ABANDONED_S = 3_600
_FOLDER = re.compile(r"\d{15}-\d+-[0-9a-f]{8}")
_SEGMENT = re.compile(r"(\d{20})\.z")
_HEAD = re.compile(rb'\{"seq":(\d{1,18}),"at_ms":(\d{1,18}),')
_CURSOR, _ABOUT = "cursor", "about.json"
_NEW = ".new-"

log = logging.getLogger("spark_listener")


class SpooledEvent(NamedTuple):
    """One event: its number, its instant (ms, the driver's clock), and its JSON."""

    seq: int
    at_ms: int
    text: bytes
    #: The number of lost events before it.
    lost: int


class Spool:
    """The events of one driver. `append` is for any thread, all other methods for the delivering thread."""

    def __init__(self, root: Path, about: Mapping[str, Any], most_bytes: int = MOST_BYTES) -> None:
        """Make a spool of limited compressed size in its own folder below `root`.

        `about` is for a process that adopts it. If no folder can be made, the spool stays in memory.
        """
        self.about = dict(about)
        self._root = root
        self._folder: Path | None = None
        self._files: list[int] = []
        self._guard = threading.Lock()
        self._segments: list[Segment] = []
        self._writer: Writer | None = None
        self._reader: SegmentReader | None = None
        self._most_bytes = most_bytes
        self._next = 1
        self._read = self._acked = 0
        self._lost_read = self._lost_acked = 0
        self._disk_again = 0.0
        self._refused = self._full = False
        #: The newest segment stays: it is open for writing.
        self._least = 1
        with self._guard:
            self._has_folder()

    @property
    def size(self) -> int:
        """Its compressed size in bytes."""
        with self._guard:
            return sum(segment.size for segment in self._segments)

    @property
    def waiting(self) -> int:
        with self._guard:
            return self._next - 1 - self._acked - (self._dropped() - self._lost_acked)

    @property
    def dropped(self) -> int:
        with self._guard:
            return self._dropped()

    @property
    def place(self) -> str:
        return "in memory" if self._folder is None else f"in {self._folder}"

    def append(self, event: bytes, at_ms: int) -> None:
        """Store an event: a JSON object on one line without its opening brace. Disk errors are not raised."""
        with self._guard:
            self._write(b'{"seq":%d,"at_ms":%d,%s\n' % (self._next, at_ms, event))
            self._next += 1
            self._trim(self._most_bytes)

    def read(self, most: int, most_bytes: int) -> list[SpooledEvent]:
        """Return the next events, oldest first, up to a number and a size; the first may be larger."""
        events: list[SpooledEvent] = []
        size = 0
        while len(events) < most and size < most_bytes and (event := self._event()) is not None:
            events.append(event)
            size += len(event.text)
        return events

    def ack(self, event: SpooledEvent) -> None:
        """Mark an event and all before it as delivered."""
        with self._guard:
            self._acked, self._lost_acked = event.seq, event.lost
            while len(self._segments) > 1 and self._segments[1].first <= event.seq + 1:
                self._segments.pop(0).remove()
            if self._files:
                with suppress(OSError):
                    os.pwrite(self._files[1], b"%020d %020d\n" % (self._acked, self._lost_acked), 0)

    def trim(self, most_bytes: int) -> None:
        """Drop the oldest segments until the spool has at most this size."""
        with self._guard:
            self._trim(most_bytes)

    def close(self) -> None:
        """Delete its folder if all events are delivered, else leave it to the next driver."""
        empty = self.waiting == 0
        with self._guard:
            if self._writer is not None:
                self._writer.close()
            if empty and self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
            self._let_go()

    def _event(self) -> SpooledEvent | None:
        while (line := self._line()) is not None:
            head = _HEAD.match(line)
            if head is None or int(head[1]) <= self._read or not _is_json(line):
                continue
            with self._guard:
                seq = int(head[1])
                self._lost_read += seq - self._read - 1
                self._read = seq
                return SpooledEvent(seq, int(head[2]), line, self._lost_read)
        return None

    def _line(self) -> bytes | None:
        """Return the next line of the segments; a segment before the newest is complete."""
        while True:
            line = self._reader.next_line() if self._reader else None
            if line is not None:
                return line
            with self._guard:
                segment = self._following()
            if segment is None:
                return None
            self._reader = SegmentReader(segment)

    def _following(self) -> Segment | None:
        if self._reader is None or self._reader.segment not in self._segments:
            return self._segments[0] if self._segments else None
        at = self._segments.index(self._reader.segment) + 1
        return self._segments[at] if at < len(self._segments) and self._reader.is_done() else None

    def _dropped(self) -> int:
        following = self._segments[0].first if self._segments else self._next
        return self._lost_read + max(0, following - self._read - 1)

    def _write(self, line: bytes) -> None:
        writer = self._writer
        if writer is None or self._is_over(writer):
            writer = self._roll()
        try:
            writer.write(line)
        except OSError as error:
            self._refuse(error)
            self._roll().write(line)

    def _is_over(self, writer: Writer) -> bool:
        in_memory = writer.segment.path is None
        full = writer.segment.size >= min(_SEGMENT_BYTES, self._most_bytes // 8)
        return full or writer.segment.gone or (in_memory and time.monotonic() >= self._disk_again)

    def _roll(self) -> Writer:
        """Begin a segment: a file, or in memory while the disk fails."""
        if self._writer is not None:
            self._writer.close()
            if not self._writer.segment.size:
                self._segments.remove(self._writer.segment)
        self._writer = self._opened()
        self._segments.append(self._writer.segment)
        return self._writer

    def _opened(self) -> Writer:
        if time.monotonic() >= self._disk_again and self._has_folder():
            try:
                writer = Writer(self._next, self._folder)
            except FileNotFoundError as error:
                self._let_go()
                self._refuse(error)
            except OSError as error:
                self._refuse(error)
            else:
                self._refused = False
                return writer
        return Writer(self._next, None)

    def _has_folder(self) -> bool:
        if self._folder is None:
            try:
                self._make_folder()
            except OSError as error:
                self._refuse(error)
        return self._folder is not None

    def _make_folder(self) -> None:
        """Make and lock a folder under a temporary name: other drivers adopt unlocked folders."""
        name = f"{time.time_ns() // 1_000_000:015}-{os.getpid()}-{secrets.token_hex(4)}"
        new = self._root / f"{_NEW}{name}"
        new.mkdir(0o700, parents=True)
        (new / _ABOUT).write_text(json.dumps(self.about))
        files = _locked(new)
        if files is None:
            raise OSError(f"{new} cannot be locked")
        new.rename(self._root / name)
        self._folder, self._files = self._root / name, files

    def _let_go(self) -> None:
        """Forget a folder, which may be deleted."""
        for file in self._files:
            os.close(file)
        self._folder, self._files = None, []

    def _refuse(self, error: OSError) -> None:
        self._disk_again = time.monotonic() + _DISK_AGAIN_S
        if not self._refused:
            log.warning(
                "the spool in %s cannot be written (%s): up to %d MB of events are kept in memory, and are "
                "lost with this process. Free or repair the disk, or give another spool= folder.",
                self._root, error, MOST_MEMORY // 2**20,
            )  # fmt: skip
        self._refused = True

    def _trim(self, most_bytes: int) -> None:
        while (
            len(self._segments) > self._least and sum(segment.size for segment in self._segments) > most_bytes
        ):
            self._drop(self._segments[0])
        in_memory = [segment for segment in self._segments if segment.path is None]
        if sum(segment.size for segment in in_memory) > MOST_MEMORY:
            self._drop(in_memory[0])

    def _drop(self, segment: Segment) -> None:
        self._segments.remove(segment)
        segment.remove()
        if not self._full and self._read < self._next - 1:
            log.warning("the spool %s is full: its oldest events are dropped, and counted", self.place)
            self._full = True


class Leftover(Spool):
    """The spool of an ended driver; it gets no more events."""

    def __init__(self, folder: Path, files: list[int]) -> None:
        super().__init__(folder.parent, _about(folder))
        self._least = 0
        self._folder, self._files = folder, files
        self._acked, self._lost_acked = _cursor(files[1])
        self._read, self._lost_read = self._acked, self._lost_acked
        for path in sorted(folder.iterdir()):
            if name := _SEGMENT.fullmatch(path.name):
                self._segments.append(Segment(int(name[1]), path, path.stat().st_size))
        self._next = self._last() + 1

    def _has_folder(self) -> bool:
        return True

    def _last(self) -> int:
        """Return the number of the last event in it."""
        for segment in reversed(self._segments):
            reader, last = SegmentReader(segment), 0
            while (line := reader.next_line()) is not None:
                head = _HEAD.match(line)
                last = int(head[1]) if head else last
            if last:
                return max(last, self._acked)
        return self._acked


def adopt_leftovers(root: Path) -> list[Leftover]:
    """Adopt the spools below `root` of ended drivers; return them, the oldest first."""
    leftovers: list[Leftover] = []
    with suppress(OSError):
        for folder in sorted(root.iterdir()):
            if folder.name.startswith(_NEW):
                _sweep(folder)
            elif _FOLDER.fullmatch(folder.name):
                with suppress(OSError):
                    files = _locked(folder)
                    leftovers += [Leftover(folder, files)] if files else []
    return leftovers


def _locked(folder: Path) -> list[int] | None:
    """Return open files of a folder and its cursor; None if another process has locked or deleted it.

    The lock is on the folder itself: systemd's cleaner of old temporary files skips locked folders.
    """
    files = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
    with suppress(OSError):
        fcntl.flock(files[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(files[0]).st_ino == folder.stat().st_ino:
            files.append(os.open(folder / _CURSOR, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            return files
    os.close(files[0])
    return None


def _sweep(folder: Path) -> None:
    with suppress(OSError):
        if time.time() - folder.stat().st_mtime > _ABANDONED_S:
            shutil.rmtree(folder, ignore_errors=True)


def _about(folder: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        about = json.loads((folder / _ABOUT).read_text())
        if isinstance(about, dict):
            return about
    return {}


def _cursor(file: int) -> tuple[int, int]:
    with suppress(OSError, ValueError):
        acked, lost = os.pread(file, 64, 0).split()
        return int(acked), int(lost)
    return 0, 0


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
