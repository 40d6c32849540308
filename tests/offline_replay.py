"""What the database must hold, by an offline replay: one fold of every record that the topic ever had.

Knows `fenceline` alone and nothing of how collectors cut the stream into saves, nor of how rows are written.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from hashlib import sha256
from itertools import product
from typing import Any, Protocol

from fenceline.decode.transaction_state import decode_record
from fenceline.facts import RawRecord, Tombstone, TransactionRecord, TransitionKind, Undecoded
from fenceline.kafka.fold import transition_ring
from fenceline.kafka.fold.aggregate import fold_records
from fenceline.kafka.fold.folded import Folded, Newest, NotableTransition
from fenceline.series import histograms
from tests.kafka import topic_records

_MINUTE_S, _HOUR_S = 60, 3600
#: Beside those of each application there are tallies of all of them together.
_EVERY = ""
_TRANSACTIONS = (
    "SELECT key, transactional_id, application, state, producer_id, producer_epoch, timeout_ms, started_ms, "
    "updated_ms, partitions, partition_count, client_version, log_partition, log_offset "
    "FROM dashboard_transaction"
)
_RECENTS = (
    "SELECT key, recent, NULL FROM dashboard_transaction "
    "UNION ALL SELECT key, packed, expired_ms FROM dashboard_recent "
    "WHERE (cluster_id, key) NOT IN (SELECT cluster_id, key FROM dashboard_transaction)"
)
_TRANSITIONS = (
    "SELECT log_partition, log_offset, key, transactional_id, application, kind, confidence, reason, at_ms, "
    "producer_id, producer_epoch, previous_epoch, timeout_ms, open_ms, completed_ms, gap_ms, revised_from, "
    "revised_ms IS NOT NULL FROM dashboard_transitionrecord"
)
# The sum for ever takes nothing back: what it comes to depends on where the records were cut.
_TALLIES = (
    "SELECT span_s, start_ms, application, counts, open_times, marker_times FROM dashboard_tally "
    "WHERE span_s > 0"
)
_STATES = "SELECT state, n FROM dashboard_statecount"
_POSITIONS = "SELECT partition, next_offset FROM dashboard_position WHERE topic = '__transaction_state'"

Row = tuple[Any, ...]
Counts = tuple[dict[str, int], histograms.Histogram, histograms.Histogram]


class Cursor(Protocol):
    """A DB-API cursor: sqlite3's own, or Django's."""

    def execute(self, statement: str, /) -> object:
        """Run a statement."""

    def fetchall(self) -> list[Any]:
        """Return its rows."""


@dataclass
class ExpectedRows:
    """All that is kept of a cluster's transactions, in plain values that compare."""

    #: By the id's key: everything else of its row but the revision.
    transactions: dict[bytes, Row] = field(default_factory=dict)
    #: By the id's key: when it expired, and its last transitions.
    recents: dict[bytes, Row] = field(default_factory=dict)
    #: By partition and offset. A second row of a record would be a second key: `doubled` counts those.
    transitions: dict[tuple[int, int], Row] = field(default_factory=dict)
    doubled: int = 0
    #: By span in seconds, start and application; shards are added up.
    tallies: dict[tuple[int, int, str], Counts] = field(default_factory=dict)
    states: dict[str, int] = field(default_factory=dict)


def replay_records(records: Iterable[topic_records.RawRecord]) -> ExpectedRows:
    """Return what must be kept of these records; what lies before the first of a partition is a hole."""
    folded = Folded()
    for partition, keys, holes in _by_partition(records):
        fold_records(folded, partition, keys, {}, holes)
    kept = ExpectedRows(states={state.value: n for state, n in folded.states.items() if n})
    for log_key, newest in folded.newest.items():
        key = sha256(log_key[4:]).digest()
        kept.recents[key] = newest.expired_ms, *transition_ring.unpack_ring(newest.packed, 0)
        if newest.record is not None:
            kept.transactions[key] = _transaction(newest, newest.record)
    kept.transitions = {where: _transition(told) for where, told in folded.notable.items()}
    kept.tallies = _tallies(folded)
    return kept


def stored_rows(cursor: Cursor) -> ExpectedRows:
    """Return what a database keeps; it must know one cluster alone."""
    kept = ExpectedRows()
    for key, *row in _rows(cursor, _TRANSACTIONS):
        kept.transactions[bytes(key)] = tuple(row)
    for key, packed, expired_ms in _rows(cursor, _RECENTS):
        kept.recents[bytes(key)] = expired_ms, *transition_ring.unpack_ring(bytes(packed), 0)
    for partition, offset, key, *row, revised in _rows(cursor, _TRANSITIONS):
        kept.doubled += (partition, offset) in kept.transitions
        kept.transitions[partition, offset] = bytes(key), *row, bool(revised)
    parts: defaultdict[tuple[int, int, str], list[Row]] = defaultdict(list)
    for *where, counts, opened, marked in _rows(cursor, _TALLIES):
        unpacked = (
            json.loads(counts),
            histograms.unpack_histogram(opened),
            histograms.unpack_histogram(marked),
        )
        parts[tuple(where)].append(unpacked)
    kept.tallies = _summed(parts)
    states: Counter[str] = Counter()
    for state, n in _rows(cursor, _STATES):
        states[state] += n
    kept.states = {state: n for state, n in states.items() if n}
    return kept


def decoded_rows(record: topic_records.RawRecord) -> TransactionRecord | Tombstone | Undecoded:
    """Return what a record says."""
    return decode_record(record.key, record.value)


def positions(cursor: Cursor) -> dict[int, int]:
    """Return the next offset of every partition that was read."""
    return dict(_rows(cursor, _POSITIONS))


def ends(records: Iterable[topic_records.RawRecord]) -> dict[int, int]:
    """Return the offset after the last record of each partition that has one."""
    last: dict[int, int] = {}
    for record in records:
        last[record.partition] = max(record.offset + 1, last.get(record.partition, 0))
    return last


def differences(expected: ExpectedRows, found: ExpectedRows) -> list[str]:
    """Return in words where two differ, at most a few of each table."""
    said = [f"{found.doubled} transitions are there twice"] if found.doubled else []
    for each in fields(ExpectedRows):
        if each.name != "doubled":
            said += _different(each.name, getattr(expected, each.name), getattr(found, each.name))
    return said


def _different(name: str, expected: Mapping[Any, object], found: Mapping[Any, object]) -> list[str]:
    keys = sorted(key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key))
    lines = [
        f"{name} {key!r}:\n  must be {expected.get(key)}\n  is      {found.get(key)}" for key in keys[:3]
    ]
    return [f"{name}: {len(keys)} of {len(expected)} differ", *lines] if keys else []


def _rows(cursor: Cursor, statement: str) -> list[Any]:
    cursor.execute(statement)
    return cursor.fetchall()


def _by_partition(
    records: Iterable[topic_records.RawRecord],
) -> Iterator[tuple[int, dict[bytes, list[RawRecord]], list[int]]]:
    """Yield partition, its records by key, and the first offset after each hole."""
    parted: defaultdict[int, list[topic_records.RawRecord]] = defaultdict(list)
    for record in records:
        parted[record.partition].append(record)
    for partition, found in sorted(parted.items()):
        keys: defaultdict[bytes, list[RawRecord]] = defaultdict(list)
        holes, following = [], 0
        for each in sorted(found, key=lambda record: record.offset):
            if each.offset != following:
                holes.append(each.offset)
            following = each.offset + 1
            at_ms = each.timestamp_ms if each.value is None else None
            keys[each.key or b""].append(RawRecord(each.value, each.offset, at_ms))
        yield partition, keys, holes


def _transaction(newest: Newest, record: TransactionRecord) -> Row:
    lists = [[topic, list(numbers)] for topic, numbers in record.partitions or ()]
    return (
        newest.transactional_id,
        newest.application,
        record.state.value,
        record.producer_id,
        record.producer_epoch,
        record.timeout_ms,
        record.started_ms,
        record.updated_ms,
        json.dumps(lists, separators=(",", ":")) if lists else "",
        sum(len(numbers) for _, numbers in lists),
        record.client_version,
        newest.partition,
        newest.offset,
    )


def _transition(told: NotableTransition) -> Row:
    it = told.transition
    who = sha256(told.key[4:]).digest(), told.transactional_id, told.application
    what = it.kind.value, it.confidence.value, it.reason.value
    producer = it.producer_id, it.producer_epoch, it.previous_epoch, it.timeout_ms
    took = it.open_ms, it.completed_ms, it.gap_ms
    return (*who, *what, it.at_ms, *producer, *took, told.revised_from, bool(told.revised_from))


def _tallies(folded: Folded) -> dict[tuple[int, int, str], Counts]:
    parts: defaultdict[tuple[int, int, str], list[Row]] = defaultdict(list)
    for (application, minute_ms), tally in folded.tallies.items():
        counts = {kind.value: n for kind, n in tally.counts.items() if kind is not TransitionKind.BASELINE}
        for span_s, name in product((_MINUTE_S, _HOUR_S), (application, _EVERY)):
            where = span_s, minute_ms - minute_ms % (span_s * 1000), name
            parts[where].append((counts, tally.open_times, tally.marker_times))
    return _summed(parts)


def _summed(parts: Mapping[tuple[int, int, str], list[Row]]) -> dict[tuple[int, int, str], Counts]:
    """Add parts up; what comes to nothing is left out."""
    total: dict[tuple[int, int, str], Counts] = {}
    for where, some in parts.items():
        counts: Counter[str] = Counter()
        for each, _, _ in some:
            counts.update(each)
        summed = (
            {kind: n for kind, n in counts.items() if n},
            histograms.merge_histograms(opened for _, opened, _ in some),
            histograms.merge_histograms(marked for _, _, marked in some),
        )
        if any(summed):
            total[where] = summed
    return total
