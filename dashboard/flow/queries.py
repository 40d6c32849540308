"""The flow of data of a cluster in a range of time, and the part of it around some subjects.

A dozen queries, each along an index, for any number of transactional ids: the applications' writes are stored
by span (`dashboard.transactions.topic_tallies`), everything else is read in its present state. Deriving a
flow of 1,000 groups takes 50 ms: a process does it once per revision of the cluster, for all callers.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache

from django.db.models import Q

from dashboard.flow import readers
from dashboard.models import Cluster, FindingRecord, GapRecord
from dashboard.runtime import visibility
from dashboard.runtime.collector_names import CHECKPOINTS, GROUPS, OFFSETS, PARTITIONS, RECONCILE, TAIL
from fenceline.facts import Severity
from fenceline.flow.derive import derive_flow, merge_writes
from fenceline.flow.graph import Flow, FlowGap, NodeId, NodeKind
from fenceline.flow.observations import FlowObservations, OpenFindingFacts, QueryLinks
from fenceline.flow.pipelines import Pipeline, find_pipelines
from fenceline.flow.view import flow_around_nodes
from fenceline.history.time_range import TimeRange, last_range
from fenceline.kafka.applications import application_of
from fenceline.kafka.groups import family_of

#: The hidden part for a collector's gap, by the beginning of the collector's name.
_HIDDEN = {
    TAIL: "what applications write",
    OFFSETS: "when groups commit, and in whose transactions",
    GROUPS: "what groups read",
    PARTITIONS: "which partitions are blocked",
    CHECKPOINTS: "what Spark queries read and write",
    RECONCILE: "which transactions are open",
}
_PAST = (
    "What groups and Spark queries read is kept as it is now: for this range they are shown as they are now, "
    "without figures and status"
)
_MOST_FINDINGS = 2_000
#: The interval at which a flow whose range ends now moves with the clock.
STEP_MS = 5_000


@dataclass(frozen=True)
class ClusterFlow:
    """The flow of one cluster in a range; `kept_since_ms` is set if the range begins before it."""

    cluster: str
    flow: Flow
    kept_since_ms: int | None = None
    #: The observations from which it was derived.
    observed: FlowObservations = field(default_factory=lambda: FlowObservations(0))

    @cached_property
    def pipelines(self) -> Sequence[Pipeline]:
        """Return the pipelines of the flow; those that need attention come first."""
        return find_pipelines(self.flow)


def read_flows(cluster: str, shown: TimeRange, *, now_ms: int) -> Sequence[ClusterFlow]:
    """Return the flow of a cluster, or for "" of each cluster, by name."""
    return [read_flow(row, shown, now_ms=now_ms) for row in visibility.clusters_named(cluster)]


def read_flow(row: Cluster, shown: TimeRange, *, now_ms: int) -> ClusterFlow:
    """Return the flow of a cluster in a time range; a live range ends with the step of the clock."""
    step_ms = -(-now_ms // STEP_MS) * STEP_MS
    if shown.live:
        shown = TimeRange(shown.from_ms + step_ms - shown.to_ms, step_ms, live=True)
    return flow_of_revision(row, row.rev, shown, step_ms)


@lru_cache(maxsize=8)
def flow_of_revision(row: Cluster, _revision: int, shown: TimeRange, now_ms: int) -> ClusterFlow:
    """Return the flow of a cluster in a range, once for each of its revisions."""
    writes, offset_writes, gaps, minutes, kept_ms = readers.topic_writes(row.pk, shown, now_ms=now_ms)
    queries = readers.query_links(row.name, now_ms=now_ms if shown.live else None)
    observed = FlowObservations(
        minutes=minutes,
        writes=merge_writes(writes),
        offset_writes=offset_writes,
        groups=readers.group_reads(row.pk, offset_writes, now=shown.live),
        queries=queries,
        topics=readers.partition_counts(row.pk) if shown.live else {},
        blocking=readers.blocking_applications(row.pk) if shown.live else frozenset(),
        findings=list(_findings(row, shown, queries)),
        gaps=[*gaps, *_gaps(row, shown)],
        outside=readers.outside_transactions(row.pk),
        at_ms=shown.to_ms,
    )
    cut = now_ms if kept_ms is None else kept_ms
    since_ms = cut if shown.from_ms < cut else None
    return ClusterFlow(row.name, derive_flow(observed), since_ms, observed)


def flow_around(cluster: str, subjects: Iterable[str], *, now_ms: int) -> Flow:
    """Return the flow of the last hour around some subjects (`kind:name`): their sources and targets.

    A transaction stands for its application, or for the query of its sink; a partition for its topic; a group
    for its family. Subjects outside the flow are omitted.
    """
    for row in visibility.clusters_named(cluster):
        cluster_flow = read_flow(row, last_range("1h", now_ms=now_ms), now_ms=now_ms)
        flow, sinks = cluster_flow.flow, _sinks(cluster_flow.observed.queries)
        wanted = {subject_node(subject, sinks) for subject in subjects}
        # A group whose offsets an application commits is no node: the edge through it represents it.
        through = {end for edge in flow.edges if _group(edge.group) in wanted for end in edge.ends}
        return flow_around_nodes(flow, wanted | through)
    return Flow()


def _group(name: str) -> NodeId:
    return NodeId(NodeKind.GROUP, name)


def subject_node(subject: str, sinks: dict[str, str] | None = None) -> NodeId:
    """Return the node of a subject; `sinks` are queries by their application."""
    kind, _, name = subject.partition(":")
    if kind == "partition":
        return NodeId(NodeKind.TOPIC, name.rpartition("-")[0])
    if kind in ("transaction", "application"):
        application = application_of(name).application if kind == "transaction" else name
        ident = (sinks or {}).get(application)
        return NodeId(NodeKind.QUERY, ident) if ident else NodeId(NodeKind.APPLICATION, application)
    if kind == "group":
        return _group(family_of(name).name)
    return NodeId(NodeKind(kind) if kind in list(NodeKind) else NodeKind.TOPIC, name)


def _sinks(queries: Iterable[QueryLinks]) -> dict[str, str]:
    """Return queries by the application of their sink's ids."""
    return {query.application: query.ident for query in queries if query.application}


def _findings(row: Cluster, shown: TimeRange, queries: Sequence[QueryLinks]) -> Iterator[OpenFindingFacts]:
    """Yield the present findings, or those of a past range, by subjects of nodes and partitions."""
    sinks = _sinks(queries)
    rows = FindingRecord.objects.filter(cluster=row.pk)
    if shown.live:
        rows = rows.filter(closed_at=None)
    else:
        opened = Q(since_ms__lt=shown.to_ms)
        ended = datetime.fromtimestamp(shown.from_ms / 1_000, UTC)
        rows = rows.filter(opened & (Q(closed_at=None) | Q(closed_at__gte=ended)))
    columns = ("rule", "subject", "severity")
    for rule, subject, severity in rows.order_by("-pk").values_list(*columns)[:_MOST_FINDINGS]:
        about = subject if subject.startswith("partition:") else str(subject_node(subject, sinks))
        yield OpenFindingFacts(rule, about, Severity(severity))


def _gaps(row: Cluster, shown: TimeRange) -> Iterator[FlowGap]:
    """Yield the parts that collectors could not read."""
    if not shown.live:
        yield FlowGap("", _PAST)
    rows = GapRecord.objects.filter(cluster=row.pk, since_ms__lt=shown.to_ms).exclude(
        until_ms__lt=shown.from_ms
    )
    for source, reason in rows.order_by("-since_ms").values_list("source", "reason")[:20]:
        hidden = next((words for name, words in _HIDDEN.items() if source.startswith(name)), "")
        if hidden and source != RECONCILE:
            yield FlowGap("", f"{hidden[0].upper()}{hidden[1:]}: {reason}")
