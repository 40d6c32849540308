"""Rows and values for tests of stores and evaluation: `from tests.db import factories`."""

from __future__ import annotations

from tests.db.factories.clusters import (
    ALL_COLLECTORS,
    HOUR_MS,
    MINUTE_MS,
    blocked_group,
    collectors,
    complete_next_polls,
    counters,
    gap,
    lso_blocker,
    partition,
    position,
    prod,
    recent_end,
    recent_transitions,
    transaction,
    transition,
)
from tests.db.factories.queries import (
    LEDGER_ID,
    PATH,
    QUERY_ID,
    batch,
    checkpoint,
    checkpoint_look,
    decision,
    decision_end,
    decision_row,
    ledger_state,
    offsets_entry,
    query,
    sink_transaction,
)
