"""Histories for pages to show: random lives of ids, saved as a tail does."""

from __future__ import annotations

import random
from collections.abc import Sequence

from dashboard.models import Action, Cluster, Collector, Position, Recovery, TransitionRecord
from dashboard.runtime import collector_store
from dashboard.runtime.leases import Lease
from dashboard.transactions import store
from fenceline.decode import text
from fenceline.facts import (
    Confidence,
    PositionMove,
    RawRecord,
    TailBatch,
    Tombstone,
    TransactionRecord,
    TransitionKind,
    TransitionReason,
)
from fenceline.kafka.coordinator import java_hash
from fenceline.kafka.encode import encode_key, encode_value
from tests.unit.walks import Walk
from tests.web import seed

HOUR_MS = 3_600_000
NAMES = ("orders-gateway", "payments", "inventory-sync", "connect-cluster-jdbc-sink", "clicks-sessions")
#: What happens besides commits, each as often as its number.
SELDOM = {
    "client_abort": 5,
    "reinit": 5,
    "timeout": 3,
    "takeover": 3,
    "admin_fence": 1,
    "self_recovery": 2,
    "empty_abort": 2,
}


class Life(Walk):
    """A walk that mostly commits, in between waits, and ends in the present."""

    def live(self, until_ms: int, *, pause_ms: int, trouble: float) -> None:
        """Go on until an instant; `trouble` is the share of what is no commit."""
        self.init()
        while self.now_ms < until_ms:
            bad = self.dice.random() < trouble
            names = [name for name in SELDOM if self.client == 2 or name != "empty_abort"]
            name = self.dice.choices(names, [SELDOM[each] for each in names])[0] if bad else "commit"
            (getattr(self, name) if self.owned else self.reinit)()
            self.now_ms += int(self.dice.expovariate(1 / pause_ms))


def save(of: Cluster, *lives_of_ids: Sequence[TransactionRecord | Tombstone]) -> None:
    """Save the records of some ids as their tail does, in one flush: `seed.seen` made the tail."""
    tail = Collector.objects.get(cluster=of, name="transaction_state")
    found = Position.objects.filter(cluster=of, topic=collector_store.TRANSACTION_STATE)
    positions = {row.partition: row for row in found}
    ends = {partition: row.next_offset for partition, row in positions.items()}
    records: dict[int, dict[bytes, list[RawRecord]]] = {}
    for life in lives_of_ids:
        raw = text.unescape_text(life[0].transactional_id)
        partition = abs(java_hash(raw)) % len(positions)
        into = records.setdefault(partition, {}).setdefault(encode_key(life[0].transactional_id), [])
        for record in life:
            into.append(_raw(record, ends[partition]))
            ends[partition] += 1
    moves = [
        PositionMove(partition, positions[partition].next_offset, ends[partition], ends[partition])
        for partition in sorted(records)
    ]
    look = TailBatch(records, tuple(moves), sum(map(len, lives_of_ids)))
    lease = Lease(of.name, of.pk, tail.name, tail.token)
    store.save_batch(lease, look, topic_id=positions[0].topic_id, rate=0.0, now_ms=seed.now_ms())


def _raw(record: TransactionRecord | Tombstone, offset: int) -> RawRecord:
    if isinstance(record, Tombstone):
        return RawRecord(None, offset, record.at_ms)
    return RawRecord(encode_value(record), offset)


def lives(of: Cluster, ids: int = 40, *, hours: float = 24, trouble: float = 0.06, dice: int = 7) -> None:
    """Let ids of several applications live through the last hours; the same dice give the same lives."""
    until_ms = seed.now_ms()
    found = []
    for n in range(ids):
        walk = Life(f"{NAMES[n % len(NAMES)]}-{n + dice % 100}", random.Random(dice + n))
        walk.old = False
        walk.now_ms = int(until_ms - hours * HOUR_MS)
        walk.live(until_ms, pause_ms=int(hours * HOUR_MS / 60), trouble=trouble)
        found.append([record for record in walk.written if _at(record) <= until_ms])
    save(of, *found)


def takeover(of: Cluster, raw: bytes) -> None:
    """Let another producer take over an id with an open transaction, a minute ago."""
    walk = Life(text.escape_bytes(raw), random.Random(3))
    walk.old, walk.client, walk.broker = False, 0, 0
    walk.now_ms = seed.now_ms() - 60_000
    walk.init()
    walk.takeover()
    save(of, walk.written)


def busy(of: Cluster) -> None:
    """Watch a cluster, and fill it with a day of history."""
    seed.seen(of)
    day(of)


def day(of: Cluster) -> None:
    """Fill a watched cluster with a day of history, the last hour the densest."""
    lives(of, 12, hours=24, trouble=0.15)
    lives(of, 8, hours=0.9, dice=900, trouble=0.15)


def _at(record: TransactionRecord | Tombstone) -> int:
    return record.at_ms or 0 if isinstance(record, Tombstone) else record.updated_ms


def caused(episode: Recovery, action: Action) -> TransitionRecord:
    """Let an action of ours be what ended the transaction of an episode."""
    columns = (
        "cluster_id", "key", "transactional_id", "application", "producer_id", "producer_epoch", "topic_id",
        "log_partition", "log_offset", "rev",
    )  # fmt: skip
    return TransitionRecord.objects.create(
        **{name: getattr(episode, name) for name in columns},
        kind=TransitionKind.ADMIN_FENCE.value,
        confidence=Confidence.CERTAIN.value,
        reason=TransitionReason.FENCED_BY_ACTION.value,
        at_ms=episode.opened_ms,
        timeout_ms=60_000,
        action=action,
    )
