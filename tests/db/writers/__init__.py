"""Every writer of the dashboard, each writing one thing more at a call, and what must be there afterwards.

For tests that let them run against each other: they write for one cluster, and where they can for the same
queries, ids and channels. Their rows are counted at the end, so that a row that was lost is found.
"""

from collections.abc import Callable
from typing import Any

from dashboard.models import (
    Action,
    Alert,
    Batch,
    CommitRecord,
    FindingRecord,
    Query,
    Transaction,
    TransitionRecord,
)
from tests.db.writers.cluster import (
    Commits,
    Coordinators,
    Engines,
    Groups,
    Partitions,
    Prune,
    Replicas,
    Starts,
    Trouble,
)
from tests.db.writers.operators import Alerts, Channels, Deliveries, Evaluations, Operators, SignIns, Silences
from tests.db.writers.transactions import (
    Actions,
    Audits,
    Checkpoints,
    Corrections,
    Progress,
    Recoveries,
    Tail,
)
from tests.db.writers.writer import Writer

#: Every writer; a cluster `prod` is there.
WRITERS: tuple[Callable[[], Writer], ...] = (
    lambda: Tail(0),
    lambda: Tail(1),
    Corrections,
    Checkpoints,
    Progress,
    Groups,
    lambda: Commits(0),
    lambda: Commits(1),
    Partitions,
    Replicas,
    Evaluations,
    Operators,
    Alerts,
    Deliveries,
    Channels,
    Silences,
    SignIns,
    Actions,
    Recoveries,
    Audits,
    Engines,
    Coordinators,
    Prune,
    Trouble,
    Starts,
)


def name_of(writer: Writer) -> str:
    """Return the name of a writer in a test."""
    shard = getattr(writer, "partition", getattr(writer, "shard", None))
    return type(writer).__name__ + ("" if shard is None else f"-{shard}")


def row_counts() -> dict[str, Any]:
    """Return how many rows there are of each table that must not lose any."""
    tables = (Transaction, TransitionRecord, Batch, Query, Alert, FindingRecord, Action, CommitRecord)
    return {table.__name__: table.objects.count() for table in tables}
