"""Counts rows by key with transformWithState: its operator's metadata is of another version than others'."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle


class Count(StatefulProcessor):
    """Keeps how many rows each key has had."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._seen = handle.getValueState("seen", "count LONG")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timer_values: Any) -> Iterator[Row]:
        before = self._seen.get()[0] if self._seen.exists() else 0
        count = before + sum(1 for _ in rows)
        self._seen.update((count,))
        yield Row(key=key[0], count=count)

    def close(self) -> None:
        """Nothing is open."""


def count_by_key(rows: DataFrame) -> DataFrame:
    """Return how many rows each of three keys has had so far."""
    keyed = rows.select((f.col("value") % 3).alias("key"))
    return keyed.groupBy("key").transformWithState(
        statefulProcessor=Count(),
        outputStructType="key LONG, count LONG",
        outputMode="Update",
        timeMode="None",
    )
