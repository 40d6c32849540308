"""Save and read the state files of a query's stateful operators, from the last listing."""

from collections.abc import Sequence

from dashboard.models import OperatorStateRecord, Query
from dashboard.runtime.sql import write_rows
from fenceline.spark.state_chains import OperatorState, StateChain, pack_chains, unpack_chains


def save_operator_state(row: Query, state: Sequence[OperatorState]) -> None:
    """Save the states of one round of listings; delete operators that no longer exist."""
    if not state:
        return
    OperatorStateRecord.objects.filter(query=row).exclude(
        operator_id__in=[operator.operator_id for operator in state]
    ).delete()
    rows = (
        {
            "query_id": row.pk,
            "operator_id": operator.operator_id,
            "name": operator.name,
            "chains": pack_chains(operator.chains),
            "broken": len(operator.broken),
            "read_ms": operator.read_ms,
            "unread": operator.unread,
        }
        for operator in state
    )
    write_rows(OperatorStateRecord, rows, ("query_id", "operator_id"))


def operator_states(row: Query) -> Sequence[OperatorState]:
    """Return the operators of a query by number, each with its broken chains first."""
    return [
        OperatorState(
            record.operator_id, record.name, _broken_first(record.chains), record.read_ms, record.unread
        )
        for record in OperatorStateRecord.objects.filter(query=row).order_by("operator_id")
    ]


def _broken_first(packed: str) -> tuple[StateChain, ...]:
    return tuple(sorted(unpack_chains(packed), key=lambda chain: (not chain.missing_count, chain[:2])))
