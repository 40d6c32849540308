"""Keys in the state of a query's operator, as the job `spark_pipeline/state_keys.py` has read them.

One file an operator and store, replaced by each run:

    <output>/cluster=<name>/state_keys/query=<query id>/operator=<n>.store=<store>.json
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Optional
from urllib.parse import quote

from fenceline.compat import SLOTS
from fenceline.decode.typed import read_versioned, untyped_field

FORMAT = 1


class NotStateKeys(Exception):
    """A file is not what the job writes; the text has the reason."""


class NewerStateKeys(NotStateKeys):
    """A file was written by a later Fenceline."""


class StateRow(NamedTuple):
    """One key of a partition's state; key and value are JSON as Spark writes structs (`to_json`)."""

    partition: int
    key: str
    #: None where values were not asked for.
    value: Optional[str] = None


@dataclass(frozen=True, **SLOTS)
class StateKeys:
    """What one run has read of an operator's state."""

    query_id: str
    operator_id: int
    operator: str
    store: str
    #: The state after this batch.
    batch_id: int
    read_ms: int
    #: SQL over key, value and partition_id; "" for all.
    condition: str
    rows: tuple[StateRow, ...]
    #: Whether more rows meet the condition.
    has_more: bool


def state_keys_folder(cluster: str, query_id: str) -> str:
    """Return the folder of a query's files below the job's output."""
    return f"cluster={cluster}/state_keys/query={query_id}"


def state_keys_file(operator_id: int, store: str) -> str:
    """Return the name of an operator's file; a store's name may hold anything."""
    return f"operator={operator_id}.store={quote(store, safe='')}.json"


def write_state_keys(keys: StateKeys) -> str:
    """Return the text of a file."""
    return json.dumps({"format": FORMAT, **asdict(keys)}, indent=1)


def read_state_keys(text: str) -> StateKeys:
    """Return what is in the text of a file. Raises NotStateKeys, and NewerStateKeys for a later layout."""
    return read_versioned(
        text, _keys, known=FORMAT, what="file of the state keys job", torn=NotStateKeys, newer=NewerStateKeys
    )


def _keys(document: Mapping[str, Any]) -> StateKeys:
    keys = StateKeys(**{**document, "rows": tuple(StateRow(*row) for row in document["rows"])})
    wrong = untyped_field(keys)
    if wrong is not None:
        raise TypeError(f"{wrong} has a value of another type")
    return keys
