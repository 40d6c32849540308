"""Offsets that an incident affects, partition by partition: for consumers, and to write records again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from dashboard.history.audit_store import read_violations
from dashboard.models import Incident, PartitionRecord, PinRecord, Recovery
from dashboard.recoveries import queries as recovery_queries
from dashboard.system.owners import split_partition
from fenceline.decode import text
from fenceline.kafka.transactional_ids import key_of

#: An abort that ends an incident is noted so long after it, at most.
_AFTER_MS = 600_000
#: Keys of one query of the database, and rows of one file.
_KEYS, _MOST = 500, 100_000


class AffectedOffsets(NamedTuple):
    """A range of offsets, inclusive; `records` is None where only bounds are known."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int | None
    #: aborted: an aborted transaction wrote there; open: one that is not decided has begun there; blocked:
    #: readers of committed records do not get them; missing and duplicated: by an audit, the first of them.
    effect: str
    transactional_id: str
    sure: bool
    note: str


def affected_offsets(row: Incident) -> Sequence[AffectedOffsets]:
    """Return what an incident has aborted so far and, while it is open, what it blocks now."""
    subjects = set(row.findings.values_list("subject", flat=True))
    names = [each.removeprefix("transaction:") for each in subjects if each.startswith("transaction:")]
    found = [*_aborted(row, names)]
    if row.closed_ms is None:
        places = [
            split_partition(each.removeprefix("partition:"))
            for each in subjects
            if each.startswith("partition:")
        ]
        found += [*_open(row, names), *_blocked(row, [place for place in places if place])]
        found += [*_audited(row, subjects)]
    return sorted(found[:_MOST])


def _aborted(row: Incident, names: Sequence[str]) -> Iterator[AffectedOffsets]:
    until_ms = None if row.closed_ms is None else row.closed_ms + _AFTER_MS
    keys = [key_of(text.unescape_text(name)) for name in names]
    for at in range(0, len(keys), _KEYS):
        rows = Recovery.objects.filter(
            cluster=row.cluster_id, key__in=keys[at : at + _KEYS], opened_ms__gte=row.opened_ms
        )
        for recovery in rows if until_ms is None else rows.filter(opened_ms__lte=until_ms):
            yield from _of_recovery(recovery)


def _of_recovery(row: Recovery) -> Iterator[AffectedOffsets]:
    for lost in recovery_queries.written_records(row):
        if lost.first is not None and lost.last is not None:
            yield AffectedOffsets(
                lost.topic, lost.partition, lost.first, lost.last, lost.records,
                "aborted", row.transactional_id, lost.sure, lost.note,
            )  # fmt: skip


def _open(row: Incident, names: Sequence[str]) -> Iterator[AffectedOffsets]:
    for at in range(0, len(names), _KEYS):
        pins = PinRecord.objects.filter(cluster=row.cluster_id, transactional_id__in=names[at : at + _KEYS])
        ends = _ends(row, {(pin.topic, pin.partition) for pin in pins})
        for pin in pins:
            end = ends.get((pin.topic, pin.partition))
            if end is not None and end > pin.start_offset:
                yield AffectedOffsets(
                    pin.topic, pin.partition, pin.start_offset, end - 1, None,
                    "open", pin.transactional_id, False, "others write between its records",
                )  # fmt: skip


def _blocked(row: Incident, places: Collection[tuple[str, int]]) -> Iterator[AffectedOffsets]:
    rows = PartitionRecord.objects.filter(cluster=row.cluster_id, topic__in={topic for topic, _ in places})
    for each in rows:
        if (each.topic, each.partition) not in places or each.lso is None or each.high_watermark is None:
            continue
        if each.high_watermark > each.lso:
            yield AffectedOffsets(
                each.topic, each.partition, each.lso, each.high_watermark - 1, None,
                "blocked", "", False, "markers count as offsets too",
            )  # fmt: skip


def _audited(row: Incident, subjects: Collection[str]) -> Iterator[AffectedOffsets]:
    for each in read_violations(row.cluster_id):
        ranges = ((each.losses, "missing"), (each.duplicates, "duplicated"))
        for some, effect in ranges if f"pipeline:{each.pipeline}" in subjects else ():
            for topic, number, first, end in some:
                yield AffectedOffsets(topic, number, first, end - 1, end - first, effect, "", True, "")


def _ends(row: Incident, places: Collection[tuple[str, int]]) -> dict[tuple[str, int], int | None]:
    rows = PartitionRecord.objects.filter(cluster=row.cluster_id, topic__in={topic for topic, _ in places})
    return {(each.topic, each.partition): each.high_watermark for each in rows}
