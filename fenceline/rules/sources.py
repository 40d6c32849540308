"""Rules about the input of streaming queries: records deleted before they were read, and no progress.

A query's position in a partition is the end of its last finished batch. Spark commits nothing to its consumer
groups: only the checkpoint and the listener contain the position.
"""

from collections.abc import Iterator, Sequence

from fenceline.facts import Finding, Severity
from fenceline.findings import before_loss
from fenceline.formatting import format_clock, list_names, rough_count
from fenceline.limits import Limits
from fenceline.rules.partitions import Blocks, first_id, waits_since
from fenceline.rules.rule import claim
from fenceline.snapshot import PinnedPartition, Snapshot
from fenceline.spark.queries import MissingTopic, QueryStatus, SourcePosition, missing_clauses, missing_topics

#: A position is compared only with an end offset that was read later.
_SETTLED_MS = 10_000
#: Estimated instants are rounded to this, so that the wording stays the same between evaluations.
_GUESSED_MS = 600_000


def data_loss_risk(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield queries with unread records that are deleted, or will be within `limits.data_loss_s`."""
    for query in _current(snapshot, now_ms):
        lost = [position for position in query.positions if _unread(position) < 0]
        soon = [
            (position, left_s)
            for position in query.positions
            if (left_s := _left_s(position)) is not None and left_s <= limits.data_loss_s
        ]
        if lost:
            yield _lost(query, lost)
        elif soon:
            yield _soon(query, soon, now_ms, limits)


def topic_recreated(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield queries whose position is beyond a partition's end: the topic was deleted and created again."""
    for query in _current(snapshot, now_ms):
        beyond = [
            position
            for position in query.positions
            if position.high_watermark is not None
            and position.position > position.high_watermark
            and (position.stands_ms is None or now_ms - position.stands_ms > _SETTLED_MS)
        ]
        if beyond:
            first = beyond[0]
            yield claim(
                subject=query.subject,
                severity=Severity.CRITICAL,
                since_ms=None,
                summary=f"{query.name} is beyond the end of {list_names(list(map(str, beyond)))}",
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


def topic_deleted(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield queries that read from, or write to, a topic that no longer exists."""
    for query in _current(snapshot, now_ms):
        missing = missing_topics(query.positions)
        if missing or query.missing_outputs:
            yield _deleted(query, missing)


def query_blocked(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield queries that have been at a stuck LSO for `limits.group_stalled_s`.

    A query's isolation level is not visible; a query that read past the LSO is not blocked.
    """
    pinned = {(position.topic, position.partition): position for position in snapshot.partitions}
    blocks = Blocks(snapshot, now_ms=now_ms, limits=limits)
    for query in _current(snapshot, now_ms):
        stalled = [
            (position, held, since_ms)
            for position in query.positions
            if (held := pinned.get((position.topic, position.partition))) is not None
            and (since_ms := waits_since(position, held)) is not None
            and now_ms - since_ms > limits.group_stalled_s * 1_000
        ]
        if stalled:
            yield _blocked(query, stalled, blocks)


def watermark_stalled(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield queries with one watermark for `limits.watermark_stalled_batches` batches with input."""
    for query in _current(snapshot, now_ms):
        stall = query.stall
        if stall is None or stall.batches < limits.watermark_stalled_batches:
            continue
        yield claim(
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
    return (query for query in snapshot.queries if not query.is_abandoned(now_ms))


def _unread(position: SourcePosition) -> int:
    """Return the number of offsets from the log start to a position; 0 if unknown."""
    return 0 if position.log_start is None else position.position - position.log_start


def _left_s(position: SourcePosition) -> float | None:
    """Return the seconds until the log start reaches a position with unread records after it."""
    behind = position.high_watermark is not None and position.position < position.high_watermark
    if not behind or not position.pace or position.log_start is None:
        return None
    return max(0.0, _unread(position) / position.pace)


def _lost(query: QueryStatus, lost: Sequence[SourcePosition]) -> Finding:
    worst = min(lost, key=_unread)
    return claim(
        subject=query.subject,
        severity=Severity.CRITICAL,
        since_ms=None,
        summary=f"Records of {list_names(list(map(str, lost)))} were deleted before {query.name} read them",
        evidence=(
            f"it has read {worst} up to {worst.position:,}, and its log starts "
            f"{rough_count(-_unread(worst))} offsets behind that"
        ),
        next_step=(
            "With failOnDataLoss its next batch fails; without, it skips them with no more than a warning in "
            "the log. They are only in what keeps them elsewhere."
        ),
        affected=_partitions(lost),
    )


def _deleted(query: QueryStatus, missing: Sequence[MissingTopic]) -> Finding:
    absent = [position for position in query.positions if position.absence is not None]
    deleted_ms = [position.deleted_ms for position in missing if position.deleted_ms is not None]
    severity = Severity.WARNING if deleted_ms or query.missing_outputs else Severity.INFO
    return claim(
        subject=query.subject,
        severity=Severity.CRITICAL if any(position.unread for position in missing) else severity,
        since_ms=min(deleted_ms, default=None),
        summary=f"{query.name}: {missing_clauses(missing, query.missing_outputs)}",
        evidence=(
            f"it has read {list_names([_read_up_to(position) for position in absent])}"
            if absent
            else "its exactly-once sink wrote there last"
        ),
        next_step=(
            "With failOnDataLoss a restart fails; without, it skips what was unread. Read that from what "
            "keeps it elsewhere, or take the topic out of the query's subscription."
            if missing
            else "Create the topic again before the query writes to it: a broker may make one with defaults."
        ),
        affected=_partitions(absent),
    )


def _read_up_to(position: SourcePosition) -> str:
    end = position.absence.end if position.absence else None
    return f"{position} up to {position.position:,}" + ("" if end is None else f" of {end:,}")


def _soon(
    query: QueryStatus, soon: Sequence[tuple[SourcePosition, float]], now_ms: int, limits: Limits
) -> Finding:
    first, left_s = min(soon, key=lambda reader: reader[1])
    at_ms = (now_ms + int(left_s * 1_000)) // _GUESSED_MS * _GUESSED_MS
    names = [str(position) for position, _ in soon]
    return claim(
        subject=query.subject,
        severity=before_loss(at_ms, now_ms=now_ms, limits=limits),
        since_ms=None,
        summary=f"Records of {list_names(names)} will be deleted before {query.name} has read them",
        evidence=(
            f"the log of {first} starts {rough_count(_unread(first))} offsets before its position, and "
            f"loses {rough_count(60 * (first.pace or 0))} a minute: they meet at about {format_clock(at_ms)}"
        ),
        next_step="Let the query catch up, or keep the topic for longer (retention.ms, retention.bytes).",
        affected=_partitions([position for position, _ in soon]),
        # Records whose estimated deletion has passed may still exist.
        deadline_ms=at_ms if at_ms > now_ms else None,
    )


def _blocked(
    query: QueryStatus, stalled: Sequence[tuple[SourcePosition, PinnedPartition, int]], blocks: Blocks
) -> Finding:
    since_ms = min(since_ms for _, _, since_ms in stalled)
    places = [position for position, _, _ in stalled]
    owners = sorted(
        {pin.transactional_id for _, held, _ in stalled for pin in held.pins[:1] if pin.transactional_id}
    )
    behind = sum(held.uncommitted_backlog for _, held, _ in stalled)
    return claim(
        subject=query.subject,
        severity=blocks.of_reader(since_ms, behind, {first_id(held) for _, held, _ in stalled}),
        since_ms=since_ms,
        summary=f"{query.name} is blocked at the LSO of {list_names([str(position) for position in places])}",
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


def _partitions(positions: Sequence[SourcePosition]) -> tuple[str, ...]:
    return tuple(f"partition:{position}" for position in positions)
