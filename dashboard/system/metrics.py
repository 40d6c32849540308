"""Fenceline's metrics for Prometheus: families of samples, read from `counts` and `queries` at each scrape.

Nothing is stored between two scrapes, so that all web processes report the same. Every combination of bounded
labels is reported, also with 0: an expression with a missing series would wait for ever. docs/metrics.md
explains each family; a test fails if one is missing there.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

from django.conf import settings
from prometheus_client import Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.registry import Collector

from dashboard.models import Action, Alert
from dashboard.runtime import visibility
from dashboard.runtime.collector_names import JUDGE
from dashboard.system import metrics_queries
from fenceline.engines.status import CONNECTOR_STATES, JOB_STATES
from fenceline.facts import Severity, TransactionState, TransitionKind
from fenceline.kafka.groups import GroupStatus
from fenceline.kafka.partitions import PartitionVerdict
from fenceline.plans.plan import Act
from fenceline.rules import RULES
from fenceline.series import histograms
from fenceline.series.histograms import Histogram
from fenceline.spark.records import QueryState

if TYPE_CHECKING:
    from dashboard.runtime.visibility import LiveCollector

#: The period in which deliveries are counted.
DELIVERIES_WITHIN = timedelta(hours=1)
#: Upper bounds of durations, 4 ms to 17 min, which are also bounds of the stored histograms.
_BOUNDS_MS = [2**n for n in range(2, 21)]
_KINDS = [kind.value for kind in TransitionKind if kind is not TransitionKind.BASELINE]
_NEVER = float("inf")

#: A sample: the values of its labels, and its own.
Samples = Iterable[tuple[Sequence[str], float | None]]


#: A figure of each collector: its name, its text, and its value; None is omitted.
_OfCollector = tuple[str, str, Callable[["LiveCollector"], float | None]]
_NOW: Sequence[_OfCollector] = (
    ("collector_alive", "Whether somebody holds a collector's lease.", lambda row: row.alive),
    ("collector_failing", "Whether a collector's last poll failed.", lambda row: row.error != ""),
    ("collector_behind_records", "Records that are still to be read.", lambda row: row.behind),
)
_EVER: Sequence[_OfCollector] = (
    ("collector_records", "Records that a collector has read.", lambda row: row.records),
    (
        "collector_undecoded",
        "Records that a collector could not decode.",
        lambda row: sum(row.undecoded.values()),
    ),
    ("broker_requests", "Requests that a collector has sent to its cluster.", lambda row: row.requests),
    (
        "broker_wait_seconds",
        "How long a collector has waited for its cluster's answers.",
        lambda row: row.broker_ms / 1_000,
    ),
)


class Metrics(Collector):
    """The families of one scrape at an instant, read with a fixed number of SQL statements."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._clusters = [row.name for row in visibility.configured_clusters()]

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        yield InfoMetricFamily("fenceline_build", "The version that runs.", value={"version": own_version()})
        yield from self._collectors(visibility.list_collectors())
        yield from self._findings()
        yield from self._transactions()
        yield from self._partitions()
        yield from self._groups()
        yield from self._queries()
        yield from self._engines()
        yield self._filled(
            "actions",
            "Plans in the audit log.",
            metrics_queries.action_counts(),
            {"act": Act, "state": Action.State},
        )
        yield from self._channels()

    def _collectors(self, rows: Sequence[LiveCollector]) -> Iterator[Metric]:
        """Yield the collectors' figures; the age of the last evaluation serves as a dead man's switch."""
        seen = [(_names(row), self._ago_s(row.seen_through_ms)) for row in rows]
        evaluated = {cluster: age_s for (cluster, name), age_s in seen if name == JUDGE}
        yield self._each(
            "judgement_age_seconds",
            "How long ago the rules last evaluated a cluster; +Inf where they never have.",
            {name: evaluated.get(name, _NEVER) for name in self._clusters},
        )
        labels = ("cluster", "collector")
        text = "How long ago is what a collector has seen through to; +Inf where it has seen nothing yet."
        yield _gauge("collector_seen_seconds_ago", text, labels, seen)
        for name, text, value in _NOW:
            yield _gauge(name, text, labels, [(_names(row), value(row)) for row in rows])
        for name, text, value in _EVER:
            yield _counter(name, text, labels, [(_names(row), value(row)) for row in rows])
        gaps = {_names(row): 0 for row in rows} | dict(metrics_queries.gap_counts())
        for gap in visibility.late_gaps(rows, settings.FENCELINE.limits, self._now_ms):
            # A collector that reports its own failure is not counted twice.
            gaps[gap.cluster.name, gap.source] = max(1, gaps[gap.cluster.name, gap.source])
        text = "Gaps in what could be seen that are open, and collectors that are late."
        yield _gauge("gaps", text, ("cluster", "source"), gaps.items())

    def _findings(self) -> Iterator[Metric]:
        rules: Mapping[str, Iterable[str]] = {"rule": RULES, "severity": Severity}
        yield self._filled("findings", "What the rules find now.", metrics_queries.finding_counts(), rules)
        active = {"severity": Severity, "state": (Alert.State.PENDING, Alert.State.FIRING)}
        yield self._filled(
            "alerts", "Alerts that are pending or firing.", metrics_queries.alert_counts(), active
        )

    def _transactions(self) -> Iterator[Metric]:
        states = {"state": TransactionState}
        yield self._filled("transactions", "Transactional ids.", metrics_queries.transaction_counts(), states)
        yield self._each(
            "open_transaction_seconds_max",
            "For how long the oldest open transaction is open; 0 without any.",
            {name: self._ago_s(at_ms) for name, at_ms in metrics_queries.oldest_open().items()},
        )
        ever = metrics_queries.lifetime_counts()
        counts: dict[tuple[str, ...], int] = {
            (name, kind): n for name, sums in ever.items() for kind, n in sums.counts.items()
        }
        samples = self._fill(counts, [_KINDS])
        yield _counter("transitions", "What transactions did.", ("cluster", "kind"), samples.items())
        opened = {name: sums.open_times for name, sums in ever.items()}
        yield self._durations("commit_open_seconds", "Of commits, from begin to decision.", opened)
        marked = {name: sums.marker_times for name, sums in ever.items()}
        text = "Of commits, from decision to the last marker."
        yield self._durations("commit_markers_seconds", text, marked)

    def _partitions(self) -> Iterator[Metric]:
        counted, pinned = metrics_queries.partition_counts()
        text = "Partitions that a transaction, a group or a query touches."
        yield self._filled("partitions", text, counted, {"verdict": PartitionVerdict})
        yield self._each(
            "lso_pinned_seconds_max",
            "For how long the LSO that is pinned the longest is pinned; 0 without any.",
            {name: self._ago_s(at_ms) for name, at_ms in pinned.items()},
        )

    def _groups(self) -> Iterator[Metric]:
        counted, unread, longest_ms, pending = metrics_queries.group_counts()
        yield self._filled("groups", "Consumer groups.", counted, {"status": GroupStatus})
        blocked = {name: n for (name, status), n in counted.items() if status == GroupStatus.BLOCKED}
        text = "Consumer groups at an LSO that an open transaction keeps from moving."
        yield self._each("groups_blocked", text, blocked)
        yield self._each("groups_pending", "Consumer groups with a pending transactional commit.", pending)
        text = "Records that all groups together have still to read, to the LSO and to the high watermark."
        yield self._filled("group_lag_records", text, unread, {"to": ("lso", "high_watermark")})
        longest = {name: lag_ms / 1_000 for name, lag_ms in longest_ms.items()}
        yield self._each("group_lag_seconds_max", "The longest lag of any group.", longest)

    def _queries(self) -> Iterator[Metric]:
        counted, prepared = metrics_queries.query_counts()
        yield self._filled("queries", "Streaming queries of Spark.", counted, {"state": QueryState})
        text = "Streaming queries with a batch that is prepared and not yet committed."
        yield self._each("queries_prepared", text, prepared)

    def _engines(self) -> Iterator[Metric]:
        jobs, unreadable, runs = metrics_queries.flink_counts()
        yield self._each("flink_jobs", "Flink jobs whose checkpoints are read.", jobs)
        text = "Flink jobs of which the newest checkpoint cannot be read."
        yield self._each("flink_jobs_unreadable", text, unreadable)
        yield self._filled("flink_runs", "Flink jobs of JobManagers.", runs, {"state": JOB_STATES})
        tasks = metrics_queries.connector_task_counts()
        yield self._filled("connector_tasks", "Tasks of Kafka Connect.", tasks, {"state": CONNECTOR_STATES})

    def _channels(self) -> Iterator[Metric]:
        since = datetime.fromtimestamp(self._now_ms / 1_000, UTC) - DELIVERIES_WITHIN
        rows = metrics_queries.channel_deliveries(since)
        usable = [((row.name,), row.enabled and row.disabled_at is None) for row, _ in rows]
        yield _gauge("channel_usable", "Whether a channel is enabled.", ("channel",), usable)
        failures = [((row.name,), row.failures) for row, _ in rows]
        yield _gauge("channel_failures", "Failed deliveries in a row.", ("channel",), failures)
        made = [((row.name, state), n) for row, counted in rows for state, n in counted.items()]
        text = "Deliveries that were made in the last hour."
        yield _gauge("deliveries", text, ("channel", "state"), made)

    def _filled(
        self, name: str, text: str, counts: metrics_queries.ByCluster, words: Mapping[str, Iterable[str]]
    ) -> Metric:
        """Return a gauge for every cluster and every combination of label values, 0 for missing counts."""
        return _gauge(name, text, ("cluster", *words), self._fill(counts, words.values()).items())

    def _fill(
        self, counts: metrics_queries.ByCluster, words: Iterable[Iterable[str]]
    ) -> metrics_queries.ByCluster:
        every = product(self._clusters, *([str(word) for word in values] for values in words))
        return dict.fromkeys(every, 0) | dict(counts)

    def _each(self, name: str, text: str, figures: Mapping[str, float]) -> Metric:
        """Return a gauge for every cluster, 0 for missing figures."""
        return _gauge(name, text, ("cluster",), [((of,), figures.get(of, 0)) for of in self._clusters])

    def _durations(self, name: str, text: str, histograms: Mapping[str, Histogram]) -> Metric:
        family = HistogramMetricFamily(f"fenceline_{name}", text, labels=("cluster",))
        for cluster in self._clusters:
            # No sum is stored, so none is reported: averages would be guesses.
            family.add_metric((cluster,), _buckets(histograms.get(cluster, {})), None)
        return family

    def _ago_s(self, at_ms: int | None) -> float:
        return _NEVER if at_ms is None else max(0, self._now_ms - at_ms) / 1_000


def _names(row: LiveCollector) -> tuple[str, ...]:
    return row.cluster.name, row.name


def _gauge(name: str, text: str, labels: Sequence[str], samples: Samples) -> Metric:
    family = GaugeMetricFamily(f"fenceline_{name}", text, labels=labels)
    for values, figure in samples:
        if figure is not None:
            family.add_metric(values, figure)
    return family


def _counter(name: str, text: str, labels: Sequence[str], samples: Samples) -> Metric:
    family = CounterMetricFamily(f"fenceline_{name}", text, labels=labels)
    for values, figure in samples:
        family.add_metric(values, figure or 0)
    return family


def _buckets(times: Histogram) -> list[tuple[str, float]]:
    """Return the cumulative number of durations at each bound, in seconds, the last one infinite."""
    ends = [(histograms.bucket_bounds(bucket)[1], n) for bucket, n in times.items()]
    upto = [(str(ms / 1_000), float(sum(n for end, n in ends if end <= ms))) for ms in _BOUNDS_MS]
    return [*upto, ("+Inf", float(sum(times.values())))]


@cache
def own_version() -> str:
    project = tomllib.loads((settings.ROOT / "pyproject.toml").read_text())
    return str(project["project"]["version"])
