"""Saves the recoveries collector's state: present holders and waiters, new recoveries, their progress.
Readers are already released when we read the end of their blocker. So the waiting groups and their places are
recorded while they wait, in the collector's own row, and copied into the recovery when one opens.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db.models import F, Q, QuerySet

from dashboard.models import (
    IS_OPEN,
    Cluster,
    Collector,
    GroupOffset,
    PartitionRecord,
    PinRecord,
    Recovery,
    Transaction,
    TransitionRecord,
)
from dashboard.recoveries import evidence as recovery_evidence
from dashboard.runtime import collector_store
from dashboard.runtime.leases import Lease
from dashboard.runtime.sql import prepared, read_rows, update_rows
from dashboard.runtime.write_transactions import retry_write, write_transaction
from fenceline.decode.typed import record_of
from fenceline.facts import ABORTS, TransitionKind
from fenceline.kafka.groups import Waiting
from fenceline.losses.recoveries import (
    Episode,
    LostRecords,
    RecoveryOutcome,
    Wait,
    advance_episode,
    opens_episode,
)

NAME = "recoveries"
#: Maximum transitions in one tick, and maximum episodes to follow at a time: in a storm the others are
#: counted.
_AT_ONCE = 500
MOST_OPEN = 500
#: Older ends are history that was read late: no reader waits for them any more.
_OLDEST_MS = 3_600_000
#: How long holders are remembered: a release is observed before its cause, or after it.
_REMEMBER_MS = 60_000
#: Maximum remembered transactions.
_MOST_HELD = 1_000
_CHANGING = (
    "released_ms", "release_noticed", "records_released", "resumed_ms", "resumed_by", "waited", "closed_ms",
    "outcome",
)  # fmt: skip

#: Columns that a recovery copies from its first transition.
_TRANSITION = (
    "cluster_id", "key", "transactional_id", "application", "confidence", "producer_id", "producer_epoch",
    "topic_id", "log_partition", "log_offset", "rev",
)  # fmt: skip

#: A producer's remembered state: {"seen": ms, "begun": ms or None by its coordinator while it is open,
#: "pins": [[topic, partition, start, topic id]], "waits": [Wait, …]}.
Memory = dict[str, dict[str, Any]]


@retry_write
def update_recoveries(lease: Lease, *, limit_ms: float, now_ms: int) -> Collector:
    """Open recoveries for ends since the last tick, record the waiting groups, and follow open recoveries. A
    client may block readers for `limit_ms` before its own abort counts. Returns the lease's row; raises
    `LeaseLost`.

    Only the holder of the lease writes recoveries, so they are read, and compared, before a transaction: it
    would lock all writers of SQLite for a second while many transactions time out.
    """
    before = Collector.objects.values_list("detail", flat=True).get(cluster=lease.cluster_id, name=lease.name)
    memory: Memory = before.get("held", {})
    place = _open(lease, before.get("place"), memory, limit_ms, now_ms)
    known = {"place": place, "held": _remember(lease.cluster_id, memory, now_ms)}
    changed = _follow(lease.cluster_id, now_ms)
    with write_transaction(lease, {"seen_through_ms": now_ms, "behind": 0}, lock_cluster=False) as write:
        if known != before:
            write.collector.detail = known
            write.collector.save(update_fields=["detail"])
        if changed:
            update_rows(changed, _CHANGING)
            write.notify_after_commit("recoveries")
    return write.collector


@prepared
def waiting_for_a_search(cluster_id: int) -> QuerySet[Recovery]:
    """Return recoveries with written markers whose losses were not searched yet."""
    rows = Recovery.objects.filter(cluster_id=cluster_id, closed_ms=None, lost_complete=False)
    return rows.exclude(completed_ms=None).order_by("opened_ms")[:_AT_ONCE]


def save_lost(lease: Lease, found: Mapping[Recovery, Iterable[LostRecords]]) -> None:
    """Save the records of aborted transactions, as far as they were read, in one transaction."""
    for row, records in found.items():
        lost = {lost.topic_partition: lost for lost in records}
        for where in recovery_evidence.wrote_to(row):
            lost.setdefault(
                where, LostRecords(*where, None, None, None, False, "the partition cannot be seen")
            )
        row.lost, row.lost_complete = [list(lost[at]) for at in sorted(lost)], True
    if found:
        _save_lost(lease, found)


@retry_write
def _save_lost(lease: Lease, rows: Iterable[Recovery]) -> None:
    with write_transaction(lease, lock_cluster=False) as write:
        update_rows(rows, ["lost", "lost_complete"])
        write.notify_after_commit("recoveries")


def waiting_for_topics(lease: Lease) -> Mapping[int, tuple[Recovery, set[str]]]:
    """Return by key the recoveries whose readers may wait for deleted topics, with those topics."""
    candidates = {
        row.pk: (row, recovery_evidence.may_be_deleted(row))
        for row in _open_rows(lease.cluster_id)
        if row.lost_complete and row.released_ms is None
    }
    return {pk: (row, names) for pk, (row, names) in candidates.items() if names}


def save_deleted(lease: Lease, row: Recovery, notes: Mapping[str, str]) -> None:
    """Save the deleted topics of a recovery's records, by name, with the reasons."""
    wrote = {
        where: LostRecords(*where, start, None, None, False)
        for where, start in recovery_evidence.held_offsets(row).items()
    }
    wrote |= {lost.topic_partition: lost for lost in recovery_evidence.written_records(row)}
    gone = (
        records._replace(sure=False, note=notes[records.topic], deleted=True)
        if records.topic in notes
        else records
        for records in wrote.values()
    )
    save_lost(lease, {row: gone})


def _open(
    lease: Lease, place: Sequence[int] | None, memory: Memory, limit_ms: float, now_ms: int
) -> list[int]:
    """Open recoveries for aborts from `place` on: a revision, and its last read row. Return the next place.

    What was opened before a crash is known at the next tick, which begins at the same place.
    """
    ((rev,),) = read_rows(Cluster, ["rev"], id=lease.cluster_id)
    if place is None:
        return [rev + 1, 0]
    rows = _news(lease.cluster_id, *place)
    if not rows:
        return [max(rev + 1, place[0]), 0]
    clocks = recovery_evidence.clock_offsets(lease.cluster_id)
    shifts = {row.pk: _shift_ms(row, clocks, now_ms) for row in rows}
    known = _known_recoveries(lease.cluster_id, rows)
    fresh = [row for row in rows if row.pk not in known and _is_news(row, shifts[row.pk], limit_ms, now_ms)]
    room = max(0, MOST_OPEN - Recovery.objects.filter(cluster_id=lease.cluster_id, closed_ms=None).count())
    episodes = [_episode(row, shifts[row.pk], memory) for row in fresh[:room]]
    with write_transaction(lease, lock_cluster=False) as write:
        for row in rows:
            if row.pk in known:
                _refresh(known[row.pk], row)
        Recovery.objects.bulk_create(episodes)
        if fresh[room:]:
            reason = f"more than {MOST_OPEN} recoveries at once: the others were not followed"
            collector_store.add_gap(lease, "recoveries", reason, now_ms, len(fresh[room:]))
        write.notify_after_commit("recoveries")
    whole = len(rows) < _AT_ONCE
    return [max(rev + 1, place[0]), 0] if whole else [rows[-1].rev, rows[-1].pk]


def _news(cluster_id: int, rev: int, row: int) -> list[TransitionRecord]:
    aborts = TransitionRecord.objects.filter(cluster_id=cluster_id, kind__in=[kind.value for kind in ABORTS])
    behind = aborts.filter(Q(rev__gt=rev) | Q(pk__gt=row), rev__gte=rev)
    return list(behind.order_by("rev", "pk")[:_AT_ONCE])


def _known_recoveries(cluster_id: int, rows: Sequence[TransitionRecord]) -> Mapping[int, int]:
    """Return the recoveries of transitions, by their keys in the database."""
    places = {(row.topic_id, row.log_partition, row.log_offset): row.pk for row in rows}
    near = Recovery.objects.filter(
        cluster_id=cluster_id,
        topic_id__in={row.topic_id for row in rows},
        log_offset__in=[row.log_offset for row in rows],
    )
    found = near.values_list("topic_id", "log_partition", "log_offset", "pk")
    recovered = {(topic, partition, offset): pk for topic, partition, offset, pk in found}
    return {row: recovered[place] for place, row in places.items() if place in recovered}


def _refresh(recovery: int, row: TransitionRecord) -> None:
    """Update the recovery of a transition to its present kind and confidence."""
    completed_ms = None if row.completed_ms is None else row.completed_ms + F("clock_ms")
    same = Recovery.objects.filter(pk=recovery)
    same.update(cause=row.kind, confidence=row.confidence, completed_ms=completed_ms)


def _shift_ms(row: TransitionRecord, clocks: Mapping[int, int], now_ms: int) -> int:
    """Return the correction of an abort's instants; it never moves them into our future."""
    return min(clocks.get(row.log_partition, 0), now_ms - max(row.at_ms, row.completed_ms or 0))


def _is_news(row: TransitionRecord, shift_ms: int, limit_ms: float, now_ms: int) -> bool:
    if now_ms - row.at_ms - shift_ms > _OLDEST_MS:
        return False
    return opens_episode(
        TransitionKind(row.kind), held=bool(row.partitions), open_ms=row.open_ms, limit_ms=limit_ms
    )


def _episode(row: TransitionRecord, shift_ms: int, memory: Memory) -> Recovery:
    held = memory.get(str(row.producer_id), {})
    opened_ms = row.at_ms + shift_ms
    made = Recovery(
        **{name: getattr(row, name) for name in _TRANSITION},
        cause=row.kind,
        clock_ms=shift_ms,
        opened_ms=opened_ms,
        begun_ms=None if row.open_ms is None else opened_ms - row.open_ms,
        completed_ms=None if row.completed_ms is None else row.completed_ms + shift_ms,
        outcome=RecoveryOutcome.OPEN.value,
        partitions=json.loads(row.partitions),
        pins=held.get("pins", []),
        waited=held.get("waits", []),
    )
    made.topics = [list(topic) for topic in recovery_evidence.topics_before(made)]
    return made


def _remember(cluster_id: int, memory: Memory, now_ms: int) -> Memory:
    """Return the producers' present holdings, and those of the last minute."""
    now: Memory = {}
    pins = _oldest_pins(cluster_id)
    if not (pins or memory):
        return now
    ids = _topic_ids(cluster_id, {pin.topic for pin in pins})
    for pin in pins:
        held = now.setdefault(str(pin.producer_id), {"seen": 0, "pins": [], "waits": []})
        held["pins"].append([pin.topic, pin.partition, pin.start_offset, ids.get(pin.topic, "")])
    for wait, producers in _waits(cluster_id):
        for producer_id in producers & now.keys():
            now[producer_id]["waits"].append(list(wait))
    begun = _begun(cluster_id, {*memory, *now})
    for producer_id, held in now.items():
        before = memory.get(producer_id)
        held["begun"] = begun.get(producer_id)
        if before and _goes_on(before, begun.get(producer_id)):
            held["pins"] = _with_former(held["pins"], before["pins"])
        # After one missed poll, the memory stays, and no row is written.
        held["seen"] = before["seen"] if before and _same(before, held, now_ms) else now_ms
        if before and not held["waits"]:
            held["waits"] = before["waits"]
    return {
        key: held
        for key, held in {**memory, **now}.items()
        if now_ms - held["seen"] <= _REMEMBER_MS or _goes_on(held, begun.get(key))
    }


@prepared
def _oldest_pins(cluster_id: int) -> QuerySet[PinRecord]:
    return PinRecord.objects.filter(cluster_id=cluster_id).order_by("first_seen_ms")[:_MOST_HELD]


def _topic_ids(cluster_id: int, names: Iterable[str]) -> dict[str, str]:
    rows = PartitionRecord.objects.filter(cluster_id=cluster_id, topic__in=list(names))
    return dict(rows.values_list("topic", "topic_id").distinct())


def _begun(cluster_id: int, producer_ids: Iterable[str]) -> dict[str, int | None]:
    """Return when open transactions began, by producer id and by their coordinators."""
    named = [int(producer_id) for producer_id in producer_ids]
    rows = Transaction.objects.filter(IS_OPEN, cluster_id=cluster_id, producer_id__in=named)
    return {str(producer_id): at_ms for producer_id, at_ms in rows.values_list("producer_id", "started_ms")}


def _goes_on(held: Mapping[str, Any], begun_ms: int | None) -> bool:
    """Return whether a producer's remembered transaction is still open."""
    return begun_ms is not None and held.get("begun") == begun_ms


def _with_former(pins: Sequence[list[Any]], former: Sequence[list[Any]]) -> list[list[Any]]:
    """Return pins with the former ones of partitions without a pin: their topic may be deleted."""
    there = {(topic, number) for topic, number, *_ in pins}
    return [*pins, *(pin for pin in former if (pin[0], pin[1]) not in there)]


def _same(before: Mapping[str, Any], held: Mapping[str, Any], now_ms: int) -> bool:
    fresh = now_ms - before["seen"] < _REMEMBER_MS // 2
    return bool(fresh and before["pins"] == held["pins"] and before["waits"] == held["waits"])


def _waits(cluster_id: int) -> Iterable[tuple[Wait, set[str]]]:
    rows = GroupOffset.objects.filter(group__cluster_id=cluster_id, waiting=Waiting.PROBABLY.value)
    for row in rows.select_related("group").order_by("group_id", "topic", "partition")[:_MOST_HELD]:
        wait = Wait(row.group.group_id, row.topic, row.partition, row.offset or 0, row.waiting_ms or 0)
        yield wait, {str(blocker.get("producer_id")) for blocker in row.blockers}


@prepared
def _open_rows(cluster_id: int) -> QuerySet[Recovery]:
    return Recovery.objects.filter(cluster_id=cluster_id, closed_ms=None).order_by("pk")


def _follow(cluster_id: int, now_ms: int) -> Sequence[Recovery]:
    """Return the open recoveries that new observations change, with the changes."""
    rows = _open_rows(cluster_id)
    if not rows:
        return ()
    since = recovery_evidence.evidence_since(cluster_id, rows)
    return [row for row in rows if _take(row, advance_episode(_known(row), since[row.pk], now_ms=now_ms))]


def _known(row: Recovery) -> Episode:
    return record_of(
        Episode,
        row,
        complete=row.completed_ms is not None and row.lost_complete,
        held=tuple(recovery_evidence.blocked_offsets(row)),
        deleted=recovery_evidence.topics_deleted(row),
    )


def _take(row: Recovery, now: Episode) -> bool:
    new = {name: getattr(now, name) for name in _CHANGING}
    new |= {"outcome": now.outcome.value, "waited": [list(wait) for wait in now.waited]}
    differs = any(getattr(row, name) != value for name, value in new.items())
    for name, value in new.items():
        setattr(row, name, value)
    return differs
