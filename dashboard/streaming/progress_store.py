"""Save the listeners' reports about queries: their runs, states and finished batches.

There is no lease: posts are web requests, which may be concurrent, repeated or late. So every save first
locks its cluster's row, and a known event changes nothing. Its run and batch identify an event. Of a query's
two runs the one first reported later, by our clock, is newer: an event's time is by the driver's clock, and
the post contains the difference to ours.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dashboard.models import Batch, Cluster, Query, Run
from dashboard.runtime.sql import write_rows
from dashboard.runtime.write_transactions import cluster_transaction, retry_write
from dashboard.streaming.registry import find_or_add
from fenceline.decode.ingest_payload import EventKind, ListenerEvent, Post
from fenceline.decode.typed import fields_of
from fenceline.facts import Isolation
from fenceline.grouping import grouped
from fenceline.spark.records import BatchProgress, QueryState

#: The progress columns of a batch's row.
Columns = Mapping[str, Any]

_TOLD = (
    "watermark_ms", "run_id", "started_ms", "duration_ms", "input_rows", "output_rows", "input_rate",
    "processed_rate", "durations",
)  # fmt: skip
_RUN = (
    "query_id", "run_id", "name", "started_ms", "ended_ms", "first_heard_ms", "heard_ms", "exception",
    "batch_id", "spooled", "dropped", "spool_age_ms", "spark_version",
)  # fmt: skip
_NAMED = (
    "name", "state", "run_id", "asynchronous", "isolation", "started_ms", "ended_ms", "exception", "sink",
)  # fmt: skip
#: Milliseconds between two saves of a run's heartbeat, which changes no page.
_HEARTBEAT_EVERY_MS = 1_000
#: Part of Spark's name for its Kafka sinks.
_KAFKA_SINK = "kafka010"


class UnassignedPost(Exception):
    """A post cannot be assigned to a cluster; the message has the reason and the list of clusters."""


def save_progress(post: Post, *, now_ms: int) -> tuple[int, int]:
    """Save a post, each cluster's part in one short database transaction.

    Return the numbers of new and of known events. Raises `UnassignedPost` for a part without a known cluster,
    after saving the other parts.
    """
    names = dict(Cluster.objects.filter(configured=True).values_list("pk", "name"))
    placed = _places(post, names)
    parts = []
    for cluster_id in sorted({at for at in placed.values() if at is not None}):
        events = [event for event in post.events if placed[event.query_id] == cluster_id]
        alive = {run: query for query, run in post.report.alive if placed[query] == cluster_id}
        parts.append(_save_part(cluster_id, names[cluster_id], post, events, alive, now_ms))
    if None in placed.values():
        why = "Several clusters are configured, so give the listener cluster= with one of their names"
        if post.cluster:
            why = f"No cluster is configured as {post.cluster!r}; "
            why += "give the listener cluster= with one of its names"
        raise UnassignedPost(f"{why}: there are {', '.join(sorted(names.values())) or 'none'}.")
    return sum(accepted for accepted, _ in parts), sum(duplicates for _, duplicates in parts)


@retry_write
def _save_part(
    cluster_id: int,
    cluster: str,
    post: Post,
    events: Sequence[ListenerEvent],
    alive: Mapping[str, str],
    now_ms: int,
) -> tuple[int, int]:
    return _Part(cluster_id, cluster, post, now_ms).save_part(events, alive)


def _places(post: Post, names: Mapping[int, str]) -> dict[str, int | None]:
    """Return the cluster of each query in a post; None if unknown."""
    queries = {event.query_id for event in post.events} | {query for query, _ in post.report.alive}
    if post.cluster or len(names) == 1:
        at = next((pk for pk, name in names.items() if post.cluster in ("", name)), None)
        return dict.fromkeys(queries, at)
    known: dict[str, set[int]] = defaultdict(set)
    rows = Query.objects.filter(query_id__in=queries, cluster_id__in=names)
    for query_id, cluster_id in rows.values_list("query_id", "cluster_id"):
        known[query_id].add(cluster_id)
    return {query: known[query].pop() if len(known[query]) == 1 else None for query in queries}


class _Part:
    """A post's part about one cluster's queries; it is saved in one database transaction."""

    def __init__(self, cluster_id: int, cluster: str, post: Post, now_ms: int) -> None:
        self._cluster_id, self._cluster = cluster_id, cluster
        self._report, self._now_ms = post.report, now_ms
        # The driver's clock is behind ours by this, including the time that the post took.
        self._behind_ms = 0 if post.sent_ms is None else now_ms - post.sent_ms
        #: Rows by query id; by query and run id; by query and batch number.
        self._queries: dict[str, Query] = {}
        self._runs: dict[tuple[int, str], Run] = {}
        self._reported_by: dict[tuple[int, int], str] = {}
        self._batches: dict[tuple[int, int], Columns] = {}
        #: Runs to write, changed queries, and the last event of each run.
        self._touched: set[tuple[int, str]] = set()
        self._news: set[int] = set()
        self._last: dict[tuple[int, str], ListenerEvent | None] = {}
        #: Ids of the queries in the posting driver, whose heartbeat interval applies to them.
        self._beating: set[str] = set()

    def save_part(self, events: Sequence[ListenerEvent], alive: Mapping[str, str]) -> tuple[int, int]:
        """Save the part, and notify pages once if there were new events; known events change nothing."""
        # Work that needs no lock comes first.
        columns = [_columns(event.progress) if event.progress else {} for event in events]
        # A concurrent save waits here, and then reads our rows.
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
        return accepted, len(events) - accepted

    def _look_up(self, events: Sequence[ListenerEvent], alive: Mapping[str, str], rev: int) -> None:
        """Read or create the rows of all queries and runs in the post."""
        names = dict.fromkeys(sorted(alive.values()), "")
        names |= {event.query_id: event.name for event in events if event.name or event.query_id not in names}
        known = grouped(
            (row.query_id, row)
            for row in Query.objects.filter(cluster_id=self._cluster_id, query_id__in=names)
        )
        for query_id in sorted(names):
            only = known[query_id][0] if len(known[query_id]) == 1 else None
            self._queries[query_id] = only or find_or_add(
                self._cluster_id, query_id, names[query_id], rev=rev
            )
        numbers = {event.progress.batch_id for event in events if event.progress}
        rows = Batch.objects.filter(query__in=self._queries.values(), batch_id__in=numbers)
        for query, number, run_id in rows.exclude(run_id="").values_list("query_id", "batch_id", "run_id"):
            self._reported_by[query, number] = run_id
        wanted = {event.run_id for event in events} | {*alive, *self._reported_by.values()}
        wanted |= {row.run_id for row in self._queries.values()}
        for run in Run.objects.filter(query__in=self._queries.values(), run_id__in=wanted):
            self._runs[run.query_id, run.run_id] = run

    def _take(self, event: ListenerEvent, columns: Columns) -> bool:
        """Record an event; return whether it was new."""
        query = self._queries[event.query_id]
        heard_ms = min(self._now_ms, event.at_ms + self._behind_ms)
        run = self._run(query, event.run_id, heard_ms)
        if news := self._is_news(query, run, event, heard_ms, columns):
            run.first_heard_ms = min(run.first_heard_ms, heard_ms)
            run.heard_ms = max(run.heard_ms, heard_ms)
        self._last[query.pk, event.run_id] = event
        return news

    def _run(self, query: Query, run_id: str, heard_ms: int) -> Run:
        """Return a run with its listener's current status; a new run is first reported now."""
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
            # An idle event has no identity.
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
        """Copy the newest run's state to its query; return whether the query's row changes."""
        reported = [key for key in self._last if key[0] == row.pk]
        current = self._runs.get((row.pk, row.run_id))
        key = max(reported, key=lambda run_key: self._runs[run_key].first_heard_ms, default=None)
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
        for row in sorted(rows, key=lambda row: row.pk):
            row.rev = rev if row.pk in self._news else row.rev
            row.save(update_fields=[*_NAMED, "heard_ms", "heartbeat_every_ms", "rev"])
        runs = [self._runs[key] for key in self._touched]
        write_rows(Run, [{name: getattr(run, name) for name in _RUN} for run in runs], ("query_id", "run_id"))
        # A watermark read from the checkpoint is kept.
        write_rows(
            Batch,
            [
                {"query_id": query, "batch_id": number, **columns, "rev": rev}
                for (query, number), columns in self._batches.items()
            ],
            ("query_id", "batch_id"),
            keep=("watermark_ms",),
        )


def _state(run: Run, event: ListenerEvent | None, before: str) -> QueryState:
    """Return the state of a run by its last event; without an event, by the previous state."""
    if run.ended_ms is not None:
        return QueryState.FAILED if run.exception else QueryState.STOPPED
    if event is None:
        return QueryState.IDLE if before == QueryState.IDLE else QueryState.RUNNING
    return QueryState.IDLE if event.kind is EventKind.IDLE else QueryState.RUNNING


def _columns(progress: BatchProgress) -> Columns:
    return {
        **{name: getattr(progress, name) for name in _TOLD},
        "sources": [fields_of(source) for source in progress.sources],
        "operators": [operator._asdict() for operator in progress.operators],
    }
