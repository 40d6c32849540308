"""What follows one run of the audit: the positions where the next one continues, the manifest of all results,
and the ranges of an input to replay: missing ones that no earlier replay has listed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fenceline.audit.judging import Judged, Output
from fenceline.audit.ledgers import LedgerIndex
from fenceline.audit.manifest import (
    AuditedBatch,
    AuditedPosition,
    AuditedRange,
    AuditManifest,
    AuditObstacle,
    AuditVerdict,
    ObstacleKind,
)
from fenceline.audit.runs import ProducerRun
from fenceline.facts import TopicPartition

#: Maximum batches in a manifest, the newest ones.
MOST_BATCHES = 100
#: Maximum obstacles in a manifest: the first of each kind and place.
MOST_OBSTACLES = 100
_Span = tuple[int, int]


def next_positions(
    index: LedgerIndex, output: Output, next_batch: int, topic_ids: Mapping[str, str]
) -> tuple[AuditedPosition, ...]:
    """Return where the next audit continues: in each partition before all runs of waiting batches."""
    runs: dict[TopicPartition, list[ProducerRun]] = {where: [] for where in output.ranges}
    for batch_runs in output.runs.values():
        for run in batch_runs:
            runs[run.partition].append(run)
    positions = []
    for where in sorted(output.ranges):
        waiting = (run.first for run in runs[where] if _waits(index, run, next_batch))
        cut = min([output.ranges[where].lso, *waiting])
        spanning = tuple(
            (run.producer_id, run.marker)
            for run in runs[where]
            if run.marker is not None and run.marker >= cut and not _waits(index, run, next_batch)
            if run.first < cut or index.owner(run.producer_id, run.producer_epoch) is not None
        )
        positions.append(
            AuditedPosition(where.topic, where.partition, topic_ids.get(where.topic, ""), cut, spanning)
        )
    return tuple(positions)


def _waits(index: LedgerIndex, run: ProducerRun, next_batch: int) -> bool:
    decision = index.owner(run.producer_id, run.producer_epoch)
    return decision is not None and decision.batch_id >= next_batch


def extend_manifest(
    before: AuditManifest,
    judged: Sequence[Judged],
    waiting: Iterable[Judged],
    obstacles: Iterable[AuditObstacle],
) -> AuditManifest:
    """Return the manifest with newly audited batches, ascending, and with waiting ones.

    Waiting batches are in it in their present state, and are audited again: the sums do not include them.
    """
    after = before
    for judgement in judged:
        after = _with_batch(after, judgement.batch)
    waiting = tuple(waiting)
    kept = tuple(batch for batch in before.batches if batch.batch_id < (before.next_batch or 0))
    newest = _newest_first([*kept, *(batch.batch for batch in judged)], [batch.batch for batch in waiting])
    lasting = [obstacle for obstacle in before.obstacles if obstacle.kind is not ObstacleKind.UNREADABLE]
    known = [
        *lasting,
        *obstacles,
        *(obstacle for batch in (*judged, *waiting) for obstacle in batch.obstacles),
    ]
    first: dict[tuple[ObstacleKind, str], AuditObstacle] = {}
    for obstacle in known:
        first.setdefault((obstacle.kind, obstacle.where), obstacle)
    return replace(after, batches=newest, obstacles=tuple(first.values())[:MOST_OBSTACLES])


def _newest_first(
    audited: Iterable[AuditedBatch], waiting: Iterable[AuditedBatch]
) -> tuple[AuditedBatch, ...]:
    by_id: dict[int, AuditedBatch] = {}
    for batch in (*audited, *waiting):
        old = by_id.get(batch.batch_id)
        if old is not None:
            # Records of an audited batch were found once more.
            batch = replace(
                old,
                verdict=AuditVerdict.VIOLATED,
                duplicated=(old.duplicated or 0) + (batch.duplicated or 0),
                duplicates=(*old.duplicates, *batch.duplicates),
            )
        by_id[batch.batch_id] = batch
    return tuple(by_id[number] for number in sorted(by_id, reverse=True))[:MOST_BATCHES]


def _with_batch(manifest: AuditManifest, batch: AuditedBatch) -> AuditManifest:
    last = None if manifest.next_batch is None else manifest.next_batch - 1
    proved = manifest.proved_through
    is_next = last is None or batch.batch_id == last + 1
    if batch.verdict is AuditVerdict.PROVED and is_next and proved == last:
        proved = batch.batch_id
    elif last is not None and batch.batch_id <= last:
        # It was audited before: all batches before it are unchanged.
        first = manifest.first_batch if manifest.first_batch is not None else batch.batch_id
        earlier = batch.batch_id - 1 if batch.batch_id > first else None
        proved = None if proved is None or earlier is None else min(proved, earlier)
    return replace(
        manifest,
        first_batch=batch.batch_id if manifest.first_batch is None else manifest.first_batch,
        proved_through=proved,
        next_batch=max(batch.batch_id + 1, manifest.next_batch or 0),
        input=manifest.input + (batch.input or 0),
        readable=manifest.readable + (batch.readable or 0),
        duplicated=manifest.duplicated + (batch.duplicated or 0),
        missing=manifest.missing + (batch.missing or 0),
    )


def ranges_without(
    wanted: Iterable[AuditedRange], replayed: Iterable[AuditedRange]
) -> Sequence[AuditedRange]:
    """Return the offsets in `wanted` that are not in `replayed`, as ascending ranges without overlaps."""
    taken = _merged(replayed)
    ranges = []
    for where, spans in sorted(_merged(wanted).items()):
        for first, end in spans:
            ranges += [AuditedRange(*where, *bounds) for bounds in _cut(first, end, taken.get(where, ()))]
    return ranges


def count_offsets(ranges: Iterable[AuditedRange]) -> int:
    return sum(range_.to_offset - range_.from_offset for range_ in ranges)


def _merged(ranges: Iterable[AuditedRange]) -> Mapping[TopicPartition, Sequence[_Span]]:
    merged: defaultdict[TopicPartition, list[_Span]] = defaultdict(list)
    for topic, partition, first, end in sorted(ranges):
        spans = merged[TopicPartition(topic, partition)]
        if spans and first <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(end, spans[-1][1])
        elif first < end:
            spans.append((first, end))
    return merged


def _cut(first: int, end: int, taken: Sequence[_Span]) -> Iterable[_Span]:
    """Yield the parts of a span outside of other, ascending ones."""
    for low, high in taken:
        if high <= first or low >= end:
            continue
        if first < low:
            yield first, low
        first = high
    if first < end:
        yield first, end
