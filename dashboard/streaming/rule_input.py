"""The rules' input about streaming queries: rows of one cluster -> QueryStatus.

A tick reads each second: of a query that has not changed no more than that. What is kept between two reads is
derived from rows alone and can be lost at any time; how fast logs are cut is known from here on only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.db.models import BooleanField, F, Func

from dashboard.models import Batch, PartitionRecord, Query, Run, SinkDecision
from dashboard.streaming.batch_state import decision_of, open_for_ms, transaction_outcomes
from dashboard.streaming.registry import driver_of
from fenceline.decode.checkpoint import parse_positions as kafka_positions
from fenceline.facts import Severity, TopicPartition
from fenceline.formatting import format_clock
from fenceline.kafka.log_start_history import LogStarts
from fenceline.spark import queries
from fenceline.spark.queries import BatchPast, QueryStatus, SinkBatch, SourcePosition, Stall, UnusableFile
from fenceline.spark.records import (
    Damage,
    Decided,
    Decision,
    InputRange,
    Positions,
    QueryState,
    SinkTransaction,
)
from fenceline.spark.sink_fates import EndedTransaction, TransactionFate

#: Written out and not as parameters: SQLite takes an index of a part of a table only for the same text.
_IS_OPEN = Func(F("outcome"), template="(%(expressions)s = '')", output_field=BooleanField())
_IS_LOST = Func(F("outcome"), template="(%(expressions)s = 'lost')", output_field=BooleanField())
#: How many of a query's past batches the rules use, and how often they are read again.
_PAST_BATCHES, _PAST_MS = 200, 30_000
#: How many batches are searched for since when a position is unchanged.
_STOOD_BATCHES = 50
#: Two folders of one id both move when both were written to within so long.
_MOVES_MS = 600_000
_LONGEST_INPUT = 200
#: Columns that change without a new revision.
_MOVING = ("state", "heard_ms", "heartbeat_every_ms", "seen_ms")
#: Spark's errors when another driver has written the same file of a log.
_CONCURRENT = ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming jobs detected")
_PAST = (
    "batch_id", "run_id", "planned_ms", "committed_ms", "started_ms", "duration_ms", "input_rows",
    "next_watermark_ms", "offsets",
)  # fmt: skip


class _Stands(NamedTuple):
    position: int
    since_ms: int | None


@dataclass(slots=True)
class _Lately:
    """The figures of a query's last batches."""

    rev: int = -1
    at_ms: int = 0
    usual_ms: int | None = None
    stall: Stall | None = None
    writers: str = ""
    writers_ms: int | None = None


@dataclass(slots=True)
class _Known:
    """What is kept of one query: its row as of a revision, and what follows from it."""

    row: Query
    stands: Mapping[TopicPartition, _Stands] = field(default_factory=dict)
    lately: _Lately = field(default_factory=_Lately)


class Queries:
    """The streaming queries of one cluster."""

    def __init__(self, cluster_id: int) -> None:
        self._cluster_id = cluster_id
        self._known: dict[int, _Known] = {}
        self._log_starts = LogStarts()

    def read_statuses(self, *, now_ms: int) -> tuple[QueryStatus, ...]:
        """Return the current status of every query."""
        self._follow()
        for known in self._known.values():
            if known.lately.rev != known.row.rev and now_ms - known.lately.at_ms >= _PAST_MS:
                known.lately = _lately(known.row, now_ms)
        sink = self._sink_batches()
        dropped = self._dropped()
        sources = self._sources(now_ms)
        twins = self._twins(now_ms)
        return tuple(
            _status(known, sink.get(pk, ()), dropped.get(pk), sources.get(pk, ()), twins.get(pk), now_ms)
            for pk, known in sorted(self._known.items())
        )

    def _follow(self) -> None:
        """Read again what has changed; what listeners report of being alive is read each time."""
        rows = Query.objects.filter(cluster=self._cluster_id)
        seen = {pk: each for pk, *each in rows.values_list("pk", "rev", *_MOVING)}
        self._known = {pk: known for pk, known in self._known.items() if pk in seen}
        changed = [
            pk for pk, (rev, *_) in seen.items() if pk not in self._known or self._known[pk].row.rev != rev
        ]
        read = rows.in_bulk(changed)
        stood = self._stand(read.values())
        for pk, row in read.items():
            lately = self._known[pk].lately if pk in self._known else _Lately()
            self._known[pk] = _Known(row, stood[pk], lately)
        for pk, (_, *values) in seen.items():
            for name, value in zip(_MOVING, values, strict=True):
                setattr(self._known[pk].row, name, value)

    def _stand(self, rows: Collection[Query]) -> Mapping[int, Mapping[TopicPartition, _Stands]]:
        """Return the positions of queries, and since when they are there."""
        newest = _newest_positions(rows)
        found: dict[int, Mapping[TopicPartition, _Stands]] = {}
        for row in rows:
            positions, at_ms = newest[row.pk]
            before = self._known[row.pk].stands if row.pk in self._known else _stood(row, positions)
            found[row.pk] = {
                where: before[where]
                if where in before and before[where].position == position
                else _Stands(position, at_ms)
                for where, position in positions.items()
            }
        return found

    def _sink_batches(self) -> Mapping[int, Sequence[SinkBatch]]:
        """Return batches of sinks that are prepared, or lost, with what became of their transactions."""
        prepared = SinkDecision.objects.filter(_IS_OPEN, query__in=list(self._known))
        rows = [row for row in prepared if row.decided == Decided.PREPARED]
        rows += SinkDecision.objects.filter(_IS_LOST, query__in=list(self._known))
        decided = [(row, decision_of(row)) for row in rows]
        ended = transaction_outcomes(
            self._cluster_id,
            {each for row, decision in decided if not row.outcome for each in decision.transactions},
        )
        found: dict[int, list[SinkBatch]] = defaultdict(list)
        for row, decision in sorted(decided, key=lambda each: (each[0].batch_id, each[0].round)):
            open_ms = open_for_ms(self._known[row.query_id].row, row)
            found[row.query_id].append(
                _lost(row, decision) if row.outcome else _prepared(decision, ended, open_ms)
            )
        return found

    def _dropped(self) -> Mapping[int, tuple[int, int]]:
        rows = Run.objects.filter(query__in=list(self._known), run_id=F("query__run_id"), dropped__gt=0)
        return {pk: (n, heard_ms) for pk, n, heard_ms in rows.values_list("query_id", "dropped", "heard_ms")}

    def _sources(self, now_ms: int) -> Mapping[int, tuple[SourcePosition, ...]]:
        """Return the positions of queries in each partition, and the partition's offsets."""
        topics = {where.topic for known in self._known.values() for where in known.stands}
        rows = PartitionRecord.objects.filter(cluster=self._cluster_id, topic__in=topics)
        columns = rows.values_list("topic", "partition", "log_start", "high_watermark")
        ends = {
            TopicPartition(topic, number): (start, high) for topic, number, start, high in columns.iterator()
        }
        starts = {where: start for where, (start, _) in ends.items() if start is not None}
        self._log_starts.record_starts(starts, now_ms)
        pace = self._log_starts.deletion_rate
        return {
            pk: tuple(
                SourcePosition(*where, *each, *ends.get(where, (None, None)), pace(where))
                for where, each in sorted(known.stands.items())
            )
            for pk, known in self._known.items()
        }

    def _twins(self, now_ms: int) -> Mapping[int, str]:
        """Return the evidence that a query runs from two folders."""
        folders: dict[str, list[Query]] = defaultdict(list)
        for known in self._known.values():
            row = known.row
            moves = row.finished_ms is not None and now_ms - row.finished_ms <= _MOVES_MS
            if row.query_id and row.checkpoint and moves and not row.error:
                folders[row.query_id].append(row)
        return {
            row.pk: f"two folders hold the id {query_id}, and both move: "
            + " and ".join(sorted(each.checkpoint for each in rows))
            for query_id, rows in folders.items()
            if len(rows) > 1
            for row in rows
        }


def _status(
    known: _Known,
    sink: Sequence[SinkBatch],
    dropped: tuple[int, int] | None,
    positions: tuple[SourcePosition, ...],
    twin: str | None,
    now_ms: int,
) -> QueryStatus:
    row, lately, driver = known.row, known.lately, driver_of(known.row, now_ms)
    restart = row.detail.get("restart", {})
    times = (row.heard_ms, row.planned_ms, row.finished_ms, row.ended_ms)
    return QueryStatus(
        ident=row.ident,
        name=str(row),
        query_id=row.query_id,
        checkpoint=row.checkpoint,
        state=QueryState(row.state),
        alive=driver.alive,
        driver=driver,
        moved_ms=max((each for each in times if each is not None), default=None),
        ended_ms=row.ended_ms,
        exception=row.exception,
        planned=row.planned,
        finished=row.finished,
        planned_ms=row.planned_ms,
        restart=row.restart_words,
        restart_severity=Severity(restart["severity"]) if restart.get("severity") else None,
        remedy=restart.get("remedy", ""),
        sink_batches=tuple(sink),
        error=row.error,
        unusable=tuple(_unusable(row.detail)),
        positions=positions,
        usual_ms=lately.usual_ms,
        stall=lately.stall,
        writers=lately.writers or twin or "",
        writers_ms=lately.writers_ms,
        dropped=dropped[0] if dropped else 0,
        dropped_ms=dropped[1] if dropped else None,
    )


def _unusable(detail: Mapping[str, Any]) -> Iterator[UnusableFile]:
    for each in (*detail.get("broken", ()), *(detail.get("ledger") or {}).get("broken", ())):
        yield UnusableFile(each["path"], Damage(each["damage"]), each["detail"])


def _newest_positions(rows: Collection[Query]) -> Mapping[int, tuple[Positions, int | None]]:
    """Return the positions of queries by their last finished batch, and when that was finished."""
    found: dict[int, tuple[Positions, int | None]] = {row.pk: (_initial(row), None) for row in rows}
    logged = [row.pk for row in rows if row.finished is not None]
    for batch in Batch.objects.filter(query__in=logged, batch_id=F("query__finished")):
        found[batch.query_id] = _positions(batch.offsets), batch.committed_ms
    for row in rows:
        if row.planned is None:
            newest = Batch.objects.filter(query=row).exclude(started_ms=None).order_by("-batch_id").first()
            if newest is not None:
                found[row.pk] = _reported_positions(newest), _ended_ms(newest)
    return found


def _initial(row: Query) -> Positions:
    """Return where a query began, as far as its first batch is not finished."""
    return {
        TopicPartition(topic, int(number)): offset
        for topics in row.detail.get("initial", {}).values()
        for topic, each in topics.items()
        for number, offset in each.items()
        if offset >= 0
    }


def _positions(offsets: Iterable[Sequence[Any]]) -> Positions:
    """Return Kafka's positions of all sources; of a partition that two of them read, the one behind."""
    found: dict[TopicPartition, int] = {}
    for _, raw in offsets:
        for where, offset in (kafka_positions(raw) or {}).items():
            if offset >= 0:
                found[where] = min(offset, found.get(where, offset))
    return found


def _reported_positions(batch: Batch) -> Positions:
    """Return the positions that a listener has reported: only Kafka's sources have any."""
    return _positions([each.get("description"), each.get("end")] for each in batch.sources)


def _ended_ms(batch: Batch) -> int | None:
    return None if batch.started_ms is None else batch.started_ms + (batch.duration_ms or 0)


def _stood(row: Query, positions: Positions) -> Mapping[TopicPartition, _Stands]:
    """Search back for since when a query is at its positions, batch by batch."""
    batches = Batch.objects.filter(query=row).exclude(committed_ms=None).exclude(offsets=[])
    found: dict[TopicPartition, _Stands] = {}
    left = dict(positions)
    if row.finished is not None:
        batches = batches.filter(batch_id__lte=row.finished)
    for batch in batches.order_by("-batch_id")[:_STOOD_BATCHES]:
        there = _positions(batch.offsets)
        left = {where: offset for where, offset in left.items() if there.get(where) == offset}
        if not left:
            break
        found |= {where: _Stands(offset, batch.committed_ms) for where, offset in left.items()}
    return found


def _lately(row: Query, now_ms: int) -> _Lately:
    past = _past(row)
    writers, writers_ms = _writers(row, past)
    return _Lately(
        row.rev, now_ms, queries.usual_ms(past), queries.watermark_stall(past), writers, writers_ms
    )


def _past(row: Query) -> Sequence[BatchPast]:
    """Return a query's last batches, oldest first."""
    rows = Batch.objects.filter(query=row)
    if row.planned is not None:
        rows = rows.filter(batch_id__lte=row.planned)
    found: list[BatchPast] = []
    before: Any = None
    for each in reversed(rows.order_by("-batch_id").values(*_PAST)[:_PAST_BATCHES]):
        found.append(_batch_past(each, before))
        before = each["offsets"] or before
    return found


def _batch_past(each: Mapping[str, Any], before: Any) -> BatchPast:
    ended_ms = None if each["started_ms"] is None else each["started_ms"] + (each["duration_ms"] or 0)
    finished_ms = each["committed_ms"] or ended_ms
    took_ms = each["duration_ms"]
    if took_ms is None and each["committed_ms"] and each["planned_ms"]:
        took_ms = max(0, each["committed_ms"] - each["planned_ms"])
    rows = each["input_rows"]
    had_input = rows > 0 if rows is not None else before is not None and each["offsets"] != before
    return BatchPast(
        each["batch_id"], each["run_id"], finished_ms, took_ms, had_input, each["next_watermark_ms"]
    )


def _writers(row: Query, past: Sequence[BatchPast]) -> tuple[str, int | None]:
    """Return the evidence of two drivers, and since when."""
    if runs := queries.interleaved_runs(past):
        return f"runs {runs[0]} and {runs[1]} report its batches in turn", None
    newest = Run.objects.filter(query=row).order_by("-heard_ms").first()
    if newest is not None and any(word in newest.exception for word in _CONCURRENT):
        return "Spark has found that another driver had written the same batch", newest.ended_ms
    decided = SinkDecision.objects.filter(query=row, by="driver").order_by("-batch_id", "-round")
    if late := queries.late_generation(
        reversed(decided.values_list("generation", "decided_ms")[:_PAST_BATCHES])
    ):
        older, newer, at_ms = late
        return (
            f"generation {older} of its sink has decided at {format_clock(at_ms)}, after {newer} had",
            at_ms,
        )
    return "", None


def _prepared(
    decision: Decision, ended: Mapping[SinkTransaction, EndedTransaction], open_ms: int | None
) -> SinkBatch:
    by_fate: dict[TransactionFate, list[str]] = defaultdict(list)
    records: dict[TransactionFate, int] = defaultdict(int)
    for each in decision.transactions:
        by_fate[ended[each].fate].append(each.transactional_id)
        records[ended[each].fate] += each.records
    whole = sum(records.values())
    return SinkBatch(
        decision.batch_id,
        decision.at_ms,
        min((each.expires_ms for each in decision.transactions), default=None),
        whole,
        open=tuple(by_fate[TransactionFate.OPEN]),
        committed=(*by_fate[TransactionFate.COMMITTED], *by_fate[TransactionFate.COMMITTING]),
        aborted=tuple(by_fate[TransactionFate.ABORTED]),
        unknown=tuple(by_fate[TransactionFate.UNKNOWN]),
        input=_read(decision.input),
        open_for_ms=open_ms,
        uncommitted_records=whole - records[TransactionFate.COMMITTED] - records[TransactionFate.COMMITTING],
    )


def _lost(row: SinkDecision, decision: Decision) -> SinkBatch:
    gone = set(row.lost)
    records = sum(each.records for each in decision.transactions if each.transactional_id in gone)
    at_ms = row.done_ms or row.decided_ms
    return SinkBatch(
        row.batch_id,
        at_ms,
        None,
        records,
        aborted=tuple(row.lost),
        input=_read(decision.input),
        recorded=True,
    )


def _read(ranges: Iterable[InputRange]) -> str:
    text = "; ".join(
        f"source {each.source}: from {each.start or 'its start'} to {each.end or '-'}" for each in ranges
    )
    return text if len(text) <= _LONGEST_INPUT else text[: _LONGEST_INPUT - 1] + "…"
