"""The reader of what the state keys job left of a query (`fenceline.spark.state_keys`), on demand.

Nothing here raises for what lies at the URL: whatever is wrong with it is a `ReportTrouble` in words. The
store is read in a thread of its own: no page waits long for one that hangs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import fsspec

from dashboard.history.report_types import ReportTrouble
from dashboard.history.stores import begin_reading, newer_trouble, store_trouble
from fenceline.paths import both_spellings, to_url
from fenceline.spark.state_keys import (
    NewerStateKeys,
    NotStateKeys,
    StateKeys,
    read_state_keys,
    state_keys_folder,
)

PATIENCE_S = 3.0
_UNREADABLE, _KEY = "The state keys cannot be read", "[state_keys] url"
#: Files of one query that are read: one an operator and store.
_MOST_FILES = 20


@dataclass(frozen=True, slots=True)
class StateKeysStatus:
    """What was read of a query's state, by operator and store, and what cannot be shown."""

    read: Sequence[StateKeys] = ()
    troubles: Sequence[ReportTrouble] = ()


def read_query_state(url: str, cluster: str, query_id: str) -> StateKeysStatus:
    """Return what the job has left of a query below `url`."""
    where = f"{both_spellings(url, to_url(url))}/{state_keys_folder(cluster, query_id)}"
    answer = begin_reading(lambda: _answer(url, cluster, query_id, where))
    try:
        return answer.result(PATIENCE_S)
    except TimeoutError:
        silent = TimeoutError(f"no answer for {PATIENCE_S:.0f} s")
        return StateKeysStatus(troubles=[store_trouble(_UNREADABLE, _KEY, where, silent)])


def _answer(url: str, cluster: str, query_id: str, where: str) -> StateKeysStatus:
    try:
        return _read(url, cluster, query_id, where)
    except FileNotFoundError:
        return StateKeysStatus()
    except Exception as error:  # Each store has its own; none may end as a page that fails.
        return StateKeysStatus(troubles=[store_trouble(_UNREADABLE, _KEY, where, error)])


def _read(url: str, cluster: str, query_id: str, where: str) -> StateKeysStatus:
    fs, root = fsspec.core.url_to_fs(to_url(url))
    fs.invalidate_cache()
    folder = f"{root.rstrip('/')}/{state_keys_folder(cluster, query_id)}"
    names = sorted(str(each).rpartition("/")[2] for each in fs.ls(folder, detail=False))
    files = [name for name in names if name.startswith("operator=") and name.endswith(".json")]
    found = [_read_file(fs.cat_file(f"{folder}/{name}"), f"{where}/{name}") for name in files[:_MOST_FILES]]
    return StateKeysStatus(
        [each for each in found if isinstance(each, StateKeys)],
        [each for each in found if isinstance(each, ReportTrouble)],
    )


def _read_file(data: bytes, where: str) -> StateKeys | ReportTrouble:
    try:
        return read_state_keys(data.decode(errors="replace"))
    except NewerStateKeys as error:
        return newer_trouble(where, error)
    except NotStateKeys as error:
        return ReportTrouble("The file cannot be read", f"{where}: {error}.", "Run the state keys job again.")
