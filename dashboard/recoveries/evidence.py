"""Observations since an abort: offsets of its partitions, consumers and producers that resumed."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dashboard.models import AbortedCommit, GroupOffset, PartitionRecord, Position, Recovery, Tally
from dashboard.runtime.collector_store import TRANSACTION_STATE
from dashboard.transactions.sql import recent_rings
from fenceline.facts import TopicPartition, TransitionKind, expand_partitions
from fenceline.kafka import offset_histories
from fenceline.kafka.coordinator import LEAST_MS, difference_ms
from fenceline.kafka.fold import transition_ring
from fenceline.losses.recoveries import Ends, Held, LostRecords, Since, Wait, WrittenTopic

#: The application's commits count from the first whole minute after an abort: counters have minutes.
_MINUTE_MS = 60_000
#: The allowed difference between a coordinator's stamp and our clock, including a poll's duration.
_SLACK_MS = LEAST_MS + 3_000


def evidence_since(cluster_id: int, rows: Sequence[Recovery]) -> Mapping[int, Since]:
    """Return, by recovery, the observations since its abort."""
    ends, committed, commits = (
        _ends(cluster_id, rows),
        _committed(cluster_id, rows),
        _commits(cluster_id, rows),
    )
    return {row.pk: Since(_of_its_topics(row, ends), committed, commits.get(row.pk)) for row in rows}


def clock_offsets(cluster_id: int) -> dict[int, int]:
    """Return, by partition of `__transaction_state`, the correction of its instants to our clock."""
    return {number: difference_ms(ms) for number, ms in clocks_ahead(cluster_id).items()}


def clocks_ahead(cluster_id: int) -> dict[int, int]:
    """Return, by partition of `__transaction_state`, the maximum advance of our clock, if measured."""
    rows = Position.objects.filter(cluster_id=cluster_id, topic=TRANSACTION_STATE).exclude(clock_ms=None)
    return {number: ms for number, ms in rows.values_list("partition", "clock_ms") if ms is not None}


def search_starts(row: Recovery) -> dict[TopicPartition, int]:
    """Return the users' partitions of an aborted transaction, and the start of the search in each. That is
    its blocked LSO, else the end shortly before it began, else the log's start. Unreadable partitions are
    omitted.
    """
    pinned = held_offsets(row)
    return {
        where: pinned.get(where, end_before(known, row.begun_ms or row.opened_ms))
        for where, known in partition_rows(row.cluster_id, wrote_to(row)).items()
    }


def wrote_to(row: Recovery) -> list[TopicPartition]:
    """Return the users' partitions: offset commits need no reprocessing."""
    return [where for where in expand_partitions(row.partitions) if not where.topic.startswith("__")]


def held_offsets(row: Recovery) -> dict[TopicPartition, int]:
    """Return the partitions whose LSO its transaction blocked, with the offsets."""
    return {TopicPartition(topic, number): start for topic, number, start, *_ in row.pins}


def written_topics(row: Recovery) -> dict[str, WrittenTopic]:
    """Return the topics it wrote to by name, as they were when it was open.

    If its end was inferred, it may have held partitions that its last report did not name.
    """
    names = {topic for topic, _ in row.partitions} | {where.topic for where in held_offsets(row)}
    known = (WrittenTopic(*values) for values in row.topics)
    return {name: WrittenTopic(name) for name in names} | {topic.name: topic for topic in known}


def topics_before(row: Recovery) -> list[WrittenTopic]:
    """Return the topics of a new recovery, in their state while it blocked them, else in the present one."""
    names = {where.topic for where in wrote_to(row)}
    topics: dict[str, WrittenTopic] = {}
    records = PartitionRecord.objects.filter(cluster_id=row.cluster_id, topic__in=names)
    for name, topic_id, packed in records.values_list("topic", "topic_id", "ends"):
        first = next(iter(offset_histories.unpack_ends(packed)), None)
        since = first is not None and first.at_ms <= (row.begun_ms or row.opened_ms) - LEAST_MS
        topics[name] = WrittenTopic(name, topic_id, since or (name in topics and topics[name].since_begin))
    blocked = {name: topic_id for name, _, _, *rest in row.pins for topic_id in rest if topic_id}
    topics |= {
        name: WrittenTopic(name, topic_id, True) for name, topic_id in blocked.items() if name in names
    }
    return [topics[name] for name in sorted(topics)]


def written_records(row: Recovery | AbortedCommit) -> Sequence[LostRecords]:
    """Return the records of a transaction that were lost, by partition."""
    return [LostRecords(*packed) for packed in row.lost]


def topics_deleted(row: Recovery) -> bool:
    records = written_records(row)
    return bool(records) and all(lost.deleted for lost in records)


def blocked_offsets(row: Recovery) -> Iterator[Held]:
    """Yield the offsets that readers must pass: its records, or its blocked LSO; deleted topics have none."""
    pinned = held_offsets(row)
    for lost in written_records(row):
        first = pinned.pop(lost.topic_partition, lost.first)
        if first is not None and not lost.deleted:
            yield Held(
                lost.topic_partition, first, max(first, lost.last or first), lost.marker_ms, lost.unblocked_ms
            )
    for where, start in pinned.items():
        yield Held(where, start, start)


def may_be_deleted(row: Recovery) -> set[str]:
    """Return the topics of a waiting recovery that are gone or have another id."""
    known, waits_for = written_topics(row), {held.where for held in blocked_offsets(row)}
    there = partition_rows(row.cluster_id, waits_for)
    gone = {where.topic for where in waits_for - there.keys()}
    ids = {where.topic: record.topic_id for where, record in there.items()}
    return gone | {name for name, now in ids.items() if known[name].topic_id not in ("", now)}


def partition_rows(
    cluster_id: int, wanted: Iterable[TopicPartition]
) -> dict[TopicPartition, PartitionRecord]:
    names = set(wanted)
    rows = PartitionRecord.objects.filter(cluster_id=cluster_id, topic__in={where.topic for where in names})
    named = {TopicPartition(row.topic, row.partition): row for row in rows}
    return {where: named[where] for where in sorted(names & named.keys())}


def end_before(row: PartitionRecord, begun_ms: int) -> int:
    """Return an offset before everything since `begun_ms`, with slack for the clocks."""
    before = [end for at_ms, _, end in json.loads(row.ends or "[]") if at_ms <= begun_ms - _SLACK_MS]
    return before[-1] if before else row.log_start or 0


def _of_its_topics(
    row: Recovery, ends: Mapping[TopicPartition, tuple[str, Ends]]
) -> dict[TopicPartition, Ends]:
    """Return the known partitions of its topics; a topic with another id is another topic."""
    known = written_topics(row)
    return {
        where: partition_ends
        for where, (topic_id, partition_ends) in ends.items()
        if where.topic in known and known[where.topic].topic_id in ("", topic_id)
    }


def _ends(cluster_id: int, rows: Iterable[Recovery]) -> dict[TopicPartition, tuple[str, Ends]]:
    waiting = [row for row in rows if row.released_ms is None and row.lost_complete]
    wanted = {held.where for row in waiting for held in blocked_offsets(row)}
    return {
        where: (row.topic_id, Ends(row.lso, row.seen_ms))
        for where, row in partition_rows(cluster_id, wanted).items()
        if row.lso is not None and row.seen_ms is not None and not row.error
    }


def _committed(cluster_id: int, rows: Iterable[Recovery]) -> dict[tuple[str, TopicPartition], int]:
    waits = [Wait(*packed) for row in rows for packed in row.waited]
    topics = {wait.topic for wait in waits if wait.resumed_ms is None}
    if not topics:
        return {}
    offsets = GroupOffset.objects.filter(group__cluster_id=cluster_id, topic__in=topics).exclude(offset=None)
    return {
        (group, TopicPartition(topic, number)): offset
        for group, topic, number, offset in offsets.values_list(
            "group__group_id", "topic", "partition", "offset"
        )
        if offset is not None
    }


def _commits(cluster_id: int, rows: Iterable[Recovery]) -> dict[int, tuple[str, int]]:
    """Return, by recovery, the first committer after its abort, and the instant by our clock."""
    waiting = [row for row in rows if row.resumed_ms is None]
    if not waiting:
        return {}
    rings = recent_rings(cluster_id, [bytes(row.key) for row in waiting])
    applications = _application_commits(cluster_id, waiting)
    first_commits = {}
    for row in waiting:
        ring = rings.get(bytes(row.key))
        own = _own_commit(row, ring.packed if ring else b"")
        minutes = (at_ms + row.clock_ms for at_ms in applications[row.application])
        later = [at_ms for at_ms in minutes if at_ms >= row.opened_ms + _MINUTE_MS]
        if own is not None:
            first_commits[row.pk] = row.transactional_id, own
        elif later:
            first_commits[row.pk] = row.application, min(later)
    return first_commits


def _own_commit(row: Recovery, packed: bytes) -> int | None:
    """Return when the id first committed after its abort; None before that."""
    later = [
        transition.at_ms
        for transition in transition_ring.unpack_ring(packed, row.log_partition)
        if transition.kind is TransitionKind.COMMIT and transition.offset > row.log_offset
    ]
    return max(row.completed_ms or row.opened_ms, later[-1] + row.clock_ms) if later else None


def _application_commits(cluster_id: int, rows: Sequence[Recovery]) -> Mapping[str, list[int]]:
    """Return the minutes in which applications committed, from the oldest recovery on."""
    minutes: defaultdict[str, list[int]] = defaultdict(list)
    tallies = Tally.objects.filter(
        cluster_id=cluster_id,
        span_s=60,
        application__in={row.application for row in rows if row.application},
        start_ms__gte=min(row.opened_ms - row.clock_ms for row in rows),
    )
    for application, start_ms, counts in tallies.values_list("application", "start_ms", "counts"):
        if json.loads(counts).get(TransitionKind.COMMIT.value, 0) > 0:
            minutes[application].append(start_ms)
    return minutes
