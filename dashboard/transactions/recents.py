"""Read the last transitions of ids: of known ids from their rows, of removed ids from `Recent`."""

from collections.abc import Collection
from typing import NamedTuple

from django.db.models import BigIntegerField, Value

from dashboard.models import Recent, Transaction
from dashboard.runtime.sql import portions

_FORGOTTEN, _KNOWN, _NEVER = Value(0), Value(1), Value(None, output_field=BigIntegerField())


class RecentRing(NamedTuple):
    """The last transitions of an id, packed by `transition_ring.pack_ring`."""

    packed: bytes
    #: When its coordinator removed the id; None while it is known.
    expired_ms: int | None = None


def recent_rings(cluster_id: int, keys: Collection[bytes]) -> dict[bytes, RecentRing]:
    """Return the last transitions by key, without ids that have no transitions."""
    rings: dict[bytes, RecentRing] = {}
    for portion in portions(keys):
        forgotten = Recent.objects.filter(cluster_id=cluster_id, key__in=portion)
        known = Transaction.objects.filter(cluster_id=cluster_id, key__in=portion).exclude(recent=b"")
        rows = forgotten.values_list("key", "packed", "expired_ms", _FORGOTTEN).union(
            known.values_list("key", "recent", _NEVER, _KNOWN), all=True
        )
        for key, packed, expired_ms, is_known in rows:
            if is_known or bytes(key) not in rings:
                rings[bytes(key)] = RecentRing(bytes(packed), expired_ms)
    return rings


def recent_ring(cluster_id: int, key: bytes) -> RecentRing | None:
    """Return the last transitions of an id, None without any."""
    return recent_rings(cluster_id, [key]).get(key)
