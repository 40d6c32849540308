"""Derive the flow from observations: nodes, edges, their health and figures. No configuration declares it.

| edge | observed as |
|---|---|
| application → topic | its transactions name partitions of the topic in `__transaction_state` |
| topic → application | its transactions commit a group's offsets for the topic: the header of the commit's batch in `__consumer_offsets` names the producer |
| topic → group | the group has committed offsets for the topic outside of any transaction |
| topic → query | the checkpoint's offset log, or the listener's progress, names the topic |
| query → topic | the sink's ledger names the topic, or the transactions of its ids do |

An application that writes with the ids of a query's sink has no node: the query is its node.
"""  # noqa: E501 - a table

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from fenceline.facts import Severity
from fenceline.flow.graph import (
    Flow,
    FlowEdge,
    FlowGap,
    FlowHealth,
    FlowNode,
    Latency,
    LinkKind,
    NodeId,
    NodeKind,
    RateUnit,
    health_rank,
    worst_health,
)
from fenceline.flow.observations import (
    FlowObservations,
    GroupReads,
    QueryLinks,
    TopicPartitionCounts,
    TopicWrites,
)
from fenceline.formatting import count_noun
from fenceline.grouping import grouped
from fenceline.kafka.groups import GroupStatus
from fenceline.series.histograms import merge_histograms, quantile
from fenceline.spark.records import QueryState

#: Rules about an application's transaction, or about a query, whose findings mean blocked records.
_BLOCKING = frozenset(
    {
        "batch_lost", "batch_prepared", "coordinator_overdue", "hanging", "lso_pinned", "open_too_long",
        "query_blocked", "query_failed", "stuck_in_prepare",
    }
)  # fmt: skip
#: The rules about a query's blocked input, and its blocked output.
_INPUT, _OUTPUT = ("query_blocked", "query_failed"), ("batch_lost", "batch_prepared")
_SEVERE = (Severity.CRITICAL, Severity.WARNING)
#: How long more aborts than commits stay a warning after the last one.
_RECENT_MS = 600_000
_GROUP_HEALTH = {
    GroupStatus.OK: FlowHealth.OK,
    GroupStatus.LEFT: FlowHealth.UNKNOWN,
    GroupStatus.UNKNOWN: FlowHealth.UNKNOWN,
}
_GROUP_WORDS = {
    GroupStatus.STOP: "stopped committing",
    GroupStatus.STALL: "commits the same offset",
    GroupStatus.REWIND: "its offset went back",
    GroupStatus.WARN: "falls behind",
    GroupStatus.LEFT: "not assigned",
    GroupStatus.UNKNOWN: "status unknown",
}
_STATE_HEALTH = {
    QueryState.RUNNING: FlowHealth.OK,
    QueryState.IDLE: FlowHealth.OK,
    QueryState.STOPPED: FlowHealth.WARNING,
    QueryState.UNHEARD: FlowHealth.UNKNOWN,
    QueryState.FAILED: FlowHealth.BLOCKED,
}
_STATE_WORDS = {
    QueryState.STOPPED: "stopped",
    QueryState.UNHEARD: "no heartbeat",
    QueryState.FAILED: "failed",
}


def derive_flow(observed: FlowObservations) -> Flow:
    """Derive the flow; subjects of open findings decide the health of nodes."""
    return _Derivation(observed).flow()


class _Derivation:
    """One derivation, with lookups by key."""

    def __init__(self, observed: FlowObservations) -> None:
        self._observed = observed
        #: Rules of severe findings by subject; a partition's findings count for its topic.
        self._rules: dict[str, set[str]] = defaultdict(set)
        for finding in observed.findings:
            if finding.severity in _SEVERE:
                self._rules[_thing(finding.subject)].add(finding.rule)
        self._sinks = grouped((query.application, query) for query in observed.queries if query.application)
        self._gaps: list[FlowGap] = list(observed.gaps)
        self._groups: dict[NodeId, list[GroupReads]] = defaultdict(list)

    def flow(self) -> Flow:
        edges = [*self._produced(), *self._read_by_groups(), *self._of_queries()]
        edges.sort(key=lambda edge: (edge.ends, edge.group))
        ids = {node for edge in edges for node in edge.ends}
        ids |= {NodeId(NodeKind.QUERY, query.ident) for query in self._observed.queries}
        into = grouped((edge.target, edge) for edge in edges)
        queries = {query.ident: query for query in self._observed.queries}
        nodes = {at: self._node(at, into.get(at, ()), queries) for at in sorted(ids)}
        return Flow(nodes, edges, sorted(set(self._gaps)))

    def _produced(self) -> Iterator[FlowEdge]:
        """Yield the writes of applications that are no query's sink."""
        for writes in self._observed.writes:
            if writes.application not in self._sinks:
                source = NodeId(NodeKind.APPLICATION, writes.application)
                yield self._written(source, writes, LinkKind.PRODUCES)

    def _written(self, source: NodeId, writes: TopicWrites, kind: LinkKind) -> FlowEdge:
        health, reason, times = FlowHealth.OK, "", writes.unreadable_times
        if (writes.application, writes.topic) in self._observed.blocking:
            health, reason = FlowHealth.BLOCKED, "an open transaction blocks its LSO"
        elif writes.aborts > writes.commits and self._is_recent(writes):
            health, reason = FlowHealth.WARNING, f"{writes.aborts:,} of its transactions aborted"
        return FlowEdge(
            source,
            NodeId(NodeKind.TOPIC, writes.topic),
            kind,
            health,
            reason,
            rate=self._per_minute(writes.commits),
            latency=Latency(quantile(times, 0.5), quantile(times, 0.95)),
            last_ms=writes.last_ms,
        )

    def _is_recent(self, writes: TopicWrites) -> bool:
        """Whether an application wrote recently; a problem that ended minutes ago needs no attention."""
        at_ms = self._observed.at_ms
        return at_ms is None or writes.last_ms is None or at_ms - writes.last_ms <= _RECENT_MS

    def _per_minute(self, number: int) -> float | None:
        return number / self._observed.minutes if self._observed.minutes > 0 else None

    def _read_by_groups(self) -> Iterator[FlowEdge]:
        shared = Counter(
            (group.application, group.log_partition)
            for group in {
                (g.group, g.application, g.log_partition): g for g in self._observed.groups
            }.values()
        )
        rates = {writes[:2]: writes.commits for writes in self._observed.offset_writes}
        for reads in self._observed.groups:
            topic = NodeId(NodeKind.TOPIC, reads.topic)
            if reads.application is None:
                self._gap(f"group:{reads.group}", "which application commits its offsets is not observed yet")
            if not reads.application or reads.application in self._sinks:
                target, kind, rate = NodeId(NodeKind.GROUP, reads.group), LinkKind.CONSUMES, None
                self._groups[target].append(reads)
            else:
                target, kind = NodeId(NodeKind.APPLICATION, reads.application), LinkKind.PROCESSES
                key = reads.application, reads.log_partition
                alone = shared[key] == 1 and reads.log_partition is not None
                rate = self._per_minute(rates[key]) if alone and key in rates else None
            health, reason = _group_health(reads)
            yield FlowEdge(
                topic, target, kind, health, reason,
                group=reads.group if kind is LinkKind.PROCESSES else "", rate=rate, latency=reads.lag,
            )  # fmt: skip

    def _of_queries(self) -> Iterator[FlowEdge]:
        written = grouped((writes.application, writes) for writes in self._observed.writes)
        for query in self._observed.queries:
            at = NodeId(NodeKind.QUERY, query.ident)
            self._query_gaps(query)
            yield from self._read_by_query(at, query)
            yield from self._written_by_query(at, query, written.get(query.application, ()))
        self._shared_sinks(written)

    def _read_by_query(self, at: NodeId, query: QueryLinks) -> Iterator[FlowEdge]:
        health, reason = self._query_health(query, _INPUT)
        for topic in sorted(set(query.sources)):
            yield FlowEdge(
                NodeId(NodeKind.TOPIC, topic), at, LinkKind.READS, health, reason,
                rate=query.input_rate if len(set(query.sources)) == 1 else None,
                rate_unit=RateUnit.RECORDS, latency=query.batch_times,
            )  # fmt: skip

    def _written_by_query(
        self, at: NodeId, query: QueryLinks, written: Sequence[TopicWrites]
    ) -> Iterator[FlowEdge]:
        """Yield the topics in the query's ledger, and those of its ids if no other query shares them."""
        alone = len(self._sinks.get(query.application, ())) == 1
        figures = {writes.topic: writes for writes in written} if alone else {}
        health, reason = self._query_health(query, _OUTPUT)
        for topic in sorted({*query.outputs, *figures}):
            known = figures.get(topic)
            if known is None:
                edge = FlowEdge(at, NodeId(NodeKind.TOPIC, topic), LinkKind.WRITES)
            else:
                edge = self._written(at, known, LinkKind.WRITES)
            worse = health_rank(health) > health_rank(edge.health)
            yield replace(edge, health=health, reason=reason) if worse else edge

    def _shared_sinks(self, written: Mapping[str, Sequence[TopicWrites]]) -> None:
        for application, queries in self._sinks.items():
            known = {topic for query in queries for topic in query.outputs}
            others = sorted({writes.topic for writes in written.get(application, ())} - known)
            if len(queries) > 1 and others:
                names = ", ".join(sorted(query.name or query.ident for query in queries))
                which = f"which of them writes {', '.join(others)} is not known"
                reason = f"the sinks of {names} share the prefix {application}: {which}"
                for query in queries:
                    self._gap(f"query:{query.ident}", reason)

    def _query_gaps(self, query: QueryLinks) -> None:
        subject = f"query:{query.ident}"
        if query.error:
            self._gap(subject, f"its checkpoint cannot be read: {query.error}")
        elif not query.sources:
            self._gap(subject, "it names no topic of Kafka as a source so far")
        if query.sink == "kafka":
            self._gap(subject, "its sink writes to Kafka without transactions: to which topic is unknown")
        elif not query.sink:
            self._gap(subject, "what its sink is was not reported")

    def _query_health(self, query: QueryLinks, rules: Iterable[str]) -> tuple[FlowHealth, str]:
        """Return the health of a query's input or output, from its findings and its state."""
        broken = sorted(self._rules.get(f"query:{query.ident}", set()) & set(rules))
        if query.prepared and "batch_prepared" in rules and (broken or query.state is QueryState.FAILED):
            return FlowHealth.BLOCKED, f"{query.prepared:,} prepared and not committed"
        if broken:
            return FlowHealth.BLOCKED, _RULE_WORDS.get(broken[0], broken[0])
        return _STATE_HEALTH[query.state], _STATE_WORDS.get(query.state, "")

    def _node(self, at: NodeId, into: Sequence[FlowEdge], queries: Mapping[str, QueryLinks]) -> FlowNode:
        rules = self._rules.get(str(at), set())
        health = FlowHealth.WARNING if rules else FlowHealth.OK
        if rules & _BLOCKING:
            health = FlowHealth.BLOCKED
        if at.kind is NodeKind.TOPIC:
            counts = self._observed.topics.get(at.name)
            return FlowNode(at, at.name, worst_health([health, _topic_health(counts)]), _topic_words(counts))
        if at.kind is NodeKind.GROUP:
            worst = worst_health([health, *(edge.health for edge in into)])
            return FlowNode(at, at.name, worst, _group_words(into))
        if at.kind is NodeKind.QUERY:
            query = queries[at.name]
            worst = worst_health([health, self._query_health(query, (*_INPUT, *_OUTPUT))[0]])
            return FlowNode(at, query.name or query.ident, worst, _query_words(query))
        groups = sorted({edge.group for edge in into if edge.group})
        return FlowNode(at, at.name, health, f"through {', '.join(groups)}" if groups else "")

    def _gap(self, subject: str, reason: str) -> None:
        self._gaps.append(FlowGap(subject, reason))


_RULE_WORDS = {
    "batch_lost": "a prepared batch is lost",
    "batch_prepared": "a batch is prepared and not committed",
    "query_blocked": "blocked at an LSO",
    "query_failed": "failed",
}


def merge_writes(all_writes: Iterable[TopicWrites]) -> Sequence[TopicWrites]:
    """Merge to one entry per application and topic: summed counts, and the latest instant."""
    by_ends = grouped(((writes.application, writes.topic), writes) for writes in all_writes)
    return [
        TopicWrites(
            *ends,
            sum(writes.commits for writes in same_ends),
            sum(writes.aborts for writes in same_ends),
            merge_histograms(writes.unreadable_times for writes in same_ends),
            max((writes.last_ms for writes in same_ends if writes.last_ms is not None), default=None),
        )
        for ends, same_ends in sorted(by_ends.items())
    ]


def _thing(subject: str) -> str:
    """Return the subject of a finding's node; a partition belongs to its topic."""
    kind, _, name = subject.partition(":")
    return f"topic:{name.rpartition('-')[0]}" if kind == "partition" else subject


def _group_health(reads: GroupReads) -> tuple[FlowHealth, str]:
    if reads.status is GroupStatus.BLOCKED or reads.blocked:
        return FlowHealth.BLOCKED, f"blocked on {count_noun(max(1, reads.blocked), 'partition')}"
    return _GROUP_HEALTH.get(reads.status, FlowHealth.WARNING), _GROUP_WORDS.get(reads.status, "")


def _topic_health(counts: TopicPartitionCounts | None) -> FlowHealth:
    if counts is None:
        return FlowHealth.UNKNOWN
    if counts.blocked:
        return FlowHealth.BLOCKED
    return FlowHealth.UNKNOWN if counts.unknown else FlowHealth.OK


def _topic_words(counts: TopicPartitionCounts | None) -> str:
    if counts is None:
        return "partitions not polled"
    words = count_noun(counts.partitions, "partition")
    if counts.blocked:
        return f"{words}, {counts.blocked:,} blocked"
    return f"{words}, {counts.unknown:,} unknown" if counts.unknown else words


def _group_words(into: Sequence[FlowEdge]) -> str:
    worst = max(into, key=lambda edge: (health_rank(edge.health), edge.reason), default=None)
    return worst.reason if worst is not None and worst.reason else "group"


def _query_words(query: QueryLinks) -> str:
    state = _STATE_WORDS.get(query.state, "")
    if query.prepared:
        state = f"{query.prepared:,} prepared"
    batch = "" if query.batch_id is None else f"batch {query.batch_id:,}"
    return ", ".join(filter(None, (batch, state))) or "Spark query"
