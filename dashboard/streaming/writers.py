"""Find evidence that two drivers write to one query: in its batches, in its sink, or in two folders."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from dashboard.models import Batch, Query, Run, SinkDecision
from fenceline.formatting import format_clock
from fenceline.grouping import grouped
from fenceline.spark import queries
from fenceline.spark.queries import BatchPast

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
