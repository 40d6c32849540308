"""Rules about consumer groups: groups behind a transaction, and groups with pending commits."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from fenceline.facts import Finding, Severity
from fenceline.formatting import count_noun, format_clock, list_names, rough_count
from fenceline.kafka.group_observation import GroupBlocker
from fenceline.kafka.groups import Waiting
from fenceline.limits import Limits
from fenceline.rules.partitions import Blocks, names_of
from fenceline.rules.rule import REPORTED_MS, claim
from fenceline.snapshot import BlockedGroup, BlockedOffset, DeletedRead, Snapshot


def group_stalled(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield groups that have been at a stuck LSO for `limits.group_stalled_s`.

    A group's isolation level is not visible. A group past the LSO is not blocked; a group exactly at the LSO
    probably is.
    """
    blocks = Blocks(snapshot, now_ms=now_ms, limits=limits)
    for group in snapshot.groups:
        stalled = [offset for offset in group.offsets if _waits(offset, now_ms, limits)]
        if stalled:
            yield _stalled(group, stalled, blocks)


def offsets_unstable(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield groups whose offsets are pending in a transaction for `limits.offsets_unstable_s`.

    A pending commit of milliseconds is normal. The age comes from the transaction's start, or else from the
    LSO of the group's partition of `__consumer_offsets`.
    """
    blocks = Blocks(snapshot, now_ms=now_ms, limits=limits)
    starts = {transaction.transactional_id: transaction.started_ms for transaction in snapshot.transactions}
    for group in snapshot.groups:
        pending = [offset for offset in group.offsets if offset.unstable]
        blockers = _distinct(blocker for offset in pending for blocker in offset.blockers if blocker.pending)
        since_ms = _since_ms(group, blockers, starts)
        if since_ms is not None and pending and now_ms - since_ms > limits.offsets_unstable_s * 1_000:
            how_bad = blocks.of_reader(since_ms, 0, names_of(blockers))
            yield _unstable(group, pending, blockers, since_ms, how_bad)


def unread_deleted(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield groups whose unread records were deleted with their topic, for a day."""
    recent = [read for read in snapshot.deleted_reads if now_ms - read.deleted_ms <= REPORTED_MS]
    for group_id, reads in groupby(sorted(recent), key=lambda read: read.group_id):
        yield _deleted(group_id, list(reads))


def _deleted(group_id: str, reads: Sequence[DeletedRead]) -> Finding:
    topics = list_names(sorted({read.topic for read in reads}))
    numbers = [read.unread for read in reads]
    known = sum(number for number in numbers if number is not None)
    records = f"{'at least ' if None in numbers else ''}{count_noun(known, 'unread record')}"
    return claim(
        subject=f"group:{group_id}",
        severity=Severity.WARNING,
        since_ms=min(read.deleted_ms for read in reads),
        summary=f"{topics} was deleted before {group_id} had read all of it",
        evidence=f"{list_names([str(read) for read in reads])} had {records} for this group",
        next_step="Read these records from what keeps them elsewhere, if the group still needs them.",
        affected=tuple(f"partition:{read}" for read in reads),
    )


def _waits(offset: BlockedOffset, now_ms: int, limits: Limits) -> bool:
    waits = offset.waiting is Waiting.PROBABLY and offset.waiting_ms is not None
    return waits and now_ms - (offset.waiting_ms or 0) > limits.group_stalled_s * 1_000


def _stalled(group: BlockedGroup, stalled: Sequence[BlockedOffset], blocks: Blocks) -> Finding:
    since_ms = min(offset.waiting_ms or 0 for offset in stalled)
    names = [str(offset) for offset in stalled]
    blockers = _distinct(blocker for offset in stalled for blocker in offset.blockers if not blocker.pending)
    behind = sum(offset.behind or 0 for offset in stalled)
    return claim(
        subject=f"group:{group.group_id}",
        severity=blocks.of_reader(since_ms, behind, names_of(blockers)),
        since_ms=since_ms,
        summary=f"{group.group_id} is blocked at the LSO of {list_names(names)}",
        evidence=(
            f"its position has been the last stable offset since {format_clock(since_ms)}, up to "
            f"{rough_count(behind)} records behind the high watermark; {_held_by(blockers)}"
        ),
        next_step=(
            f"See {list_names(_names(blockers))}: the group resumes by itself once the LSO advances."
            if blockers
            else "See the partition for what blocks its LSO; the group resumes by itself once it advances."
        ),
        affected=(*(f"partition:{name}" for name in names), *_subjects(blockers)),
    )


def _unstable(
    group: BlockedGroup,
    pending: Sequence[BlockedOffset],
    blockers: Sequence[GroupBlocker],
    since_ms: int,
    how_bad: Severity,
) -> Finding:
    names = [str(offset) for offset in pending]
    offsets, since = f"its offsets of {list_names(names)}", format_clock(since_ms)
    if blockers:
        how = "pending in" if all(blocker.certain for blocker in blockers) else "pending, probably in"
        evidence = f"{offsets} are {how} {list_names(_names(blockers))}, open since {since}"
        remedy = f"See {list_names(_names(blockers))}."
    else:
        evidence = f"{offsets} have been pending since {since}; their transaction is not known"
        remedy = "Look for a read-process-write transaction."
    return claim(
        subject=f"group:{group.group_id}",
        severity=how_bad,
        since_ms=since_ms,
        summary=f"{group.group_id} has unstable offsets (UNSTABLE_OFFSET_COMMIT)",
        evidence=evidence,
        next_step=f"A consumer of this group cannot start before that transaction ends. {remedy}",
        affected=(*(f"partition:{name}" for name in names), *_subjects(blockers)),
    )


def _since_ms(
    group: BlockedGroup, blockers: Iterable[GroupBlocker], starts: Mapping[str, int | None]
) -> int | None:
    begun = [starts[blocker.transactional_id] for blocker in blockers if blocker.transactional_id in starts]
    known = [ms for ms in begun if ms is not None]
    if known:
        return min(known)
    # A known id that is not among the transactions open for a while is young: another one blocks the log.
    young = bool(blockers) and all(blocker.transactional_id and blocker.certain for blocker in blockers)
    return None if young else group.log_pinned_ms


def _distinct(blockers: Iterable[GroupBlocker]) -> Sequence[GroupBlocker]:
    """Return each transaction once: it may block many partitions."""
    by_transaction = {
        (blocker.transactional_id, blocker.producer_id or 0, blocker.certain): blocker for blocker in blockers
    }
    return [by_transaction[key] for key in sorted(by_transaction)]


def _held_by(blockers: Sequence[GroupBlocker]) -> str:
    if not blockers:
        return "the blocking transaction is not known yet"
    return f"blocked by {list_names(_names(blockers))}"


def _names(blockers: Sequence[GroupBlocker]) -> Sequence[str]:
    return [blocker.transactional_id or f"producer id {blocker.producer_id}" for blocker in blockers]


def _subjects(blockers: Sequence[GroupBlocker]) -> Iterator[str]:
    return (f"transaction:{blocker.transactional_id}" for blocker in blockers if blocker.transactional_id)
