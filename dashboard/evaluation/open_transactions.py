"""Open transactions over time, of a cluster and of each application: number, age, and blocked offsets. The
evaluation knows the blocked offsets each second, and saves a point every few seconds after a change. All open
transactions are counted, however young.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from django.db.models import Count, Min

from dashboard.models import IS_OPEN, Tally, Transaction
from dashboard.runtime.collector_names import JUDGE
from dashboard.runtime.leases import Lease
from dashboard.runtime.write_transactions import retry_write, write_transaction
from dashboard.series.store import SeriesSample, extend_span, open_subjects, save_samples
from fenceline.findings import EVERYWHERE, Sense, Visibility
from fenceline.kafka.applications import application_of
from fenceline.series.points import APPLICATION
from fenceline.snapshot import Snapshot

#: The minimum interval between the points of one series.
APART_MS = 5_000
#: The visibility that each column depends on.
_SENSES = (Sense.TRANSACTIONS, Sense.TRANSACTIONS, Sense.PARTITIONS)
#: Maximum applications with their own series: those with the oldest open transactions.
MOST_APPLICATIONS = 200


class OpenTransactionSeries:
    """Writes the series of one cluster when a point is due."""

    def __init__(self) -> None:
        self._due_ms = 0

    def save_due(self, lease: Lease, snapshot: Snapshot, visible: Visibility, *, now_ms: int) -> None:
        """Save the figures of a snapshot, unless a point was saved moments ago. Raises `leases.LeaseLost`."""
        if self._due_ms - APART_MS <= now_ms < self._due_ms:
            return
        self._due_ms = now_ms + APART_MS
        _save(lease, snapshot, visible, now_ms)


@retry_write
def _save(lease: Lease, snapshot: Snapshot, visible: Visibility, now_ms: int) -> None:
    opened, blocked = _open_transactions(lease.cluster_id, snapshot, now_ms), _blocked(snapshot)
    hides = [EVERYWHERE in visible.hidden.get(sense, ()) for sense in _SENSES]
    number = sum(count for count, _ in opened.values())
    oldest_ms = max((age_ms for _, age_ms in opened.values()), default=0)
    samples = [SeriesSample(Tally.EVERY, _seen((number, oldest_ms, sum(blocked.values())), hides))]
    with write_transaction(lease):
        for name in _names(lease.cluster_id, opened, blocked):
            figures = (*opened.get(name, (0, 0)), blocked.get(name, 0))
            ended = not any(figures) and not any(hides)
            samples.append(SeriesSample(name, _seen(figures, hides), ended))
        save_samples(lease.cluster_id, APPLICATION, samples, at_ms=now_ms)
        extend_span(lease.cluster_id, JUDGE, at_ms=now_ms)


def _open_transactions(cluster_id: int, snapshot: Snapshot, now_ms: int) -> Mapping[str, tuple[int, int]]:
    """Return the number of open transactions and the age of the oldest in ms, by application.

    Ages are by our clock if the snapshot has the transaction; young ones may be by the coordinator's clock.
    """
    rows = Transaction.objects.filter(IS_OPEN, cluster_id=cluster_id).order_by()
    columns = rows.values_list("application").annotate(Count("id"), Min("started_ms"))
    oldest: dict[str, int] = {}
    for transaction in snapshot.transactions:
        if transaction.started_ms is not None:
            oldest[transaction.application] = min(
                transaction.started_ms, oldest.get(transaction.application, transaction.started_ms)
            )
    return {
        name: (number, max(0, now_ms - oldest.get(name, now_ms if started_ms is None else started_ms)))
        for name, number, started_ms in columns
    }


def _blocked(snapshot: Snapshot) -> Mapping[str, int]:
    """Return the offsets after blocked LSOs, by application of the transaction at the LSO.

    A transaction without a known id counts for "", no application.
    """
    offsets: Counter[str] = Counter()
    for partition in snapshot.partitions:
        name = partition.pins[0].transactional_id if partition.pins else ""
        application = application_of(name).application if name else Tally.EVERY
        offsets[application] += max(0, partition.high_watermark - partition.lso)
    return offsets


def _names(cluster_id: int, opened: Mapping[str, tuple[int, int]], blocked: Mapping[str, int]) -> list[str]:
    """Return the applications to write: those that block, have the oldest, or had open ones before."""
    oldest = sorted(opened, key=lambda name: -opened[name][1])[:MOST_APPLICATIONS]
    return sorted({*oldest, *blocked, *open_subjects(cluster_id, APPLICATION)} - {Tally.EVERY})


def _seen(figures: Sequence[int], hides: Sequence[bool]) -> tuple[int | None, ...]:
    return tuple(None if hidden else figure for figure, hidden in zip(figures, hides, strict=True))
