"""A query's checkpoint and ledger for its page. Pure except for two database queries."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard.models import Batch, Query
from dashboard.streaming import batches as streaming_batches
from fenceline.spark.state_chains import OperatorState, StateChain, broken_sentence

#: Maximum listed partitions of an operator: unfolded, and with the folded ones.
_SHOWN, _FOLDED = 8, 200


@dataclass(frozen=True, slots=True)
class OperatorView:
    """The state of one operator for its query's page."""

    state: OperatorState
    #: Its listener's report after the newest batch; None without one.
    rows: Mapping[str, Any] | None
    #: Damage that prevents a restart, one sentence each, the first few.
    broken: Sequence[str]
    shown: Sequence[StateChain]
    folded: Sequence[StateChain]
    #: Number of chains in neither list.
    more: int

    @property
    def size(self) -> int:
        """Return the bytes of all its files."""
        return sum(chain.size for chain in self.state.chains)


def operator_views(
    states: Sequence[OperatorState], reported: Sequence[Mapping[str, Any]]
) -> Sequence[OperatorView]:
    """Return operators with their reported rows; for two operators with one name the rows are unknown."""
    names = Counter(operator["name"] for operator in reported)
    rows = {operator["name"]: operator for operator in reported if names[operator["name"]] == 1}
    return [_operator_view(state, rows.get(state.name)) for state in states]


def _operator_view(state: OperatorState, rows: Mapping[str, Any] | None) -> OperatorView:
    return OperatorView(
        state,
        rows,
        [broken_sentence(chain) for chain in state.broken[:_SHOWN]],
        state.chains[:_SHOWN],
        state.chains[_SHOWN:_FOLDED],
        max(0, len(state.chains) - _FOLDED),
    )


def checkpoint_details(row: Query, newest: Batch | None) -> Mapping[str, Any]:
    """Return the contents of a checkpoint's logs; `newest` is the newest known batch."""
    detail: Mapping[str, Any] = row.detail
    ledger = detail.get("ledger") or {}
    return {
        "detail": detail,
        "ledger_damage": ledger.get("broken", ()),
        "initial": [
            (source, json.dumps(at, separators=(",", ":")))
            for source, at in detail.get("initial", {}).items()
        ],
        "newest_decision": streaming_batches.newest_decision(row) if row.ledger_id else None,
        "watermark_ms": _watermark_ms(newest),
    }


def _watermark_ms(newest: Batch | None) -> int | None:
    """Return the newest watermark, None without one, for which Spark writes 0."""
    return None if newest is None else newest.next_watermark_ms or newest.watermark_ms or None
