"""Rules about what streaming queries read: records that are deleted before that, and lack of progress.

A query's position in a partition is what its last finished batch has read up to. Spark commits nothing to its
consumer groups: only the checkpoint and the listener contain it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fenceline.facts import Finding, Severity
from fenceline.formatting import format_clock, list_names, rough_count
from fenceline.limits import Limits
from fenceline.rules.blocking import Blocks, first_id, waits_since
from fenceline.severity import before_loss
from fenceline.snapshot import PinnedPartition, Snapshot
from fenceline.spark.queries import QueryStatus, SourcePosition

#: A position is only compared with an end offset that was read after it was reached.
_SETTLED_MS = 10_000
#: Estimated instants are rounded to this, so that the wording does not change at each evaluation.
_GUESSED_MS = 600_000


def data_loss_risk(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield queries whose unread records are deleted already, or will be within `limits.data_loss_s`."""
    for query in _current(snapshot, now_ms):
        lost = [each for each in query.positions if _unread(each) < 0]
        soon = [
            (each, left_s)
            for each in query.positions
            if (left_s := _left_s(each)) is not None and left_s <= limits.data_loss_s
        ]
        if lost:
            yield _lost(snapshot, query, lost)
        elif soon:
            yield _soon(snapshot, query, soon, now_ms, limits)


def topic_recreated(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield queries whose position is behind the end of a partition: the topic was deleted and re-created."""
    for query in _current(snapshot, now_ms):
        beyond = [
            each
            for each in query.positions
            if each.high_watermark is not None
            and each.position > each.high_watermark
            and (each.stands_ms is None or now_ms - each.stands_ms > _SETTLED_MS)
        ]
        if beyond:
            first = beyond[0]
            yield Finding(
                rule="topic_recreated",
                cluster=snapshot.cluster,
                subject=query.subject,
                severity=Severity.CRITICAL,
                since_ms=None,
                summary=f"{query.name} is beyond the end of {list_names([str(each) for each in beyond])}",
                evidence=(
                    f"it has read {first} up to {first.position:,}, and that ends at "
                    f"{rough_count(first.high_watermark or 0)} now: its topic was deleted and made again, "
                    "or cut"
                ),
                next_step=(
                    "With failOnDataLoss it fails; without, it reads nothing until the end has passed its "
                    "position. Start it on a new checkpoint, or put the topic back."
                ),
                affected=_partitions(beyond),
            )


def query_blocked(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield queries that have been at a stuck LSO for `limits.group_stalled_s`.

    A query's isolation level is not visible: one that has read past the LSO is not waiting.
    """
    pinned = {(each.topic, each.partition): each for each in snapshot.partitions}
    blocks = Blocks(snapshot, now_ms=now_ms, limits=limits)
    for query in _current(snapshot, now_ms):
        stalled = [
            (each, held, since_ms)
            for each in query.positions
            if (held := pinned.get((each.topic, each.partition))) is not None
            and (since_ms := waits_since(each, held)) is not None
            and now_ms - since_ms > limits.group_stalled_s * 1_000
        ]
        if stalled:
            yield _blocked(snapshot, query, stalled, blocks)


def watermark_stalled(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield queries whose watermark is the same for `limits.watermark_stalled_batches` batches with input."""
    for query in _current(snapshot, now_ms):
        stall = query.stall
        if stall is None or stall.batches < limits.watermark_stalled_batches:
            continue
        yield Finding(
            rule="watermark_stalled",
            cluster=snapshot.cluster,
            subject=query.subject,
            severity=Severity.WARNING,
            since_ms=stall.since_ms,
            summary=f"The watermark of {query.name} has been stuck at {format_clock(stall.watermark_ms)}",
            evidence=(
                f"it has not moved over {rough_count(stall.batches)} batches with input, since "
                f"{format_clock(stall.since_ms)}"
            ),
            next_step=(
                "State grows and windows stay open. Look for a source without new events: with several, the "
                "slowest counts (spark.sql.streaming.multipleWatermarkPolicy)."
            ),
        )


def _current(snapshot: Snapshot, now_ms: int) -> Iterator[QueryStatus]:
    return (each for each in snapshot.queries if not each.is_abandoned(now_ms))


def _unread(each: SourcePosition) -> int:
    """Return how many offsets are left between the log start and a position; 0 where that is not known."""
    return 0 if each.log_start is None else each.position - each.log_start


def _left_s(each: SourcePosition) -> float | None:
    """Return in how many seconds the log start reaches a position with unread records behind it."""
    behind = each.high_watermark is not None and each.position < each.high_watermark
    if not behind or not each.pace or each.log_start is None:
        return None
    return max(0.0, _unread(each) / each.pace)


def _lost(snapshot: Snapshot, query: QueryStatus, lost: Sequence[SourcePosition]) -> Finding:
    worst = min(lost, key=_unread)
    return Finding(
        rule="data_loss_risk",
        cluster=snapshot.cluster,
        subject=query.subject,
        severity=Severity.CRITICAL,
        since_ms=None,
        summary=f"Records of {list_names([str(each) for each in lost])} were deleted before {query.name} "
        "read them",
        evidence=(
            f"it has read {worst} up to {worst.position:,}, and its log starts "
            f"{rough_count(-_unread(worst))} "
            "offsets behind that"
        ),
        next_step=(
            "With failOnDataLoss its next batch fails; without, it skips them with no more than a warning in "
            "the log. They are only in what keeps them elsewhere."
        ),
        affected=_partitions(lost),
    )


def _soon(
    snapshot: Snapshot,
    query: QueryStatus,
    soon: Sequence[tuple[SourcePosition, float]],
    now_ms: int,
    limits: Limits,
) -> Finding:
    first, left_s = min(soon, key=lambda each: each[1])
    at_ms = (now_ms + int(left_s * 1_000)) // _GUESSED_MS * _GUESSED_MS
    how_bad = before_loss(at_ms, now_ms=now_ms, limits=limits)
    names = [str(each) for each, _ in soon]
    return Finding(
        rule="data_loss_risk",
        cluster=snapshot.cluster,
        subject=query.subject,
        severity=how_bad,
        since_ms=None,
        summary=f"Records of {list_names(names)} will be deleted before {query.name} has read them",
        evidence=(
            f"the log of {first} starts {rough_count(_unread(first))} offsets before its position, and "
            f"loses {rough_count(60 * (first.pace or 0))} a minute: they meet at about {format_clock(at_ms)}"
        ),
        next_step="Let the query catch up, or keep the topic for longer (retention.ms, retention.bytes).",
        affected=_partitions([each for each, _ in soon]),
        # What is guessed to be over by now may still be there.
        deadline_ms=at_ms if at_ms > now_ms else None,
    )


def _blocked(
    snapshot: Snapshot,
    query: QueryStatus,
    stalled: Sequence[tuple[SourcePosition, PinnedPartition, int]],
    blocks: Blocks,
) -> Finding:
    since_ms = min(since_ms for _, _, since_ms in stalled)
    places = [each for each, _, _ in stalled]
    owners = _owners([held for _, held, _ in stalled])
    behind = sum(held.uncommitted_backlog for _, held, _ in stalled)
    return Finding(
        rule="query_blocked",
        cluster=snapshot.cluster,
        subject=query.subject,
        severity=blocks.of_reader(since_ms, behind, {first_id(held) for _, held, _ in stalled}),
        since_ms=since_ms,
        summary=f"{query.name} is blocked at the LSO of {list_names([str(each) for each in places])}",
        evidence=(
            f"its position has been the last stable offset since {format_clock(since_ms)}, up to "
            f"{rough_count(behind)} records before the high watermark; blocked by "
            f"{list_names(owners) or 'a transaction that is not known yet'}. "
            "It is blocked if it reads read_committed (kafka.isolation.level): not visible from outside"
        ),
        next_step=(
            f"See {list_names(owners)}: the query resumes by itself once the LSO advances."
            if owners
            else "See the partition for what holds its LSO; the query goes on by itself once it moves."
        ),
        affected=(*_partitions(places), *(f"transaction:{name}" for name in owners)),
    )


def _owners(held: Sequence[PinnedPartition]) -> Sequence[str]:
    return sorted({pin.transactional_id for each in held for pin in each.pins[:1] if pin.transactional_id})


def _partitions(positions: Sequence[SourcePosition]) -> tuple[str, ...]:
    return tuple(f"partition:{each}" for each in positions)
