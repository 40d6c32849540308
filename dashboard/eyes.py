"""Through which collectors a cluster is seen: its tails, or the coordinators' lists where none may read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from dashboard.models import Collector

#: How the names of tails of `__transaction_state` begin: `transaction_state`, `transaction_state-1`, …
TAIL = "transaction_state"
RECONCILE = "reconcile"
JUDGE = "judge"

Row = TypeVar("Row", bound=Collector)


def tail_name(shard: int, shards: int) -> str:
    """Return the name of a shard's tail: its number only says something where there are several."""
    return TAIL if shards == 1 else f"{TAIL}-{shard}"


def eyes(rows: Iterable[Row]) -> list[Row]:
    """Return those of one cluster's collectors from which its transactions are known."""
    found = list(rows)
    alone = [row for row in found if row.name == RECONCILE and row.detail.get("alone")]
    return alone or [row for row in found if row.name.startswith(TAIL)]
