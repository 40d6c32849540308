"""Clusters with transactional ids in every state, and with a day of history."""

from dashboard.models import Cluster
from fenceline.facts import TransactionState
from tests.web import factories


def busy_history(of: Cluster) -> None:
    """Make a cluster's collectors, and a day of history."""
    factories.tail_collectors(of)
    day_of_history(of)


def day_of_history(of: Cluster) -> None:
    """Fill a cluster that has collectors with a day of history, the last hour the densest."""
    factories.transaction_histories(of, 12, hours=24, trouble=0.15)
    factories.transaction_histories(of, 8, hours=0.9, dice=900, trouble=0.15)


def busy_transactions(of: Cluster, ids: int = 300) -> None:
    """Fill a cluster with ids in every state, two of which have findings."""
    factories.tail_collectors(of)
    done = {"partitions": {}}
    states = [TransactionState.COMPLETE_COMMIT] * 12 + [
        TransactionState.COMPLETE_ABORT,
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
    ]
    names = (
        "orders-gateway",
        "payments",
        "inventory-sync",
        "connect-cluster-jdbc-sink",
        "orders_enrich-3f9c11d2-p",
    )
    for n in range(ids):
        state = states[n % len(states)]
        extra = {} if state in (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT) else done
        factories.transaction(
            of,
            f"{names[n % len(names)]}-{n}",
            state,
            age_ms=300 + n * 37,
            producer_id=2000 + n,
            producer_epoch=n % 40,
            log_partition=n % 50,
            **extra,  # type: ignore[arg-type]
        )
    stuck = {"stock": [1, 4], "stock-audit": list(range(12)), "__consumer_offsets": [17]}
    factories.transaction(of, "inventory-sync-stuck-3", age_ms=842_000, timeout_ms=900_000, partitions=stuck)
    factories.transaction(
        of, "payments-ledger-7", age_ms=3_900_000, timeout_ms=60_000, partitions={"payments": [0]}
    )
    factories.transaction(of, "orders-aborting", TransactionState.PREPARE_ABORT, age_ms=4_000)
    factories.finding(of, "transaction:inventory-sync-stuck-3")
    factories.finding(
        of,
        "transaction:payments-ledger-7",
        "critical",
        evidence="read_committed consumers of payments-0 are blocked; its timeout of 1 min passed",
        next_step="Look at its coordinator: it should have aborted this transaction.",
        since_ms=factories.now_ms() - 3_900_000,
    )
