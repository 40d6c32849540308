"""Decode a listener's progress event, Spark's own JSON, to `fenceline.spark.records.BatchProgress`.

Spark writes the document in `StreamingQueryProgress.json`. It omits figures without a value (rates that are
NaN or infinite, event times without a watermark), and each version adds keys. So every readable value is
taken; an unreadable value becomes `None` or is omitted, and is counted by reason. Nothing here raises. Only
an event without its query, run and batch is unusable.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

from fenceline.compat import UTC
from fenceline.spark.records import BatchProgress, OperatorProgress, SourceProgress

#: The largest integer of a database.
_LARGEST = 2**63 - 1
#: Limits far above anything Spark writes; further items are dropped.
_MOST_SOURCES, _MOST_OPERATORS, _MOST_FIGURES = 1_000, 500, 500
_LONGEST_TEXT, _LONGEST_OFFSETS = 4_000, 2_000_000
#: The name of the observation that counts the rows dropped by a query's filters.
OBSERVATION = "fenceline"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Read(NamedTuple):
    """A decoded event: its progress, or why it has none; and the number of unreadable values by reason."""

    progress: BatchProgress | None
    why: str
    strange: Mapping[str, int]


class UnusableEvent(ValueError):
    """An event cannot be attributed; the message names the error."""


def decode_progress(document: object, *, received_ms: int) -> Read:
    """Read a progress event, parsed by `json.loads`.

    `received_ms` is when the listener received it, by the driver's clock: it replaces a missing start.
    """
    reader = _DocumentReader()
    try:
        return Read(reader.read_batch(document, received_ms), "", dict(reader.strange))
    except UnusableEvent as error:
        return Read(None, str(error), dict(reader.strange))


def event_identity(document: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return query id, run id and name ("" without one) of any event; raises `UnusableEvent`."""
    return _uuid(document, "id"), _uuid(document, "runId"), clean_text(document.get("name"))


def clean_text(value: object, longest: int = _LONGEST_TEXT) -> str:
    """Make text storable in every database, without NUL and lone surrogates; "" if it is no text."""
    if not isinstance(value, str):
        return ""
    text = value if len(value) <= longest else f"{value[: longest - 1]}…"
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def parse_instant(value: object) -> int | None:
    """Return milliseconds since the epoch from ISO 8601 in Spark's form; None for any other value."""
    if not isinstance(value, str):
        return None
    try:
        # Python 3.10 does not parse Z.
        at = datetime.fromisoformat(f"{value[:-1]}+00:00" if value.endswith("Z") else value)
        since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH
    except (ValueError, OverflowError):
        return None
    return (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000


def _uuid(document: Mapping[str, Any], key: str) -> str:
    value = document.get(key)
    try:
        return str(UUID(value))
    except (TypeError, ValueError, AttributeError):
        raise UnusableEvent(f"{key} is no UUID" if key in document else f"{key} is missing") from None


class _DocumentReader:
    """Reads one document and counts its unreadable values."""

    def __init__(self) -> None:
        self.strange: Counter[str] = Counter()

    def read_batch(self, document: object, received_ms: int) -> BatchProgress:
        if not isinstance(document, Mapping):
            raise UnusableEvent("the progress is no JSON object")
        query_id, run_id, name = event_identity(document)
        batch_id = self.read_integer(document, "batchId")
        if batch_id is None or batch_id < 0:
            raise UnusableEvent("batchId is no batch's number")
        durations = self.read_figures(document, "durationMs")
        duration_ms = self.read_integer(document, "batchDuration")
        if duration_ms is None:
            duration_ms = durations.get("triggerExecution", 0)
        times, sink = self.read_mapping(document, "eventTime"), self.read_mapping(document, "sink")
        sources = tuple(
            self.read_source(source) for source in self.read_items(document, "sources", _MOST_SOURCES)
        )
        input_rows = self.read_row_count(document, "numInputRows")
        started_ms = self.read_instant(document, "timestamp")
        return BatchProgress(
            query_id=query_id,
            run_id=run_id,
            name=name,
            batch_id=batch_id,
            started_ms=_bounded(received_ms - duration_ms) if started_ms is None else started_ms,
            duration_ms=duration_ms,
            input_rows=_total(sources) if input_rows is None else input_rows,
            input_rate=self.read_rate(document, "inputRowsPerSecond"),
            processed_rate=self.read_rate(document, "processedRowsPerSecond"),
            durations=durations,
            watermark_ms=self.read_instant(times, "watermark"),
            sources=sources,
            operators=tuple(
                self.read_operator(operator)
                for operator in self.read_items(document, "stateOperators", _MOST_OPERATORS)
            ),
            sink=self.read_text(sink, "description"),
            output_rows=self.read_row_count(sink, "numOutputRows"),
            observed_dropped=self.read_observed_drops(document),
        )

    def read_source(self, document: Mapping[str, Any]) -> SourceProgress:
        metrics = self.read_mapping(document, "metrics")
        return SourceProgress(
            description=self.read_text(document, "description"),
            start=self.read_offsets(document, "startOffset"),
            end=self.read_offsets(document, "endOffset"),
            latest=self.read_offsets(document, "latestOffset"),
            input_rows=self.read_row_count(document, "numInputRows"),
            input_rate=self.read_rate(document, "inputRowsPerSecond"),
            processed_rate=self.read_rate(document, "processedRowsPerSecond"),
            metrics={clean_text(key): self.read_text(metrics, key) for key in islice(metrics, _MOST_FIGURES)},
        )

    def read_operator(self, document: Mapping[str, Any]) -> OperatorProgress:
        return OperatorProgress(
            name=self.read_text(document, "operatorName"),
            rows_total=self.read_row_count(document, "numRowsTotal"),
            rows_updated=self.read_row_count(document, "numRowsUpdated"),
            rows_removed=self.read_row_count(document, "numRowsRemoved"),
            memory_bytes=self.read_integer(document, "memoryUsedBytes") or 0,
            rows_dropped_by_watermark=self.read_row_count(document, "numRowsDroppedByWatermark"),
            commit_ms=self.read_integer(document, "commitTimeMs") or 0,
            custom=self.read_figures(document, "customMetrics"),
        )

    def read_observed_drops(self, document: Mapping[str, Any]) -> int | None:
        """Return `dropped` of the observation `fenceline` (`DataFrame.observe`); None without it."""
        observed = self.read_mapping(self.read_mapping(document, "observedMetrics"), OBSERVATION)
        return self.read_row_count(observed, "dropped")

    def read_row_count(self, document: Mapping[str, Any], key: str) -> int | None:
        """Return a number of rows; None if Spark writes -1 or nothing, because it does not count them."""
        rows = self.read_integer(document, key)
        return None if rows is None or rows < 0 else rows

    def read_integer(self, document: Mapping[str, Any], key: str) -> int | None:
        value = document.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.count_unreadable(f"{key}: not a whole number")
        elif abs(value) > _LARGEST:
            self.count_unreadable(f"{key}: out of range")
        else:
            return value
        return None

    def read_rate(self, document: Mapping[str, Any], key: str) -> float | None:
        value = document.get(key)
        # JSON has no such numbers, so some writers spell them as text.
        if value is None or value in ("NaN", "Infinity", "-Infinity"):
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.count_unreadable(f"{key}: not a number")
            return None
        try:
            return float(value) if math.isfinite(value) else None
        except OverflowError:
            self.count_unreadable(f"{key}: out of range")
            return None

    def read_instant(self, document: Mapping[str, Any], key: str) -> int | None:
        value = document.get(key)
        at = parse_instant(value)
        if at is None and value is not None:
            self.count_unreadable(f"{key}: not a time")
        return at

    def read_text(self, document: Mapping[str, Any], key: str) -> str:
        value = document.get(key)
        if value is not None and not isinstance(value, str):
            # The key may be any text: a reason contains only Spark's own keys.
            self.count_unreadable("text: not a string")
        return clean_text(value)

    def read_offsets(self, document: Mapping[str, Any], key: str) -> str | None:
        """Return an offset as JSON text, in the form of the offset log."""
        value = document.get(key)
        if value is None:
            return None
        try:
            # A source that does not write JSON writes a string.
            text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        except (ValueError, RecursionError):
            self.count_unreadable(f"{key}: not readable")
            return None
        if len(text) > _LONGEST_OFFSETS:
            self.count_unreadable(f"{key}: too large")
            return None
        return clean_text(text, len(text))

    def read_figures(self, document: Mapping[str, Any], key: str) -> dict[str, int]:
        """Return whole numbers by name; other values are counted under `key`."""
        numbers: dict[str, int] = {}
        for name, value in islice(self.read_mapping(document, key).items(), _MOST_FIGURES):
            if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST:
                numbers[clean_text(name)] = value
            else:
                self.count_unreadable(f"{key}: not a whole number")
        return numbers

    def read_mapping(self, document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        value = document.get(key)
        if isinstance(value, Mapping):
            return value
        if value is not None:
            self.count_unreadable(f"{key}: not an object")
        return {}

    def read_items(self, document: Mapping[str, Any], key: str, most: int) -> list[Mapping[str, Any]]:
        value = document.get(key)
        if not isinstance(value, list):
            if value is not None:
                self.count_unreadable(f"{key}: not a list")
            return []
        items = [item for item in value[:most] if isinstance(item, Mapping)]
        if len(items) < len(value):
            self.strange[f"{key}: not readable"] += len(value) - len(items)
        return items

    def count_unreadable(self, reason: str) -> None:
        """Count an unreadable value."""
        self.strange[reason] += 1


def _total(sources: Iterable[SourceProgress]) -> int | None:
    """Return the total rows of all sources; None without sources, or if a source does not count its rows."""
    rows = [source.input_rows for source in sources]
    counted = [number for number in rows if number is not None]
    return _bounded(sum(counted)) if rows and len(counted) == len(rows) else None


def _bounded(value: int) -> int:
    return max(-_LARGEST, min(value, _LARGEST))
