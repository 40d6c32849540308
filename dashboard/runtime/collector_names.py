"""Through which collectors a cluster is seen: its tails, or the coordinators' lists where none may read.

Partitions, groups and recoveries have collectors of their own, called like them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from dashboard.models import Collector

#: How the names of tails of `__transaction_state` begin: `transaction_state`, `transaction_state-1`, …
TAIL = "transaction_state"
#: The same of `__consumer_offsets`.
OFFSETS = "consumer_offsets"
RECONCILE = "reconcile"
JUDGE = "judge"
#: What follows actions, what turns findings into alerts, and what sends messages.
ACTIONS, ALERTS, DELIVERIES = "actions", "alerts", "deliveries"
TRANSACTIONS, PARTITIONS, GROUPS, RECOVERIES = "transactions", "partitions", "groups", "recoveries"
#: Queries are known from the collector of checkpoints; listeners only add to it.
QUERIES, CHECKPOINTS = "queries", "checkpoints"
#: Flink's jobs, from their checkpoints.
FLINK = "flink"
#: Flink's runs and Connect's connectors, from their REST APIs.
ENGINES = "engines"
#: What the audit job left of pipelines.
AUDITS = "audits"
#: The nouns of a page about all of them.
EVERYTHING = "everything"

Row = TypeVar("Row", bound=Collector)


def tail_name(shard: int, shards: int, of: str = TAIL) -> str:
    """Return the name of a shard's tail: with its number where there are several."""
    return of if shards == 1 else f"{of}-{shard}"


def collectors_of(rows: Iterable[Row], noun: str = TRANSACTIONS) -> list[Row]:
    """Return those of one cluster's collectors from which a noun is known.

    Everything is known from the transactions' and whichever of the others run.
    """
    found = list(rows)
    if noun == EVERYTHING:
        return collectors_of(found) + [
            row for row in found if row.name in (PARTITIONS, GROUPS, CHECKPOINTS, FLINK)
        ]
    if noun == QUERIES:
        return [row for row in found if row.name == CHECKPOINTS]
    if noun != TRANSACTIONS:
        return [row for row in found if row.name == noun]
    alone = [row for row in found if row.name == RECONCILE and row.detail.get("alone")]
    return alone or [row for row in found if row.name.startswith(TAIL)]
