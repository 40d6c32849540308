"""Decoding and folding 400,000 records of 40,000 ids, in columns beside one by one: thread CPU, no broker.

Each batch has one record, as coordinators write them; then the records have the tags of Kafka 4.3 and of the
next release.
"""

import gc
import time
from collections.abc import Callable
from statistics import median

from benchmarks.seeding import Seeds
from collectors.kafka.compression import decompress
from fenceline.decode.log_parts import LogPart, read_parts, whole_batches
from fenceline.decode.record_table import RecordTable
from fenceline.facts import RawRecord
from fenceline.grouping import grouped
from fenceline.kafka.fold.aggregate import fold_records
from fenceline.kafka.fold.columnar import fold_table
from fenceline.kafka.fold.folded import Folded
from tests.raw_batches import raw_batch

RECORDS, IDS, ROUNDS = 400_000, 40_000, 5
#: Partitions in one poll.
_AT_ONCE = 13
_Log = dict[int, list[tuple[bytes, RawRecord]]]


def run() -> dict[str, object]:
    """Measure both ways, on records of Kafka 4.2 and of 4.3."""
    plain = _log(lambda value: value)
    parts, tagged = _parts(plain), [_parts(_log(change)) for change in (_with_tag_0, _with_tags_0_and_4)]
    # Workers run Python's cycle search rarely; here one search through all logs would distort one of the
    # runs.
    gc.disable()
    reads, folds = [], []
    newer: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        read, fold = _columns(parts)
        reads.append(read)
        folds.append(fold)
        for times, more in zip(newer, tagged, strict=True):
            times.append(sum(_columns(more)))
    single = median(_singly(plain) for _ in range(ROUNDS))
    read, fold = median(reads), median(folds)
    ratios = [round(median(times) / (read + fold), 2) for times in newer]
    return {
        "batches to sorted columns, us a record": round(read, 2),
        "decode and fold in columns, us a record (<= 1.5)": round(fold, 2),
        "decode and fold one by one, us a record": round(single, 2),
        "columns / one by one": round(fold / single, 2),
        "Kafka 4.3 / 4.2, read and folded (<= 1.1)": ratios[0],
        "Kafka's trunk / 4.2, read and folded (<= 1.1)": ratios[1],
    }


def _log(change: Callable[[bytes], bytes]) -> _Log:
    seeds, log = Seeds(IDS), _Log()
    began_ms = time.time_ns() // 1_000_000 - RECORDS // 40
    for number in range(RECORDS // 4):
        for partition, key, value in seeds.transaction_records(began_ms + number // 10):
            records = log.setdefault(partition, [])
            records.append((key, RawRecord(change(value), len(records))))
    return log


def _with_tag_0(value: bytes) -> bytes:
    """Add the previous producer id."""
    return value[:-1] + b"\x01\x00\x08" + value[2:10]


def _with_tags_0_and_4(value: bytes) -> bytes:
    """Add the last epoch too."""
    return value[:-1] + b"\x02\x00\x08" + value[2:10] + b"\x04\x02" + value[10:12]


def _parts(log: _Log) -> list[LogPart]:
    datas = {number: b"".join(raw_batch([record]) for record in records) for number, records in log.items()}
    return [LogPart(number, 0, data, ()) for number, data in datas.items()]


def _columns(parts: list[LogPart]) -> tuple[float, float]:
    """Return the microseconds per record of reading, and of decoding and folding."""
    folded, read_s, fold_s = Folded(), 0.0, 0.0
    for at in range(0, len(parts), _AT_ONCE):
        began = time.thread_time()
        some = [part._replace(places=whole_batches(part.data)) for part in parts[at : at + _AT_ONCE]]
        columns, _, bad = read_parts(some, decompress)
        table = RecordTable.sort(columns, bad)
        half = time.thread_time()
        fold_table(folded, table, {}, {})
        read_s, fold_s = read_s + half - began, fold_s + time.thread_time() - half
    return read_s / RECORDS * 1e6, fold_s / RECORDS * 1e6


def _singly(log: _Log) -> float:
    partitions = [(number, grouped(records)) for number, records in log.items()]
    folded, began = Folded(), time.thread_time()
    for number, keys in partitions:
        fold_records(folded, number, keys, {}, ())
    return (time.thread_time() - began) / RECORDS * 1e6
