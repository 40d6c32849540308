"""What was seen since an abort: where its partitions stand, who has read on, who has committed again."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dashboard.models import GroupOffset, PartitionRecord, Position, Recent, Recovery, Tally
from dashboard.store import TRANSACTION_STATE
from fenceline import recent
from fenceline.facts import Kind, TopicPartition
from fenceline.recoveries import Ends, Held, Lost, Since, Wait

#: The application's commits count from the first whole minute behind an abort: counters know minutes.
_MINUTE_MS = 60_000
#: The coordinator's clock, in ours, is known to about a second.
_SLACK_MS = 3_000


def since(cluster_id: int, rows: Sequence[Recovery]) -> Mapping[int, Since]:
    """Return, by episode, what was seen since its abort."""
    ends, committed, commits = (
        _ends(cluster_id, rows),
        _committed(cluster_id, rows),
        _commits(cluster_id, rows),
    )
    return {row.pk: Since(ends, committed, commits.get(row.pk)) for row in rows}


def clocks(cluster_id: int) -> dict[int, int]:
    """Return, by partition of `__transaction_state`, how far our clock is ahead, where that is known."""
    rows = Position.objects.filter(cluster_id=cluster_id, topic=TRANSACTION_STATE)
    return {p: ms for p, ms in rows.values_list("partition", "clock_ms") if ms is not None}


def starts(row: Recovery) -> dict[TopicPartition, int]:
    """Return the users' partitions an aborted transaction wrote to, and where to begin to look for it.

    That is where it held the LSO, else the end of the partition shortly before it began, else its first
    record. Partitions that cannot be seen are left out.
    """
    pinned = pins(row)
    return {
        where: pinned.get(where, _end_before(known, row.begun_ms or row.opened_ms))
        for where, known in _partitions(row.cluster_id, wrote_to(row)).items()
    }


def wrote_to(row: Recovery) -> list[TopicPartition]:
    """Return the users' partitions: offset commits are no records that anyone reprocesses."""
    return [
        TopicPartition(topic, number)
        for topic, numbers in row.partitions
        for number in numbers
        if not topic.startswith("__")
    ]


def pins(row: Recovery) -> dict[TopicPartition, int]:
    """Return where its transaction was seen to hold the LSO, and at which offset."""
    return {TopicPartition(topic, number): start for topic, number, start in row.pins}


def held(row: Recovery) -> Iterator[Held]:
    """Yield what readers have to pass: what it wrote, or where it held the LSO."""
    pinned = pins(row)
    for each in (Lost(*values) for values in row.lost):
        first = pinned.pop(each.where, each.first)
        if first is not None:
            yield Held(each.where, first, max(first, each.last or first))
    for where, start in pinned.items():
        yield Held(where, start, start)


def _partitions(cluster_id: int, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionRecord]:
    names = set(wanted)
    rows = PartitionRecord.objects.filter(cluster_id=cluster_id, topic__in={where.topic for where in names})
    named = {TopicPartition(row.topic, row.partition): row for row in rows}
    return {where: named[where] for where in sorted(names & named.keys())}


def _end_before(row: PartitionRecord, begun_ms: int) -> int:
    """Return an offset that nothing from `begun_ms` on lies before, our clocks' slack included."""
    before = [end for at_ms, _, end in json.loads(row.ends or "[]") if at_ms <= begun_ms - _SLACK_MS]
    return before[-1] if before else row.log_start or 0


def _ends(cluster_id: int, rows: Iterable[Recovery]) -> dict[TopicPartition, Ends | None]:
    waiting = [row for row in rows if row.released_ms is None and row.lost_complete]
    wanted = {each.where for row in waiting for each in held(row)}
    return {
        where: Ends(row.lso, row.seen_ms)
        for where, row in _partitions(cluster_id, wanted).items()
        if row.lso is not None and row.seen_ms is not None and not row.error
    }


def _committed(cluster_id: int, rows: Iterable[Recovery]) -> dict[tuple[str, TopicPartition], int]:
    waits = [Wait(*each) for row in rows for each in row.waited]
    topics = {wait.topic for wait in waits if wait.resumed_ms is None}
    if not topics:
        return {}
    found = GroupOffset.objects.filter(group__cluster_id=cluster_id, topic__in=topics).exclude(offset=None)
    return {
        (group, TopicPartition(topic, number)): offset
        for group, topic, number, offset in found.values_list(
            "group__group_id", "topic", "partition", "offset"
        )
        if offset is not None
    }


def _commits(cluster_id: int, rows: Iterable[Recovery]) -> dict[int, tuple[str, int]]:
    """Return, by episode, who committed first after its abort, and when by our clock."""
    waiting = [row for row in rows if row.resumed_ms is None]
    if not waiting:
        return {}
    packed = Recent.objects.filter(cluster_id=cluster_id, key__in=[bytes(row.key) for row in waiting])
    lived = {bytes(key): bytes(entries) for key, entries in packed.values_list("key", "packed")}
    applications, ahead_ms = _application_commits(cluster_id, waiting), clocks(cluster_id)
    found = {}
    for row in waiting:
        own = _own_commit(row, lived.get(bytes(row.key), b""), ahead_ms.get(row.log_partition, 0))
        later = [at for at in applications[row.application] if at >= row.opened_ms + _MINUTE_MS]
        if own is not None:
            found[row.pk] = row.transactional_id, own
        elif later:
            found[row.pk] = row.application, min(later)
    return found


def _own_commit(row: Recovery, packed: bytes, clock_ms: int) -> int | None:
    """Return when the id committed first after its abort; None while it has not."""
    later = [
        each.at_ms
        for each in recent.unpack(packed, row.log_partition)
        if each.kind is Kind.COMMIT and each.offset > row.log_offset
    ]
    return max(row.opened_ms, later[-1] + clock_ms) if later else None


def _application_commits(cluster_id: int, rows: Sequence[Recovery]) -> Mapping[str, list[int]]:
    """Return the minutes in which applications committed, from the oldest episode on."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    tallies = Tally.objects.filter(
        cluster_id=cluster_id,
        span_s=60,
        application__in={row.application for row in rows if row.application},
        start_ms__gte=min(row.opened_ms for row in rows),
    )
    for application, start_ms, counts in tallies.values_list("application", "start_ms", "counts"):
        if json.loads(counts).get(Kind.COMMIT.value, 0) > 0:
            found[application].append(start_ms)
    return found
