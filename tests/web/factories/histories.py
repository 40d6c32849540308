"""Random histories of transactional ids, saved as a tail saves them."""

import random
from collections.abc import Sequence

from dashboard.models import Action, Cluster, Collector, Position, Recovery, TransitionRecord
from dashboard.runtime import collector_store
from dashboard.runtime.leases import Lease
from dashboard.transactions import store
from fenceline.decode import text
from fenceline.decode.tail_batch import TailBatch
from fenceline.facts import (
    Confidence,
    PositionMove,
    RawRecord,
    Tombstone,
    TransactionRecord,
    TransitionKind,
    TransitionReason,
)
from fenceline.kafka.coordinator import java_hash
from tests.factories import record_table
from tests.transaction_state_records import encode_key, encode_value
from tests.unit.random_histories import RandomHistory
from tests.web.factories.clusters import now_ms

HOUR_MS = 3_600_000
APPLICATIONS = (
    "orders-gateway",
    "payments",
    "inventory-sync",
    "connect-cluster-jdbc-sink",
    "clicks-sessions",
)
#: What happens besides commits, each as often as its number.
EVENT_WEIGHTS = {
    "client_abort": 5,
    "reinit": 5,
    "timeout": 3,
    "takeover": 3,
    "admin_fence": 1,
    "self_recovery": 2,
    "empty_abort": 2,
}


class TransactionHistory(RandomHistory):
    """A walk that mostly commits, pauses in between, and ends now."""

    def play(self, until_ms: int, *, pause_ms: int, trouble: float) -> None:
        """Go on until an instant; `trouble` is the share of what is no commit."""
        self.init()
        while self.now_ms < until_ms:
            bad = self.dice.random() < trouble
            names = [name for name in EVENT_WEIGHTS if self.client == 2 or name != "empty_abort"]
            name = self.dice.choices(names, [EVENT_WEIGHTS[each] for each in names])[0] if bad else "commit"
            (getattr(self, name) if self.owned else self.reinit)()
            self.now_ms += int(self.dice.expovariate(1 / pause_ms))


def save_histories(of: Cluster, *histories: Sequence[TransactionRecord | Tombstone]) -> None:
    """Save the records of some ids as their tail does, in one flush, after `tail_collectors`."""
    tail = Collector.objects.get(cluster=of, name="transaction_state")
    found = Position.objects.filter(cluster=of, topic=collector_store.TRANSACTION_STATE)
    positions = {row.partition: row for row in found}
    ends = {partition: row.next_offset for partition, row in positions.items()}
    records: dict[int, dict[bytes, list[RawRecord]]] = {}
    for records_of_id in histories:
        raw = text.unescape_text(records_of_id[0].transactional_id)
        partition = abs(java_hash(raw)) % len(positions)
        into = records.setdefault(partition, {}).setdefault(encode_key(records_of_id[0].transactional_id), [])
        for record in records_of_id:
            into.append(_raw(record, ends[partition]))
            ends[partition] += 1
    moves = [
        PositionMove(partition, positions[partition].next_offset, ends[partition], ends[partition])
        for partition in sorted(records)
    ]
    batch = TailBatch(record_table(records), tuple(moves))
    lease = Lease(of.name, of.pk, tail.name, tail.token)
    store.save_batch(lease, batch, topic_id=positions[0].topic_id, rate=0.0, now_ms=now_ms())


def _raw(record: TransactionRecord | Tombstone, offset: int) -> RawRecord:
    if isinstance(record, Tombstone):
        return RawRecord(None, offset, record.at_ms)
    return RawRecord(encode_value(record), offset)


def transaction_histories(
    of: Cluster, ids: int = 40, *, hours: float = 24, trouble: float = 0.06, dice: int = 7
) -> None:
    """Make histories of ids of several applications over the last hours; `dice` is the seed."""
    until_ms = now_ms()
    found = []
    for n in range(ids):
        walk = TransactionHistory(
            f"{APPLICATIONS[n % len(APPLICATIONS)]}-{n + dice % 100}", random.Random(dice + n)
        )
        walk.old = False
        walk.now_ms = int(until_ms - hours * HOUR_MS)
        walk.play(until_ms, pause_ms=int(hours * HOUR_MS / 60), trouble=trouble)
        found.append([record for record in walk.written if _at(record) <= until_ms])
    save_histories(of, *found)


def takeover_history(of: Cluster, raw: bytes) -> None:
    """Make the history of an id whose open transaction was taken over by another producer a minute ago."""
    walk = TransactionHistory(text.escape_bytes(raw), random.Random(3))
    walk.old, walk.client, walk.broker = False, 0, 0
    walk.now_ms = now_ms() - 60_000
    walk.init()
    walk.takeover()
    save_histories(of, walk.written)


def _at(record: TransactionRecord | Tombstone) -> int:
    return record.at_ms or 0 if isinstance(record, Tombstone) else record.updated_ms


def action_transition(recovery: Recovery, action: Action) -> TransitionRecord:
    """Make the transition with which one of our actions ended the transaction of a recovery."""
    columns = (
        "cluster_id", "key", "transactional_id", "application", "producer_id", "producer_epoch", "topic_id",
        "log_partition", "log_offset", "rev",
    )  # fmt: skip
    return TransitionRecord.objects.create(
        **{name: getattr(recovery, name) for name in columns},
        kind=TransitionKind.ADMIN_FENCE.value,
        confidence=Confidence.CERTAIN.value,
        reason=TransitionReason.FENCED_BY_ACTION.value,
        at_ms=recovery.opened_ms,
        timeout_ms=60_000,
        action=action,
    )
