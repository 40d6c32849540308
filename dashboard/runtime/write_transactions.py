"""Database writes: one order of locks for every writer, and repeats after a deadlock.

Locks are taken in this order, so that two writers cannot wait for each other:

1. rows of `Collector`: the writer's own lease and, for rows that another lease guards, that lease's row;
2. the row of the cluster, which also orders revisions;
3. all other rows, in the order of their keys.

A table with a single writing lease is guarded by that lease. Its writer may write there before it locks the
cluster's row at its end, or without that lock (`lock_cluster=False`), so that a long write does not delay
other writers. Every other table is guarded by the cluster's row. A writer locks a row's guard before the row.

Audit rows are inserted last: they refer to no other row, so inserting one waits for nobody.

A machine that pauses or dies amid a write keeps its locks until PostgreSQL ends its session.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from types import MappingProxyType
from typing import ParamSpec, TypeVar

from django.db import OperationalError, connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.models import Model, QuerySet
from django.dispatch import receiver

from dashboard.models import Cluster, Collector
from dashboard.runtime import notify
from dashboard.runtime.database_errors import DEADLOCK, SERIALIZATION, RepeatedInVain, sqlstate
from dashboard.runtime.leases import Lease, renew

log = logging.getLogger(__name__)

#: Seconds before each repeat of a write. The database ends one writer of a deadlock and the other goes on, so
#: a pause only has to outlast a write.
PAUSES_S = (0.02, 0.05, 0.1, 0.2, 0.4)
_WHY = {
    DEADLOCK: "to resolve a deadlock",
    SERIALIZATION: "because it could not be ordered among others",
}
#: A setting of the database's role or server wins.
_LIMIT_IDLE = (
    "SELECT set_config(name, %s, false) FROM pg_settings "
    "WHERE name = 'idle_in_transaction_session_timeout' AND setting = '0'"
)
#: How long a session may be idle within a transaction, in milliseconds. Writes take no second.
IDLE_MS = 30_000
_NEXT_REV = "UPDATE dashboard_cluster SET rev = rev + 1 WHERE id = %s RETURNING rev"

P = ParamSpec("P")
R = TypeVar("R")
Row = TypeVar("Row", bound=Model)


@receiver(connection_created)
def limit_idle_transactions(connection: BaseDatabaseWrapper, **_: object) -> None:
    """Let PostgreSQL end a session that stops within a transaction, and so release its locks."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(_LIMIT_IDLE, [str(IDLE_MS)])


def next_rev(cluster_id: int) -> int:
    """Increment the revision of a cluster and return it; the row's lock keeps revisions in commit order."""
    with connection.cursor() as cursor:
        cursor.execute(_NEXT_REV, [cluster_id])
        rev: int = cursor.fetchone()[0]
    return rev


class WriteTransaction:
    """A database transaction that writes for one cluster."""

    def __init__(self, cluster: str, cluster_id: int, locked_rev: int = 0) -> None:
        self._cluster, self._cluster_id = cluster, cluster_id
        #: The result of `next_rev` in advance; valid only if the cluster's row was locked first.
        self.rev_if_news = locked_rev + 1
        self._rev: int | None = None

    def next_rev(self) -> int:
        """Return the revision of this transaction; the first call increments the cluster's revision."""
        if self._rev is None:
            self._rev = next_rev(self._cluster_id)
        return self._rev

    def notify_after_commit(self, kind: notify.Kind, ids: Sequence[str] = ()) -> None:
        """Notify open pages after the commit, with this transaction's revision."""
        transaction.on_commit(partial(notify.notify_change, self._cluster, kind, self.next_rev(), ids))

    def cancel(self) -> None:
        """Roll this transaction back at its end."""
        transaction.set_rollback(True)


class CollectorTransaction(WriteTransaction):
    """A write transaction of a lease's holder."""

    def __init__(self, lease: Lease, collector: Collector) -> None:
        super().__init__(lease.cluster, lease.cluster_id)
        #: The lease's row after its renewal.
        self.collector = collector


@contextmanager
def write_transaction(
    lease: Lease,
    columns: Mapping[str, object] = MappingProxyType({}),
    *,
    read: int = 0,
    lock_cluster: bool = True,
    guards: Collection[str] = (),
) -> Iterator[CollectorTransaction]:
    """Write as the holder of a lease: renew it (`leases.renew`), and set `columns` of its row.

    Raises `LeaseLost`. `guards` are the cluster's leases that guard the rows to write. Without `lock_cluster`
    the caller writes only rows that leases guard and takes a revision last, or takes it first: that locks the
    cluster's row too.
    """
    with transaction.atomic():
        if guards:
            # The rows are locked in the order of their names.
            named = Collector.objects.filter(cluster_id=lease.cluster_id, name__in={lease.name, *guards})
            list(named.select_for_update(no_key=True).order_by("name").values_list("pk", flat=True))
        collector = renew(lease, read=read, **columns)
        if lock_cluster:
            lock_cluster_row(lease.cluster_id)
        yield CollectorTransaction(lease, collector)


@contextmanager
def cluster_transaction(cluster: str, cluster_id: int) -> Iterator[WriteTransaction]:
    """Write without a lease, for a request; other writers of this cluster wait."""
    with transaction.atomic():
        yield WriteTransaction(cluster, cluster_id, lock_cluster_row(cluster_id))


@contextmanager
def guarded_transaction(guard: str) -> Iterator[None]:
    """Write rows that belong to no single cluster, for a request; all leases named `guard` guard them."""
    with transaction.atomic():
        rows = Collector.objects.select_for_update(no_key=True).filter(name=guard)
        list(rows.order_by("cluster_id").values_list("pk", flat=True))
        yield


@contextmanager
def unwaiting_transaction() -> Iterator[None]:
    """Write optional rows; raises OperationalError at once if another writer holds their lock."""
    is_sqlite = connection.vendor == "sqlite"
    with connection.cursor() as cursor:
        if is_sqlite:
            cursor.execute("PRAGMA busy_timeout")
            waits_ms = cursor.fetchone()[0]
            cursor.execute("PRAGMA busy_timeout = 0")
        try:
            with transaction.atomic():
                if not is_sqlite:
                    cursor.execute("SET LOCAL lock_timeout = '1ms'")
                yield
        finally:
            if is_sqlite:
                cursor.execute(f"PRAGMA busy_timeout = {waits_ms}")


def lock_cluster_row(cluster_id: int) -> int:
    """Lock a cluster's row until the transaction ends, and return its revision.

    The lock (FOR NO KEY UPDATE) does not block inserts of rows that refer to the cluster.
    """
    rows = Cluster.objects.select_for_update(no_key=True).filter(pk=cluster_id)
    rev: int = rows.values_list("rev", flat=True).get()
    return rev


def lock_row(rows: QuerySet[Row]) -> Row | None:
    """Lock the row of a query for any change, and return its current state.

    The lock is the strongest at once: raising it later, as for a new name, could deadlock.
    """
    return rows.select_for_update().first()


def retry_write(write: Callable[P, R]) -> Callable[P, R]:
    """Repeat a function that writes in one transaction if the database ended it in favour of another writer.

    It runs again from its start with the same arguments. So it must not change state outside its transaction,
    and must read its data inside. Within the caller's transaction the caller has to repeat that one instead.
    """

    @wraps(write)
    def repeated(*args: P.args, **kwargs: P.kwargs) -> R:
        for pause_s in (*PAUSES_S, None):
            try:
                return write(*args, **kwargs)
            except OperationalError as error:
                _refuse_repeat(error, write.__qualname__, pause_s)
            time.sleep(pause_s or 0.0)
        raise AssertionError("unreachable: the last try returns or raises")

    return repeated


def _refuse_repeat(error: OperationalError, name: str, pause_s: float | None) -> None:
    """Log that a write is repeated; raise its error if it may not be."""
    why = _WHY.get(sqlstate(error))
    if why is None or connection.in_atomic_block:
        raise error
    if pause_s is None:
        tries = len(PAUSES_S) + 1
        raise RepeatedInVain(
            f"The database ended this write {tries} times {why}: nothing was saved. Try again; if this goes "
            "on, look for other programs that write to Fenceline's tables."
        ) from error
    log.warning("%s: the database ended this write %s; it is repeated", name, why)
