"""Names of the collectors of a cluster: its tails, or the coordinators' lists if no tail may read.

Partitions, groups and recoveries have their own collectors with the same names.
"""

from collections.abc import Iterable
from typing import TypeVar

from dashboard.models import Collector

#: The prefix of the names of `__transaction_state`'s tails: `transaction_state`, `transaction_state-1`, …
TAIL = "transaction_state"
#: The prefix of the names of `__consumer_offsets`' tails.
OFFSETS = "consumer_offsets"
RECONCILE = "reconcile"
JUDGE = "judge"
#: The tasks that follow actions, turn findings into alerts, and send messages.
ACTIONS, ALERTS, DELIVERIES = "actions", "alerts", "deliveries"
TRANSACTIONS, PARTITIONS, GROUPS, RECOVERIES = "transactions", "partitions", "groups", "recoveries"
#: The collector of checkpoints provides the queries; listeners only add to them.
QUERIES, CHECKPOINTS = "queries", "checkpoints"
#: Flink's jobs, from their checkpoints.
FLINK = "flink"
#: Flink's runs and Connect's connectors, from their REST APIs.
ENGINES = "engines"
#: The results of the audit job, by pipeline.
AUDITS = "audits"
#: The check of each cluster's capabilities.
CAPABILITIES = "capabilities"
#: The collector of coordinators of transactional ids.
COORDINATORS = "coordinators"
#: All nouns of the pages together.
EVERYTHING = "everything"

Row = TypeVar("Row", bound=Collector)


def tail_name(shard: int, shards: int, of: str = TAIL) -> str:
    """Return the name of a shard's tail, with its number if there are several shards."""
    return of if shards == 1 else f"{of}-{shard}"


def collectors_of(rows: Iterable[Row], noun: str = TRANSACTIONS) -> list[Row]:
    """Return the collectors of one cluster that provide a noun.

    `EVERYTHING` needs the transactions' collectors, and the other ones that run.
    """
    collectors = list(rows)
    if noun == EVERYTHING:
        return collectors_of(collectors) + [
            row for row in collectors if row.name in (PARTITIONS, GROUPS, CHECKPOINTS, FLINK)
        ]
    if noun == QUERIES:
        return [row for row in collectors if row.name == CHECKPOINTS]
    if noun != TRANSACTIONS:
        return [row for row in collectors if row.name == noun]
    alone = [row for row in collectors if row.name == RECONCILE and row.detail.get("alone")]
    return alone or [row for row in collectors if row.name.startswith(TAIL)]
