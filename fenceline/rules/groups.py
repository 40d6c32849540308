"""Rules about consumer groups: who waits behind a transaction, and whose commits are pending in one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fenceline.facts import Finding, Severity
from fenceline.formatting import format_clock, list_names, rough_count
from fenceline.kafka.groups import Waiting
from fenceline.limits import Limits
from fenceline.rules.blocking import Blocks, names_of
from fenceline.snapshot import BlockedGroup, BlockedOffset, Blocker, Snapshot


def group_stalled(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield groups that have been at a stuck LSO for `limits.group_stalled_s`.

    A group's isolation level is not visible: one that committed past the LSO is not waiting, one that stands
    exactly at it probably is.
    """
    blocks = Blocks(snapshot, now_ms=now_ms, limits=limits)
    for group in snapshot.groups:
        stalled = [each for each in group.offsets if _waits(each, now_ms, limits)]
        if stalled:
            yield _stalled(snapshot.cluster, group, stalled, blocks)


def offsets_unstable(snapshot: Snapshot, *, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """Yield groups whose offsets are pending in a transaction for `limits.offsets_unstable_s`.

    Pending commits are everyday work for milliseconds; how long these are is known by the transaction's
    start, or else by the LSO of the group's partition of `__consumer_offsets`.
    """
    blocks = Blocks(snapshot, now_ms=now_ms, limits=limits)
    starts = {each.transactional_id: each.started_ms for each in snapshot.transactions}
    for group in snapshot.groups:
        pending = [each for each in group.offsets if each.unstable]
        blockers = _pending(pending)
        since_ms = _since_ms(group, blockers, starts)
        if since_ms is not None and pending and now_ms - since_ms > limits.offsets_unstable_s * 1_000:
            how_bad = blocks.of_reader(since_ms, 0, names_of(blockers))
            yield _unstable(snapshot.cluster, group, pending, blockers, since_ms, how_bad)


def _waits(each: BlockedOffset, now_ms: int, limits: Limits) -> bool:
    waits = each.waiting is Waiting.PROBABLY and each.waiting_ms is not None
    return waits and now_ms - (each.waiting_ms or 0) > limits.group_stalled_s * 1_000


def _stalled(cluster: str, group: BlockedGroup, stalled: Sequence[BlockedOffset], blocks: Blocks) -> Finding:
    since_ms = min(each.waiting_ms or 0 for each in stalled)
    names = [str(each) for each in stalled]
    blockers = _distinct(blocker for each in stalled for blocker in each.blockers if not blocker.pending)
    behind = sum(each.behind or 0 for each in stalled)
    return Finding(
        rule="group_stalled",
        cluster=cluster,
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
    cluster: str,
    group: BlockedGroup,
    pending: Sequence[BlockedOffset],
    blockers: Sequence[Blocker],
    since_ms: int,
    how_bad: Severity,
) -> Finding:
    names = [str(each) for each in pending]
    sure = all(each.certain for each in blockers)
    by = (
        f"{'pending in' if sure else 'pending, probably in'} {list_names(_names(blockers))}"
        if blockers
        else ("their transaction is not known")
    )
    return Finding(
        rule="offsets_unstable",
        cluster=cluster,
        subject=f"group:{group.group_id}",
        severity=how_bad,
        since_ms=since_ms,
        summary=f"{group.group_id} has unstable offsets (UNSTABLE_OFFSET_COMMIT)",
        evidence=f"its offsets of {list_names(names)} are {by}, open since {format_clock(since_ms)}"
        if blockers
        else f"its offsets of {list_names(names)} have been pending since {format_clock(since_ms)}; {by}",
        next_step=(
            "A consumer of this group cannot start before that transaction ends. "
            + (
                f"See {list_names(_names(blockers))}."
                if blockers
                else "Look for a read-process-write transaction."
            )
        ),
        affected=(*(f"partition:{name}" for name in names), *_subjects(blockers)),
    )


def _since_ms(
    group: BlockedGroup, blockers: Iterable[Blocker], starts: Mapping[str, int | None]
) -> int | None:
    begun = [starts[each.transactional_id] for each in blockers if each.transactional_id in starts]
    known = [ms for ms in begun if ms is not None]
    if known:
        return min(known)
    # One that is known, and not among those that are open for a while, is young: another one holds the log.
    young = bool(blockers) and all(each.transactional_id and each.certain for each in blockers)
    return None if young else group.log_pinned_ms


def _pending(offsets: Iterable[BlockedOffset]) -> Sequence[Blocker]:
    return _distinct(blocker for each in offsets for blocker in each.blockers if blocker.pending)


def _distinct(blockers: Iterable[Blocker]) -> Sequence[Blocker]:
    return sorted(set(blockers), key=lambda each: (each.transactional_id, each.producer_id or 0))


def _held_by(blockers: Sequence[Blocker]) -> str:
    if not blockers:
        return "the blocking transaction is not known yet"
    return f"blocked by {list_names(_names(blockers))}"


def _names(blockers: Sequence[Blocker]) -> Sequence[str]:
    return [each.transactional_id or f"producer id {each.producer_id}" for each in blockers]


def _subjects(blockers: Sequence[Blocker]) -> Iterator[str]:
    return (f"transaction:{each.transactional_id}" for each in blockers if each.transactional_id)
