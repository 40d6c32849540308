"""Proves what is counted as the lag of a query: each partition once, and nothing that was deleted."""

import json

import pytest

from dashboard.models import PartitionRecord
from dashboard.streaming.lag import partition_readers, query_lag, query_sources
from tests.db import factories
from tests.db.conftest import NOW_MS
from tests.db.factories import batch, query


def at(*positions: int) -> list[list[str]]:
    """Return the offsets of several sources that read `orders-0`."""
    return [[str(n), json.dumps({"orders": {"0": position}})] for n, position in enumerate(positions)]


@pytest.mark.parametrize(
    ("number", "positions", "log_start", "lags"),
    [
        (1, (762,), 0, (50, 5_050)),
        (2, (762, 762, 762), 0, (50, 5_050)),
        (3, (800, 762, 812), 0, (50, 5_050)),
        (4, (762,), 802, (10, 5_050)),
        (5, (762,), 812, (0, 5_050)),
    ],
)
def test_lag(number: int, positions: tuple[int, ...], log_start: int, lags: tuple[int, int]) -> None:
    row = query()
    batch(row, 2, committed_ms=NOW_MS, offsets=at(*positions))
    factories.partition()
    PartitionRecord.objects.update(log_start=log_start)
    sources = query_sources([row])[row.pk]
    assert len(sources) == len(positions)
    found = query_lag(sources)
    assert (found.lag_lso, found.lag_hw, found.partitions) == (*lags, 1), f"case {number}"


def test_a_query_reads_a_partition_once_whatever_its_sources() -> None:
    row = query()
    batch(row, 2, committed_ms=NOW_MS, offsets=at(800, 762, 812))
    factories.partition()
    ((reader, part),) = partition_readers(PartitionRecord.objects.get(), most=5)
    assert (reader.pk, part.position) == (row.pk, 762)
