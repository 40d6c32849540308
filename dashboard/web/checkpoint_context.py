"""What a query's checkpoint and ledger contain, as its page shows it. Pure but for two database queries."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from dashboard.history.state_keys import read_query_state
from dashboard.models import Batch, Query
from dashboard.streaming import batches as streaming_batches
from dashboard.streaming.operator_state import operator_states
from fenceline.spark.state_chains import OperatorState, StateChain, broken_sentence

#: Partitions of an operator that are listed at once, and with those that are folded.
_SHOWN, _FOLDED = 8, 200


@dataclass(frozen=True, slots=True)
class OperatorView:
    """The state of one operator as its query's page shows it."""

    state: OperatorState
    #: What its listener reported of it after the newest batch; None where that is not known.
    rows: Mapping[str, Any] | None
    #: What a restart cannot load, in a sentence each, the first few.
    broken: Sequence[str]
    shown: Sequence[StateChain]
    folded: Sequence[StateChain]
    #: How many chains are neither.
    more: int

    @property
    def size(self) -> int:
        """Return the bytes of all its files."""
        return sum(each.size for each in self.state.chains)


def operator_views(
    states: Sequence[OperatorState], reported: Sequence[Mapping[str, Any]]
) -> Sequence[OperatorView]:
    """Return operators with their rows: progress events have names alone, so two of one name have none."""
    names = Counter(each["name"] for each in reported)
    rows = {each["name"]: each for each in reported if names[each["name"]] == 1}
    return [_operator_view(each, rows.get(each.name)) for each in states]


def _operator_view(state: OperatorState, rows: Mapping[str, Any] | None) -> OperatorView:
    return OperatorView(
        state,
        rows,
        [broken_sentence(each) for each in state.broken[:_SHOWN]],
        state.chains[:_SHOWN],
        state.chains[_SHOWN:_FOLDED],
        max(0, len(state.chains) - _FOLDED),
    )


def state_keys_context(row: Query) -> Mapping[str, Any]:
    """Return what the job has read of a query's state, and the arguments with which it reads."""
    url, cluster = settings.FENCELINE.state_keys_url, row.cluster.name
    return {
        "row": row,
        "cluster": cluster,
        "state": read_query_state(url, cluster, row.query_id),
        "places": f"--checkpoint {shlex.quote(row.checkpoint)} --output {shlex.quote(url)}",
        "operators": operator_states(row),
    }


def checkpoint_details(row: Query, newest: Batch | None) -> Mapping[str, Any]:
    """Return what the logs of a checkpoint hold; `newest` is the newest batch that is known."""
    detail: Mapping[str, Any] = row.detail
    ledger = detail.get("ledger") or {}
    return {
        "detail": detail,
        "ledger_damage": ledger.get("broken", ()),
        "ledger_path": ledger.get("path", ""),
        "initial": [
            (source, json.dumps(at, separators=(",", ":")))
            for source, at in detail.get("initial", {}).items()
        ],
        "newest_decision": streaming_batches.newest_decision(row) if row.ledger_id else None,
        "watermark_ms": _watermark_ms(newest),
    }


def _watermark_ms(newest: Batch | None) -> int | None:
    """Return the newest watermark, None where there is none: Spark writes 0 for that."""
    return None if newest is None else newest.next_watermark_ms or newest.watermark_ms or None
