"""Stores of jobs' output: reads in their own threads, and the reasons and remedies of failures."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from dashboard.history.report_types import ReportTrouble

T = TypeVar("T")


def store_trouble(what: str, key: str, where: str, error: Exception) -> ReportTrouble:
    """Return the trouble of a store that failed; `key` is the configuration's, such as `[history] url`."""
    words = str(error).partition("\n")[0] or type(error).__name__
    remedy = f"Look whether {key} is right, and whether the dashboard's user may read there."
    if isinstance(error, ImportError):
        remedy = "Install fsspec's package for that store beside the dashboard, such as fenceline[s3]."
    elif isinstance(error, ValueError):
        remedy = f"Give {key} as file:///…, s3a://… or another URL that fsspec knows."
    return ReportTrouble(what, f"{where}: {words}.", remedy)


def newer_trouble(path: str, error: Exception) -> ReportTrouble:
    """Return the trouble of a file from a later Fenceline."""
    remedy = "Update this Fenceline, or run the job with the version that runs here."
    return ReportTrouble("Written by a newer Fenceline", f"{path}: {error}.", remedy)


def begin_reading(read: Callable[[], T]) -> Future[T]:
    """Read in a separate thread, so that no page waits long for a hanging store; `read` never raises."""
    answer = Future[T]()
    threading.Thread(target=lambda: answer.set_result(read()), name="read-store", daemon=True).start()
    return answer
