"""Why what a job left cannot be read from a store, in words with what to do."""

from __future__ import annotations

from dashboard.history.report_types import ReportTrouble


def store_trouble(what: str, key: str, where: str, error: Exception) -> ReportTrouble:
    """Return the trouble of a store that failed; `key` is the configuration's, as `[history] url`."""
    words = str(error).partition("\n")[0] or type(error).__name__
    remedy = f"Look whether {key} is right, and whether the dashboard's user may read there."
    if isinstance(error, ImportError):
        remedy = "Install fsspec's package for that store beside the dashboard, such as fenceline[s3]."
    elif isinstance(error, ValueError):
        remedy = f"Give {key} as file:///…, s3a://… or another URL that fsspec knows."
    return ReportTrouble(what, f"{where}: {words}.", remedy)
