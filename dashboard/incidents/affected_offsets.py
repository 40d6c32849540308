"""List the offsets that an incident affects, by partition: for consumers, and to reprocess records."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from dashboard.history.audits import read_violations
from dashboard.models import AbortedCommit, Incident, PartitionRecord, PinRecord, Recovery
from dashboard.recoveries.evidence import written_records
from dashboard.runtime.sql import in_portions
from dashboard.system.owners import split_partition
from fenceline.kafka.transactional_ids import key_of_name
from fenceline.losses.recoveries import LostRecords

#: Milliseconds after an incident's end within which an abort belongs to it.
_AFTER_MS = 600_000
#: Maximum rows in one file.
_MOST = 100_000


class AffectedOffsets(NamedTuple):
    """A range of offsets, inclusive; `records` is None if only bounds are known."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int | None
    #: aborted: an aborted transaction wrote there; open: an undecided transaction began there; blocked:
    #: read_committed readers cannot read them; missing and duplicated: the first ones by an audit.
    effect: str
    transactional_id: str
    sure: bool
    note: str


def affected_offsets(row: Incident) -> Sequence[AffectedOffsets]:
    """Return an incident's aborted offsets so far and, while it is open, its blocked ones."""
    subjects = set(row.findings.values_list("subject", flat=True))
    names = [
        subject.removeprefix("transaction:") for subject in subjects if subject.startswith("transaction:")
    ]
    affected = [*_aborted(row, names), *_lost_before_commit(row, names)]
    if row.closed_ms is None:
        places = [
            split_partition(subject.removeprefix("partition:"))
            for subject in subjects
            if subject.startswith("partition:")
        ]
        affected += [*_open(row, names), *_blocked(row, [place for place in places if place])]
        affected += [*_audited(row, subjects)]
    return sorted(affected[:_MOST])


def _aborted(row: Incident, names: Sequence[str]) -> Iterator[AffectedOffsets]:
    until_ms = None if row.closed_ms is None else row.closed_ms + _AFTER_MS
    keys = [key_of_name(name) for name in names]
    later = Recovery.objects.filter(cluster=row.cluster_id, opened_ms__gte=row.opened_ms)
    for rows in in_portions(later, "key", keys):
        for recovery in rows if until_ms is None else rows.filter(opened_ms__lte=until_ms):
            yield from _of_lost(written_records(recovery), recovery.transactional_id)


def _of_lost(records: Iterable[LostRecords], name: str) -> Iterator[AffectedOffsets]:
    for lost in records:
        if lost.first is not None and lost.last is not None:
            yield AffectedOffsets(
                lost.topic, lost.partition, lost.first, lost.last, lost.records,
                "aborted", name, lost.sure, lost.note,
            )  # fmt: skip


def _lost_before_commit(row: Incident, names: Sequence[str]) -> Iterator[AffectedOffsets]:
    """Yield the records that transactions in an incident's findings lost before their commit."""
    commit_times = row.findings.filter(rule="aborted_under_commit").values_list("since_ms", flat=True)
    keys = {key_of_name(name) for name in names}
    for commit in AbortedCommit.objects.filter(cluster=row.cluster_id, committed_ms__in=list(commit_times)):
        if bytes(commit.key) in keys:
            yield from _of_lost(written_records(commit), commit.transactional_id)


def _open(row: Incident, names: Sequence[str]) -> Iterator[AffectedOffsets]:
    opened = PinRecord.objects.filter(cluster=row.cluster_id)
    for pins in in_portions(opened, "transactional_id", names):
        topics = {pin.topic for pin in pins}
        partitions = PartitionRecord.objects.filter(cluster=row.cluster_id, topic__in=topics)
        ends = {(place.topic, place.partition): place.high_watermark for place in partitions}
        for pin in pins:
            end = ends.get((pin.topic, pin.partition))
            if end is not None and end > pin.start_offset:
                yield AffectedOffsets(
                    pin.topic, pin.partition, pin.start_offset, end - 1, None,
                    "open", pin.transactional_id, False, "others write between its records",
                )  # fmt: skip


def _blocked(row: Incident, places: Collection[tuple[str, int]]) -> Iterator[AffectedOffsets]:
    rows = PartitionRecord.objects.filter(cluster=row.cluster_id, topic__in={topic for topic, _ in places})
    for record in rows:
        if (
            (record.topic, record.partition) not in places
            or record.lso is None
            or record.high_watermark is None
        ):
            continue
        if record.high_watermark > record.lso:
            yield AffectedOffsets(
                record.topic, record.partition, record.lso, record.high_watermark - 1, None,
                "blocked", "", False, "markers count as offsets too",
            )  # fmt: skip


def _audited(row: Incident, subjects: Collection[str]) -> Iterator[AffectedOffsets]:
    for audit in read_violations(row.cluster_id):
        ranges = ((audit.losses, "missing"), (audit.duplicates, "duplicated"))
        for offset_ranges, effect in ranges if f"pipeline:{audit.pipeline}" in subjects else ():
            for topic, number, first, end in offset_ranges:
                yield AffectedOffsets(topic, number, first, end - 1, end - first, effect, "", True, "")
