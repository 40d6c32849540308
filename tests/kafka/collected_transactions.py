"""`__transaction_state` as the collector stores it: the tail, the store and the database behind them."""

from dashboard.models import Transaction
from dashboard.runtime import collector_store
from dashboard.tasks import tails
from dashboard.transactions import queries as transaction_queries
from fenceline.facts import TransactionRecord, TransactionState
from tests.kafka.driven import read_to_end, take_lease


def collected_transactions(bootstrap: str) -> dict[str, TransactionRecord]:
    """Return the rows of every id after the tail has read everything up to now, by the id's text form.

    Needs an empty database. A row does not distinguish no partitions from null.
    """
    # The tail of a cluster stays warm in its process, so each broker needs a name of its own.
    cluster = bootstrap.replace(":", "-")
    collector_store.sync_clusters([cluster])
    read_to_end(take_lease(cluster, tails.tail_name(0)), tails.tailed, {"bootstrap.servers": bootstrap})
    return {row.transactional_id: _record(row) for row in Transaction.objects.all()}


def _record(row: Transaction) -> TransactionRecord:
    return TransactionRecord(
        row.transactional_id,
        TransactionState(row.state),
        row.producer_id,
        row.producer_epoch,
        row.timeout_ms,
        transaction_queries.partitions_of(row),
        row.updated_ms,
        row.started_ms,
        row.client_version,
    )
