"""Saves what listeners report of queries: their runs, their states, and the batches they finished.

There is no lease: posts come as web requests, any number at once, and may come again or late. So each save
first locks its cluster's row, and what is known already changes nothing. An event is known by its run and
batch. Of two runs of a query the one that was first reported later is the newer one, by our clock: an event's
time is the driver's, and the post contains how far that clock is from ours.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import NamedTuple

from django.db import connection

from dashboard.models import Batch, Cluster, Query, Run
from dashboard.runtime.sql import overwrite_changes, upsert_statement
from dashboard.runtime.write_transactions import cluster_transaction, retry_write
from dashboard.streaming.registry import find_or_add
from fenceline.decode.ingest_payload import EventKind, ListenerEvent, Post
from fenceline.facts import Isolation
from fenceline.spark.records import BatchProgress, QueryState, SourceProgress

#: The progress columns of a batch's row, as values of a statement.
Columns = tuple[int | float | str | None, ...]

_BATCH_KEY = ("query_id", "batch_id")
_TOLD = (
    "run_id", "started_ms", "duration_ms", "input_rows", "output_rows", "input_rate", "processed_rate",
    "durations", "sources", "operators",
)  # fmt: skip
#: These come from its checkpoint, once that is read.
_PLANNED = ("watermark_ms", "offsets")
_UPSERT_BATCH = upsert_statement(
    Batch._meta.db_table,
    (*_BATCH_KEY, *_PLANNED, *_TOLD, "rev"),
    _BATCH_KEY,
    overwrite_changes((*_TOLD, "rev")),
)
_SOURCE = tuple(each.name for each in fields(SourceProgress))
_RUN = [
    "name", "started_ms", "ended_ms", "first_heard_ms", "heard_ms", "exception", "batch_id", "spooled",
    "dropped", "spool_age_ms", "spark_version",
]  # fmt: skip
_NAMED = (
    "name", "state", "run_id", "asynchronous", "isolation", "started_ms", "ended_ms", "exception", "sink",
)  # fmt: skip
#: The heartbeat of a run is saved this often: it changes no page.
_HEARTBEAT_EVERY_MS = 1_000
#: How Spark describes the sinks that it brings for Kafka.
_KAFKA_SINK = "kafka010"


class Saved(NamedTuple):
    """How many events were news, and how many were known before."""

    accepted: int = 0
    duplicates: int = 0


class UnassignedPost(Exception):
    """A post cannot be assigned to a cluster; the message is the reason and the list of clusters."""


def save_progress(post: Post, *, now_ms: int) -> Saved:
    """Save a post, each cluster's part in one short database transaction.

    Raises `UnassignedPost` for a part without a known cluster; the other parts are saved then.
    """
    names = dict(Cluster.objects.filter(configured=True).values_list("pk", "name"))
    placed = _places(post, names)
    parts = []
    for cluster_id in sorted({at for at in placed.values() if at is not None}):
        events = [each for each in post.events if placed[each.query_id] == cluster_id]
        alive = {run: query for query, run in post.report.alive if placed[query] == cluster_id}
        parts.append(_save_part(cluster_id, names[cluster_id], post, events, alive, now_ms))
    if None in placed.values():
        raise UnassignedPost(f"{_why(post)}: there are {', '.join(sorted(names.values())) or 'none'}.")
    return Saved(sum(each.accepted for each in parts), sum(each.duplicates for each in parts))


@retry_write
def _save_part(
    cluster_id: int,
    cluster: str,
    post: Post,
    events: Sequence[ListenerEvent],
    alive: Mapping[str, str],
    now_ms: int,
) -> Saved:
    return _Part(cluster_id, cluster, post, now_ms).save_part(events, alive)


def _places(post: Post, names: Mapping[int, str]) -> dict[str, int | None]:
    """Return the cluster of each query in a post; None where that is unknown."""
    queries = {each.query_id for each in post.events} | {query for query, _ in post.report.alive}
    if post.cluster or len(names) == 1:
        at = next((pk for pk, name in names.items() if post.cluster in ("", name)), None)
        return dict.fromkeys(queries, at)
    known: dict[str, set[int]] = defaultdict(set)
    rows = Query.objects.filter(query_id__in=queries, cluster_id__in=names)
    for query_id, cluster_id in rows.values_list("query_id", "cluster_id"):
        known[query_id].add(cluster_id)
    return {query: known[query].pop() if len(known[query]) == 1 else None for query in queries}


def _why(post: Post) -> str:
    if post.cluster:
        return (
            f"No cluster is configured as {post.cluster!r}; give the listener cluster= with one of its names"
        )
    return "Several clusters are configured, so give the listener cluster= with one of their names"


class _Part:
    """A post's part about one cluster's queries, and their rows; in one database transaction."""

    def __init__(self, cluster_id: int, cluster: str, post: Post, now_ms: int) -> None:
        self._cluster_id, self._cluster = cluster_id, cluster
        self._report, self._now_ms = post.report, now_ms
        # The driver's clock is so much behind ours; the time that the post took counts as clock.
        self._behind_ms = 0 if post.sent_ms is None else now_ms - post.sent_ms
        #: By query id; by query and run id; by query and number of the batch.
        self._queries: dict[str, Query] = {}
        self._runs: dict[tuple[int, str], Run] = {}
        self._reported_by: dict[tuple[int, int], str] = {}
        self._batches: dict[tuple[int, int], Columns] = {}
        #: Runs to be written, queries that have changed, and the last event of each run.
        self._touched: set[tuple[int, str]] = set()
        self._news: set[int] = set()
        self._last: dict[tuple[int, str], ListenerEvent | None] = {}
        #: Ids of the queries that run in the driver that posts: its interval is theirs.
        self._beating: set[str] = set()

    def save_part(self, events: Sequence[ListenerEvent], alive: Mapping[str, str]) -> Saved:
        """Save it, and ring once where there was news; what is known already changes nothing."""
        # Whatever needs no lock is done before.
        columns = [_columns(each.progress) if each.progress else () for each in events]
        # Who saves at the same time waits here, and then sees what we have saved.
        with cluster_transaction(self._cluster, self._cluster_id) as write:
            rev = write.rev_if_news
            self._look_up(events, alive, rev)
            accepted = sum(map(self._take, events, columns))
            self._beating = set(alive.values())
            for run_id, query_id in alive.items():
                self._is_alive(self._queries[query_id], run_id)
            rows = [row for row in self._queries.values() if self._bring_up(row)]
            self._write(rows, rev)
            if self._news:
                names = sorted(row.ident for row in self._queries.values() if row.pk in self._news)
                write.notify_after_commit("queries", names)
        return Saved(accepted, len(events) - accepted)

    def _look_up(self, events: Sequence[ListenerEvent], alive: Mapping[str, str], rev: int) -> None:
        """Read, or make, the rows of everything in the post."""
        names = dict.fromkeys(sorted(alive.values()), "")
        names |= {each.query_id: each.name for each in events if each.name or each.query_id not in names}
        known: dict[str, list[Query]] = defaultdict(list)
        for row in Query.objects.filter(cluster_id=self._cluster_id, query_id__in=names):
            known[row.query_id].append(row)
        for query_id in sorted(names):
            one = known[query_id][0] if len(known[query_id]) == 1 else None
            self._queries[query_id] = one or find_or_add(self._cluster_id, query_id, names[query_id], rev=rev)
        numbers = {each.progress.batch_id for each in events if each.progress}
        rows = Batch.objects.filter(query__in=self._queries.values(), batch_id__in=numbers)
        for query, number, run_id in rows.exclude(run_id="").values_list("query_id", "batch_id", "run_id"):
            self._reported_by[query, number] = run_id
        wanted = {each.run_id for each in events} | {*alive, *self._reported_by.values()}
        wanted |= {row.run_id for row in self._queries.values()}
        for run in Run.objects.filter(query__in=self._queries.values(), run_id__in=wanted):
            self._runs[run.query_id, run.run_id] = run

    def _take(self, event: ListenerEvent, columns: Columns) -> bool:
        """Take an event over; return whether it was news."""
        query = self._queries[event.query_id]
        heard_ms = min(self._now_ms, event.at_ms + self._behind_ms)
        run = self._run(query, event.run_id, heard_ms)
        if news := self._is_news(query, run, event, heard_ms, columns):
            run.first_heard_ms = min(run.first_heard_ms, heard_ms)
            run.heard_ms = max(run.heard_ms, heard_ms)
        self._last[query.pk, event.run_id] = event
        return news

    def _run(self, query: Query, run_id: str, heard_ms: int) -> Run:
        """Return a run, with its listener's current status; a new one is first reported now."""
        key = query.pk, run_id
        run = self._runs.get(key)
        if run is None:
            run = Run(query=query, run_id=run_id, first_heard_ms=heard_ms, heard_ms=heard_ms - 1)
            self._runs[key] = run
            self._news.add(query.pk)
        if key not in self._touched:
            self._touched.add(key)
            if run.dropped != self._report.dropped:
                self._news.add(query.pk)
            run.spooled, run.dropped = self._report.spooled, self._report.dropped
            run.spool_age_ms, run.spark_version = self._report.oldest_age_ms, self._report.spark
        return run

    def _is_news(self, query: Query, run: Run, event: ListenerEvent, heard_ms: int, columns: Columns) -> bool:
        if event.progress is not None:
            return self._take_batch(query, run, event.progress, columns)
        if event.kind is EventKind.IDLE:
            # It has nothing of its own to be known by.
            return heard_ms > run.heard_ms
        if event.kind is EventKind.STARTED and run.started_ms is None:
            run.started_ms = event.at_ms if event.since_ms is None else event.since_ms
            run.name = event.name
        elif event.kind is EventKind.TERMINATED and run.ended_ms is None:
            run.ended_ms, run.exception = event.at_ms, event.exception
        else:
            return False
        self._news.add(query.pk)
        return True

    def _take_batch(self, query: Query, run: Run, progress: BatchProgress, columns: Columns) -> bool:
        key = query.pk, progress.batch_id
        reporter = self._runs.get((query.pk, self._reported_by.get(key, "")))
        if reporter is not None and (reporter is run or reporter.first_heard_ms > run.first_heard_ms):
            return False
        self._reported_by[key] = run.run_id
        self._batches[key] = columns
        run.batch_id = max(progress.batch_id, -1 if run.batch_id is None else run.batch_id)
        run.name = run.name or progress.name
        self._news.add(query.pk)
        return True

    def _is_alive(self, query: Query, run_id: str) -> None:
        """Record a driver's heartbeat for a run."""
        run = self._run(query, run_id, self._now_ms)
        if run.ended_ms is None:
            self._last.setdefault((query.pk, run_id), None)
            if self._now_ms >= run.heard_ms + _HEARTBEAT_EVERY_MS:
                run.heard_ms = self._now_ms

    def _bring_up(self, row: Query) -> bool:
        """Copy the state of its newest run to a query; return whether that changes its row."""
        reported = [key for key in self._last if key[0] == row.pk]
        current = self._runs.get((row.pk, row.run_id))
        key = max(reported, key=lambda each: self._runs[each].first_heard_ms, default=None)
        if key is None or (
            current is not None and self._runs[key].first_heard_ms < current.first_heard_ms
        ):  # fmt: skip
            return row.pk in self._news
        run, event = self._runs[key], self._last[key]
        before = [getattr(row, name) for name in _NAMED]
        heard_ms, row.heard_ms = row.heard_ms, max(run.heard_ms, row.heard_ms or 0)
        if row.run_id != run.run_id:
            row.asynchronous, row.isolation = None, ""
        row.run_id, row.name = run.run_id, run.name or row.name
        row.started_ms, row.ended_ms, row.exception = run.started_ms, run.ended_ms, run.exception
        row.state = _state(run, event, row.state).value
        if row.query_id in self._beating:
            row.heartbeat_every_ms = self._report.heartbeat_every_ms
        if event is not None and event.asynchronous is not None:
            row.asynchronous = event.asynchronous
        if event is not None and event.isolation is not Isolation.UNKNOWN:
            row.isolation = event.isolation.value
        if not row.sink and event is not None and event.progress is not None:
            row.sink = "kafka" if _KAFKA_SINK in event.progress.sink else "other"
        if before != [getattr(row, name) for name in _NAMED]:
            self._news.add(row.pk)
        return row.pk in self._news or row.heard_ms != heard_ms

    def _write(self, rows: Iterable[Query], rev: int) -> None:
        """Write what has changed, in the order of its keys."""
        for row in sorted(rows, key=lambda row: row.pk):
            row.rev = rev if row.pk in self._news else row.rev
            row.save(update_fields=[*_NAMED, "heard_ms", "heartbeat_every_ms", "rev"])
        runs = [self._runs[key] for key in sorted(self._touched)]
        Run.objects.bulk_create(
            runs, update_conflicts=True, unique_fields=["query", "run_id"], update_fields=_RUN
        )
        batches = [(*key, *self._batches[key], rev) for key in sorted(self._batches)]
        if batches:
            with connection.cursor() as cursor:
                cursor.executemany(_UPSERT_BATCH, batches)


def _state(run: Run, event: ListenerEvent | None, before: str) -> QueryState:
    """Return the state of a run by its last event; without one it is as before."""
    if run.ended_ms is not None:
        return QueryState.FAILED if run.exception else QueryState.STOPPED
    if event is None:
        return QueryState.IDLE if before == QueryState.IDLE else QueryState.RUNNING
    return QueryState.IDLE if event.kind is EventKind.IDLE else QueryState.RUNNING


def _columns(progress: BatchProgress) -> Columns:
    """Return the progress columns of a batch's row, in the order of the statement."""
    sources = [{name: getattr(each, name) for name in _SOURCE} for each in progress.sources]
    return (
        progress.watermark_ms,
        "[]",
        progress.run_id,
        progress.started_ms,
        progress.duration_ms,
        progress.input_rows,
        progress.output_rows,
        progress.input_rate,
        progress.processed_rate,
        json.dumps(progress.durations),
        json.dumps(sources),
        json.dumps([each._asdict() for each in progress.operators]),
    )
