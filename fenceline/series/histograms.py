"""Mergeable histograms of durations: logarithmic buckets, eight to each doubling.

A histogram is a dict of bucket -> count. Histograms merge by adding; a quantile is off by at most a sixteenth
of its value. The layout is that of HdrHistogram and of Prometheus' native histograms: whole milliseconds up
to 16, then eight equal steps within each power of two.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

Histogram = dict[int, int]

_EXACT = 16
_STEPS = 8
#: Durations up to this are looked up; longer ones are computed.
_TABLE_MS = 4096


def _computed(ms: int) -> int:
    if ms < _EXACT:
        return max(0, ms)
    octave = ms.bit_length() - 4
    return octave * _STEPS + (ms >> octave)


_TABLE = tuple(_computed(ms) for ms in range(_TABLE_MS))


def bucket_of(ms: int) -> int:
    """Return the bucket of a duration in milliseconds; a negative one counts as 0."""
    return _TABLE[ms] if 0 <= ms < _TABLE_MS else _computed(ms)


def bucket_bounds(bucket: int) -> tuple[int, int]:
    """Return the shortest duration of a bucket, and the first duration past it, in milliseconds."""
    if bucket < _EXACT:
        return bucket, bucket + 1
    octave, step = divmod(bucket - _STEPS, _STEPS)
    return (step + _STEPS) << octave, (step + _STEPS + 1) << octave


def merge_histograms(histograms: Iterable[Histogram]) -> Histogram:
    """Return the sum of histograms, without buckets that become zero."""
    total: Histogram = {}
    for histogram in histograms:
        for bucket, count in histogram.items():
            total[bucket] = total.get(bucket, 0) + count
    return {bucket: count for bucket, count in sorted(total.items()) if count}


def quantile(histogram: Histogram, q: float) -> float | None:
    """Return the duration below which a share `q` (0..1) lies, in milliseconds; None without any count.

    Within a bucket, durations count as evenly spread.
    """
    wanted = q * sum(histogram.values())
    passed = 0
    for bucket, count in sorted(histogram.items()):
        if count and passed + count >= wanted:
            low, high = bucket_bounds(bucket)
            return float(low) if high - low == 1 else low + (high - low) * (wanted - passed) / count
        passed += count
    return None


def pack_histogram(histogram: Histogram) -> str:
    """Return a histogram as compact JSON text."""
    return json.dumps(histogram, separators=(",", ":"), sort_keys=True)


def unpack_histogram(text: str) -> Histogram:
    return {int(bucket): count for bucket, count in json.loads(text or "{}").items()}
