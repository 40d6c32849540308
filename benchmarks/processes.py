"""A process's usage from /proc: resident memory, processor time, bytes written to the disk."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds of processor time and MB written since the process began, and resident MB now."""

    cpu_s: float
    rss_mb: float
    written_mb: float

    def since(self, before: Self, seconds: float) -> str:
        """Return the usage per second since an earlier one, as text."""
        cpu = (self.cpu_s - before.cpu_s) / seconds
        written = (self.written_mb - before.written_mb) / seconds
        return f"{cpu:.0%} of a core, {written:.0f} MB/s written, {self.rss_mb:.0f} MB resident"


def process_usage(pid: int) -> Usage:
    """Return the usage of a running process. Raises OSError if it has ended."""
    proc = Path("/proc") / str(pid)
    fields = (proc / "stat").read_text().rpartition(") ")[2].split()
    written = next(
        int(line.split()[1]) for line in (proc / "io").read_text().splitlines() if line.startswith("write_b")
    )
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS
    return Usage(cpu_s, int(fields[21]) * _PAGE / 1e6, written / 1e6)
