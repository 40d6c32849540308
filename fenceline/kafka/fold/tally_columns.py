"""Count everyday steps by application, from columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fenceline.compat import zip_equal
from fenceline.decode.columns import Ints, distinct
from fenceline.decode.transaction_columns import TransactionColumns
from fenceline.kafka.fold import counting
from fenceline.kafka.fold.aggregate import MINUTE_MS, tally_at
from fenceline.kafka.fold.everyday import BASELINE, BUMPED, COMMIT, DONE, KINDS, EverydaySteps
from fenceline.kafka.fold.folded import Folded
from fenceline.series.histograms import Histogram, bucket_of

#: The buckets of short durations, by their milliseconds.
_BUCKETS = np.array([bucket_of(ms) for ms in range(4096)])


def bucket_column(ms: Ints) -> Ints:
    """Return `histograms.bucket_of` of many durations at once."""
    octaves = np.maximum(np.frexp(np.maximum(ms, 1).astype(np.float64))[1] - 4, 0)
    long = octaves * 8 + (np.maximum(ms, 0) >> octaves)
    return np.where(ms < len(_BUCKETS), _BUCKETS[np.clip(ms, 0, len(_BUCKETS) - 1)], long)


def count_steps(
    folded: Folded,
    fields: TransactionColumns,
    steps: EverydaySteps,
    application: Ints,
    applications: Sequence[str],
) -> None:
    """Count the everyday steps of a table; `application` is each row's index in `applications`."""
    minute, step = fields.updated_ms // MINUTE_MS, steps.step

    def tally(row: tuple[int, ...]) -> counting.MinuteTally:
        return tally_at(folded, applications[row[0]], row[1] * MINUTE_MS)

    made = np.flatnonzero((step > BASELINE) & (step != DONE))
    for row, n in _grouped(application[made], minute[made], step[made]):
        tally(row).count_transition(KINDS[row[2]], n)
    commits = np.flatnonzero((step == COMMIT) | (step == BUMPED))
    for row, n in _grouped(application[commits], minute[commits], bucket_column(steps.span_ms[commits])):
        _add(tally(row).open_times, row[2], n)
    # The row before a completion is its commit.
    done = np.flatnonzero(step == DONE)
    for row, n in _grouped(application[done], minute[done - 1], bucket_column(steps.span_ms[done])):
        _add(tally(row).marker_times, row[2], n)
    _count_links(folded, fields, steps, application, applications, done)


def _count_links(
    folded: Folded,
    fields: TransactionColumns,
    steps: EverydaySteps,
    application: Ints,
    applications: Sequence[str],
    done: Ints,
) -> None:
    """Count commits by written partitions, which the record before the completion names."""
    written = [row for row, partitions in fields.partitions.items() if partitions]
    done = done[np.isin(fields.section[done - 1], written)]
    section, at_ms = fields.section[done - 1], fields.updated_ms[done]
    first, which = distinct(application[done], at_ms // counting.LINK_SPAN_MS, section)
    last_ms = at_ms[first]
    np.maximum.at(last_ms, which, at_ms)
    rows = (application[done][first], last_ms, section[first], np.bincount(which, minlength=len(first)))
    tallies = []
    for name, last, row, n in zip_equal(*(column.tolist() for column in rows)):
        partitions = fields.partitions[row] or ()
        tallies.append(counting.link_tally_at(folded.links, applications[name], last, partitions))
        tallies[-1].commits += n
    times = bucket_column(steps.span_ms[done] + steps.span_ms[done - 1])
    for (number, bucket), n in _grouped(which, times):
        _add(tallies[number].unreadable_times, bucket, n)


def _grouped(*columns: Ints) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield each distinct row, and its count."""
    first, which = distinct(*columns)
    counts = np.bincount(which, minlength=len(first)).tolist()
    rows = zip_equal(*(column[first].tolist() for column in columns))
    return zip_equal(rows, counts)


def _add(histogram: Histogram, bucket: int, n: int) -> None:
    histogram[bucket] = histogram.get(bucket, 0) + n
