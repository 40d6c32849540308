"""From the moment a rule's limit is crossed to the finding, as a client of the API sees it.

Scenes are played into a stack of their own: an abandoned transaction crosses its limit so many seconds after
its coordinator's own start of it; a hanging one at once, when its scene is over.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from sandbox.up import SANDBOX_OPEN_TOO_LONG_S
from tests.deployment import Stack

TIMES = 5
_WITHIN_S = 60.0


def run() -> dict[str, object]:
    """Measure with a stack of its own."""
    with tempfile.TemporaryDirectory() as folder, Stack(Path(folder), DEMO="0") as stack:
        hanging = [_hanging(stack, number) for number in range(TIMES)]
        abandoned = [_abandoned(stack) for _ in range(TIMES)]
    return {
        "limit crossed -> finding, abandoned, median s (<= 5)": round(median(abandoned), 2),
        "abandoned, longest s": round(max(abandoned), 2),
        "scene over -> finding, hanging, median s (<= 5)": round(median(hanging), 2),
        "hanging, longest s": round(max(hanging), 2),
        "times each": TIMES,
    }


def _hanging(stack: Stack, number: int) -> float:
    """Play it; the first time a finding opens, later one more transaction of it hangs."""
    stack.manage("scene", "hanging")
    began = time.time()
    for findings in _findings(stack, "hanging"):
        pinned = stack.api("partitions?q=demo-hanging")["items"][0]["transactions"]
        if findings and sum(each["verdict"] == "hanging" for each in pinned) > number:
            return time.time() - began
    raise AssertionError("no finding")


def _abandoned(stack: Stack) -> float:
    stack.manage("scene", "abandoned")
    rows: list[dict[str, Any]] = []
    while not rows:
        rows = stack.api("transactions?state=open&q=demo-abandoned")["items"]
    crossed = datetime.fromisoformat(rows[0]["started_at"]).timestamp() + SANDBOX_OPEN_TOO_LONG_S
    for findings in _findings(stack, "open_too_long"):
        if any(datetime.fromisoformat(each["since"]).timestamp() > crossed - 12 for each in findings):
            return time.time() - crossed
    raise AssertionError("no finding")


def _findings(stack: Stack, rule: str) -> Iterator[list[dict[str, Any]]]:
    end = time.monotonic() + _WITHIN_S
    while time.monotonic() < end:
        yield [each for each in stack.api("findings")["items"] if each["rule"] == rule]
        time.sleep(0.05)
