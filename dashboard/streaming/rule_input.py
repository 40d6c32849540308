"""Read the rules' input about the streaming queries of one cluster, as `QueryStatus`.

A tick reads every second, and reads only the revisions of unchanged queries. The data kept between two reads
is derived from rows and may be lost at any time; deletion rates of logs then start anew.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from django.db.models import BooleanField, F, Func

from dashboard.models import Batch, PartitionRecord, Query, Run, SinkDecision
from dashboard.runtime.sql import read_rows
from dashboard.streaming.batch_state import decision_of, open_for_ms, transaction_outcomes
from dashboard.streaming.positions import (
    ReadUpTo,
    absent_partitions,
    missing_outputs,
    newest_positions,
    unchanged_since,
)
from dashboard.streaming.registry import driver_of
from fenceline.decode.typed import record_of
from fenceline.facts import Severity, TopicPartition
from fenceline.formatting import format_clock
from fenceline.grouping import grouped
from fenceline.kafka.offset_histories import LogStarts
from fenceline.spark import queries
from fenceline.spark.queries import BatchPast, QueryStatus, SinkBatch, SourcePosition
from fenceline.spark.records import (
    Broken,
    Damage,
    Decided,
    Decision,
    InputRange,
    SinkTransaction,
)
from fenceline.spark.sink_fates import EndedTransaction, TransactionFate

#: Two folders of one id both advance if polls found newer batches in both within this time.
_MOVES_MS = 600_000
#: Maximum decisions of a sink that are compared, newest first.
_DECISIONS = 200
#: Spark's errors if another driver has written the same file of a log.
_CONCURRENT = ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming jobs detected")


def twin_folders(rows: Iterable[Query], now_ms: int) -> Mapping[int, str]:
    """Return the evidence that a query runs from two folders, by the query's key."""
    folders = grouped((row.query_id, row) for row in rows if _moves(row, now_ms))
    return {
        row.pk: f"two folders hold the id {query_id}, and both move: "
        + " and ".join(sorted(moved.checkpoint for moved in pair))
        for query_id, moving in folders.items()
        for pair in combinations(moving, 2)
        if not _is_mirror(*pair)
        for row in pair
    }


def concurrent_drivers(row: Query, past: Sequence[BatchPast]) -> tuple[str, int | None]:
    """Return the evidence that two drivers run a query, and its time; "" without evidence."""
    if runs := queries.interleaved_runs(past):
        return f"runs {runs[0]} and {runs[1]} report its batches in turn", None
    newest = Run.objects.filter(query=row).order_by("-heard_ms").first()
    if newest is not None and any(word in newest.exception for word in _CONCURRENT):
        return "Spark has found that another driver had written the same batch", newest.ended_ms
    decided = SinkDecision.objects.filter(query=row, by="driver").order_by("-batch_id", "-round")
    if late := queries.late_generation(
        reversed(decided.values_list("generation", "decided_ms")[:_DECISIONS])
    ):
        older, newer, at_ms = late
        return (
            f"generation {older} of its sink has decided at {format_clock(at_ms)}, after {newer} had",
            at_ms,
        )
    return "", None


def _moves(row: Query, now_ms: int) -> bool:
    advanced_ms = row.advanced_ms if row.query_id and row.checkpoint and not row.error else None
    return advanced_ms is not None and now_ms - advanced_ms <= _MOVES_MS


def _is_mirror(one: Query, other: Query) -> bool:
    """Whether both folders planned their newest common batch at the same instant, so that one is a copy."""
    newest = min(one.planned or 0, other.planned or 0)
    rows = Batch.objects.filter(query__in=(one, other), batch_id=newest).exclude(planned_ms=None)
    times = list(rows.values_list("planned_ms", flat=True))
    return len(times) == 2 and times[0] == times[1]


#: Literals, not parameters: SQLite uses a partial index only for the same text.
_IS_OPEN = Func(F("outcome"), template="(%(expressions)s = '')", output_field=BooleanField())
_IS_LOST = Func(F("outcome"), template="(%(expressions)s = 'lost')", output_field=BooleanField())
#: Past batches of a query for the rules, and the interval of reading them again.
_PAST_BATCHES, _PAST_MS = 200, 30_000
_LONGEST_INPUT = 200
#: Columns that change without a new revision.
_MOVING = ("state", "heard_ms", "heartbeat_every_ms", "seen_ms")
_PAST = (
    "run_id", "planned_ms", "committed_ms", "started_ms", "duration_ms", "input_rows",
    "next_watermark_ms", "offsets",
)  # fmt: skip


@dataclass(slots=True)
class _Known:
    """A query's row as of a revision, and the data derived from it."""

    row: Query
    stands: Mapping[TopicPartition, ReadUpTo] = field(default_factory=dict)
    #: Fields of `QueryStatus` from its last batches, with the revision and the time of their read.
    lately: Mapping[str, Any] = field(default_factory=dict)
    lately_rev: int = -1
    lately_ms: int = 0


class Queries:
    """The streaming queries of one cluster."""

    def __init__(self, cluster_id: int) -> None:
        self._cluster_id = cluster_id
        self._known: dict[int, _Known] = {}
        self._log_starts = LogStarts()

    def read_statuses(self, *, now_ms: int) -> tuple[QueryStatus, ...]:
        """Return the current status of every query."""
        self._follow()
        if not self._known:
            return ()
        for known in self._known.values():
            if known.lately_rev != known.row.rev and now_ms - known.lately_ms >= _PAST_MS:
                known.lately = _lately(known.row)
                known.lately_rev, known.lately_ms = known.row.rev, now_ms
        sink = self._sink_batches()
        sources = self._sources(now_ms)
        outputs = missing_outputs(self._cluster_id, [known.row for known in self._known.values()])
        twins = twin_folders([known.row for known in self._known.values()], now_ms)
        return tuple(
            _status(
                known,
                sink.get(pk, ()),
                sources.get(pk, ()),
                tuple(outputs.get(pk, ())),
                twins.get(pk),
                now_ms,
            )
            for pk, known in sorted(self._known.items())
        )

    def _follow(self) -> None:
        """Read changed rows again; columns that change without a revision are read each time."""
        rows = read_rows(Query, ("id", "rev", *_MOVING), cluster_id=self._cluster_id)
        columns_by_pk = {pk: columns for pk, *columns in rows}
        self._known = {pk: known for pk, known in self._known.items() if pk in columns_by_pk}
        changed = [
            pk
            for pk, (rev, *_) in columns_by_pk.items()
            if pk not in self._known or self._known[pk].row.rev != rev
        ]
        read = Query.objects.in_bulk(changed)
        stood = self._stand(list(read.values()))
        for pk, row in read.items():
            known = self._known.setdefault(pk, _Known(row))
            known.row, known.stands = row, stood[pk]
        for pk, (_, *values) in columns_by_pk.items():
            for name, value in zip(_MOVING, values, strict=True):
                setattr(self._known[pk].row, name, value)

    def _stand(self, rows: Sequence[Query]) -> Mapping[int, Mapping[TopicPartition, ReadUpTo]]:
        """Return the positions of queries, with the times since which they are there."""
        stood: dict[int, Mapping[TopicPartition, ReadUpTo]] = {}
        newest = newest_positions(rows)
        for row in rows:
            positions = {where: reached.position for where, reached in newest[row.pk].items()}
            before = self._known[row.pk].stands if row.pk in self._known else unchanged_since(row, positions)
            same = {where: at for where, at in before.items() if positions.get(where) == at.position}
            stood[row.pk] = {**newest[row.pk], **same}
        return stood

    def _sink_batches(self) -> Mapping[int, Sequence[SinkBatch]]:
        """Return prepared and lost batches of sinks, with the outcomes of their transactions."""
        prepared = SinkDecision.objects.filter(_IS_OPEN, query__in=list(self._known))
        rows = [row for row in prepared if row.decided == Decided.PREPARED]
        rows += SinkDecision.objects.filter(_IS_LOST, query__in=list(self._known))
        decided = [(row, decision_of(row)) for row in rows]
        ended = transaction_outcomes(
            self._cluster_id,
            {
                transaction
                for row, decision in decided
                if not row.outcome
                for transaction in decision.transactions
            },
        )
        batches: dict[int, list[SinkBatch]] = defaultdict(list)
        for row, decision in sorted(decided, key=lambda pair: (pair[0].batch_id, pair[0].round)):
            open_ms = open_for_ms(self._known[row.query_id].row, row)
            batches[row.query_id].append(
                _lost(row, decision) if row.outcome else _prepared(decision, ended, open_ms)
            )
        return batches

    def _sources(self, now_ms: int) -> Mapping[int, tuple[SourcePosition, ...]]:
        topics = {where.topic for known in self._known.values() for where in known.stands}
        rows = PartitionRecord.objects.filter(cluster=self._cluster_id, topic__in=topics)
        columns = rows.values_list("topic", "partition", "log_start", "high_watermark")
        ends = {
            TopicPartition(topic, number): (start, high) for topic, number, start, high in columns.iterator()
        }
        starts = {where: start for where, (start, _) in ends.items() if start is not None}
        self._log_starts.record_starts(starts, now_ms)
        pace = self._log_starts.deletion_rate
        stands = [(known.row, known.stands) for known in self._known.values()]
        absences = absent_partitions(self._cluster_id, stands, ends.keys())
        return {
            pk: tuple(
                SourcePosition(
                    *where, *reached, *ends.get(where, (None, None)), pace(where), absences.get(where)
                )
                for where, reached in sorted(known.stands.items())
            )
            for pk, known in self._known.items()
        }


def _status(
    known: _Known,
    sink: Sequence[SinkBatch],
    positions: tuple[SourcePosition, ...],
    outputs: tuple[str, ...],
    twin: str | None,
    now_ms: int,
) -> QueryStatus:
    row, driver = known.row, driver_of(known.row, now_ms)
    restart = row.detail.get("restart", {})
    times = (row.heard_ms, row.planned_ms, row.advanced_ms, row.ended_ms)
    return record_of(
        QueryStatus,
        row,
        name=str(row),
        alive=driver.alive,
        driver=driver,
        moved_ms=max((at_ms for at_ms in times if at_ms is not None), default=None),
        restart=row.restart_words,
        restart_severity=Severity(restart["severity"]) if restart.get("severity") else None,
        remedy=restart.get("remedy", ""),
        sink_batches=tuple(sink),
        replaced=bool(row.detail.get("gone")) and not row.checkpoint,
        unusable=tuple(_unusable(row.detail)),
        positions=positions,
        missing_outputs=outputs,
        **{**known.lately, "writers": known.lately["writers"] or twin or ""},
    )


def _unusable(detail: Mapping[str, Any]) -> Iterator[Broken]:
    for file in (*detail.get("broken", ()), *(detail.get("ledger") or {}).get("broken", ())):
        yield Broken(file["path"], Damage(file["damage"]), file["detail"])


def _lately(row: Query) -> Mapping[str, Any]:
    past = _past(row)
    writers, writers_ms = concurrent_drivers(row, past)
    return {
        "usual_ms": queries.usual_ms(past),
        "stall": queries.watermark_stall(past),
        "writers": writers,
        "writers_ms": writers_ms,
    }


def _past(row: Query) -> Sequence[BatchPast]:
    """Return a query's last batches, oldest first."""
    rows = Batch.objects.filter(query=row)
    if row.planned is not None:
        rows = rows.filter(batch_id__lte=row.planned)
    batches: list[BatchPast] = []
    before: Any = None
    newest_first = list(rows.order_by("-batch_id").values(*_PAST)[:_PAST_BATCHES])
    for values in reversed(newest_first):
        batches.append(_batch_past(values, before, is_newest=values is newest_first[0]))
        before = values["offsets"] or before
    return batches


def _batch_past(values: Mapping[str, Any], before: Any, *, is_newest: bool) -> BatchPast:
    """Return a batch; the newest one's commit time is not used, because copying a checkpoint changes it."""
    ended_ms = None if values["started_ms"] is None else values["started_ms"] + (values["duration_ms"] or 0)
    finished_ms = values["committed_ms"] or ended_ms
    took_ms = values["duration_ms"]
    if took_ms is None and values["committed_ms"] and values["planned_ms"] and not is_newest:
        took_ms = max(0, values["committed_ms"] - values["planned_ms"])
    rows = values["input_rows"]
    had_input = rows > 0 if rows is not None else before is not None and values["offsets"] != before
    return BatchPast(values["run_id"], finished_ms, took_ms, had_input, values["next_watermark_ms"])


def _prepared(
    decision: Decision, ended: Mapping[SinkTransaction, EndedTransaction], open_ms: int | None
) -> SinkBatch:
    by_fate: dict[TransactionFate, list[str]] = defaultdict(list)
    records: dict[TransactionFate, int] = defaultdict(int)
    for transaction in decision.transactions:
        by_fate[ended[transaction].fate].append(transaction.transactional_id)
        records[ended[transaction].fate] += transaction.records
    whole = sum(records.values())
    return SinkBatch(
        decision.batch_id,
        decision.at_ms,
        min((transaction.expires_ms for transaction in decision.transactions), default=None),
        whole,
        open=tuple(by_fate[TransactionFate.OPEN]),
        aborted=tuple(by_fate[TransactionFate.ABORTED]),
        unknown=tuple(by_fate[TransactionFate.UNKNOWN]),
        input=_read(decision.input),
        open_for_ms=open_ms,
        uncommitted_records=whole - records[TransactionFate.COMMITTED] - records[TransactionFate.COMMITTING],
    )


def _lost(row: SinkDecision, decision: Decision) -> SinkBatch:
    gone = set(row.lost)
    records = sum(
        transaction.records for transaction in decision.transactions if transaction.transactional_id in gone
    )
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
        f"source {ranged.source}: from {ranged.start or 'its start'} to {ranged.end or '-'}"
        for ranged in ranges
    )
    return text if len(text) <= _LONGEST_INPUT else text[: _LONGEST_INPUT - 1] + "…"
