"""What the history job must find: an offline replay of the same records, one at a time.

Uses `fenceline.kafka.transitions` and the decoder alone: neither the aggregation that the job's tasks run,
nor how its entries are packed, nor how the stream is cut.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from fenceline.decode.transaction_state import decode_key, decode_record
from fenceline.facts import ABORTS, Tombstone, Transition, TransitionKind, Undecoded
from fenceline.kafka.applications import application_of
from fenceline.kafka.transitions import IdHistory, derive_transition, next_history
from fenceline.series.histograms import Histogram, bucket_of
from tests.kafka.topic_records import RawRecord

#: By partition and offset: the id, its application, what happened.
Replay = dict[tuple[int, int], tuple[str, str, Transition]]
_DAY_MS = 86_400_000


def replay(records: Iterable[RawRecord]) -> tuple[Replay, Counter[str]]:
    """Return every transition as it reads at the end, and what could not be decoded, by reason."""
    parts: defaultdict[int, list[RawRecord]] = defaultdict(list)
    for record in records:
        parts[record.partition].append(record)
    found: Replay = {}
    undecoded: Counter[str] = Counter()
    for partition, some in parts.items():
        _replay(partition, sorted(some, key=lambda each: each.offset), found, undecoded)
    return found, undecoded


def _replay(partition: int, records: list[RawRecord], found: Replay, undecoded: Counter[str]) -> None:
    lives: dict[bytes, IdHistory] = {}
    seen: dict[bytes, int] = {}
    following, hole, whole = 0, -1, True
    for each in records:
        key = each.key or b""
        if each.offset != following:
            hole, whole = each.offset, False
        following = each.offset + 1
        record: Any = decode_record(each.key, each.value)
        if isinstance(record, Undecoded):
            undecoded[record.reason] += 1
            if key in lives and lives[key].record is not None:
                lives[key] = IdHistory()
            continue
        if isinstance(record, Tombstone):
            record = record._replace(at_ms=each.timestamp_ms)
        if seen.get(key, -1) < hole:
            lives[key] = IdHistory()
        seen[key] = each.offset
        life = lives.get(key, IdHistory())
        step = derive_transition(life, record, partition, each.offset, whole=whole)
        name = decode_key(each.key)
        assert isinstance(name, str)
        for told in step.revised, step.made:
            if told is not None:
                found[told.partition, told.offset] = name, application_of(name).application, told
        lives[key] = next_history(life, record, step)


def sums(found: Replay, *, by_id: bool) -> dict[tuple[str, ...], Mapping[str, object]]:
    """Return the expected sums of each day and application, and id."""
    counts: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    epochs: Counter[tuple[str, ...]] = Counter()
    opened: defaultdict[tuple[str, ...], Histogram] = defaultdict(dict)
    marked: defaultdict[tuple[str, ...], Histogram] = defaultdict(dict)
    for name, application, told in found.values():
        if told.kind is TransitionKind.BASELINE:
            continue
        where = (str(told.at_ms // _DAY_MS), application, *((name,) if by_id else ()))
        counts[where][str(told.counted_kind)] += 1
        if told.previous_epoch is not None:
            epochs[where] += max(0, told.producer_epoch - told.previous_epoch)
        if told.kind is TransitionKind.COMMIT and told.open_ms is not None:
            if told.open_ms >= 0:
                _add(opened[where], told.open_ms)
            if told.completed_ms is not None:
                _add(marked[where], told.completed_ms - told.at_ms)
    return {
        where: {
            "commits": each[TransitionKind.COMMIT],
            "aborts": sum(each[kind] for kind in ABORTS),
            "epochs": epochs[where],
            "counts": dict(each),
            "open_times": opened[where],
            "marker_times": marked[where],
        }
        for where, each in counts.items()
    }


def _add(histogram: Histogram, ms: int) -> None:
    bucket = bucket_of(ms)
    histogram[bucket] = histogram.get(bucket, 0) + 1
