"""The time from `make up` to a page with live data: the first start and the second.

The virtual environment and the jars exist already; other machines add the time of their downloads.
"""

import tempfile
import time
from pathlib import Path

from tests.deployment import Stack
from tests.waiting import wait_for


def run() -> dict[str, object]:
    """Start twice on one folder: the first start makes everything, the second start reuses it."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            "first start to live data, s": _start(Path(folder)),
            "second start to live data, s (<= 20)": _start(Path(folder)),
        }


def _start(folder: Path) -> float:
    began = time.monotonic()
    with Stack(folder) as stack:
        before = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        wait_for(lambda: _is_live(stack, before), "a transaction of this start is shown", 120)
        return round(time.monotonic() - began, 1)


def _is_live(stack: Stack, before: str) -> bool:
    return any(row["updated_at"] > before for row in stack.api("transactions")["items"])
