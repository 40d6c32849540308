"""The state of a query's stateful operators: their files as the checkpoint's collector listed them last."""

from __future__ import annotations

from collections.abc import Sequence

from dashboard.models import OperatorStateRecord, Query
from fenceline.spark.state_chains import OperatorState, StateChain, pack_chains, unpack_chains


def save_operator_state(row: Query, state: Sequence[OperatorState]) -> None:
    """Save what one round of listings found; operators that are no more go."""
    if not state:
        return
    OperatorStateRecord.objects.filter(query=row).exclude(
        operator_id__in=[each.operator_id for each in state]
    ).delete()
    OperatorStateRecord.objects.bulk_create(
        [_record(row, each) for each in state],
        update_conflicts=True,
        unique_fields=["query", "operator_id"],
        update_fields=["name", "chains", "broken", "read_ms", "unread"],
    )


def _record(row: Query, state: OperatorState) -> OperatorStateRecord:
    return OperatorStateRecord(
        query=row,
        operator_id=state.operator_id,
        name=state.name,
        chains=pack_chains(state.chains),
        broken=len(state.broken),
        read_ms=state.read_ms,
        unread=state.unread,
    )


def operator_states(row: Query) -> Sequence[OperatorState]:
    """Return the operators of a query whose state was listed, by number; of each the broken chains first."""
    return [
        OperatorState(each.operator_id, each.name, _broken_first(each.chains), each.read_ms, each.unread)
        for each in OperatorStateRecord.objects.filter(query=row).order_by("operator_id")
    ]


def _broken_first(packed: str) -> tuple[StateChain, ...]:
    return tuple(sorted(unpack_chains(packed), key=lambda each: (not each.missing_count, each[:2])))
