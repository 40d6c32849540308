"""What was observed -> the flow: nodes, edges, their health and figures. Nothing is declared.

| edge | observed as |
|---|---|
| application → topic | its transactions name partitions of the topic in `__transaction_state` |
| topic → application | a group's offsets for the topic are committed by its transactions: the producer in the header of the commit's batch in `__consumer_offsets` |
| topic → group | the group has committed offsets for the topic outside of any transaction |
| topic → query | the checkpoint's offset log, or the listener's progress, names the topic |
| query → topic | the sink's ledger names the topic, or the transactions of its ids do |

An application whose ids are those of a query's sink is that query, not a node of its own.
"""  # noqa: E501 - a table

from __future__ import annotations

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
from fenceline.histograms import Histogram, merge_histograms, quantile
from fenceline.kafka.groups import GroupStatus
from fenceline.spark.records import QueryState

#: Rules whose finding about an application's transaction, or about a query, means that records are blocked.
_BLOCKING = frozenset(
    {
        "batch_lost", "batch_prepared", "coordinator_overdue", "hanging", "lso_pinned", "open_too_long",
        "query_blocked", "query_failed", "stuck_in_prepare",
    }
)  # fmt: skip
#: Of a query: what holds up its input, and what its output.
_INPUT, _OUTPUT = ("query_blocked", "query_failed"), ("batch_lost", "batch_prepared")
_SEVERE = (Severity.CRITICAL, Severity.WARNING)
_GROUP_HEALTH = {GroupStatus.OK: FlowHealth.OK, GroupStatus.UNKNOWN: FlowHealth.UNKNOWN}
_GROUP_WORDS = {
    GroupStatus.STOP: "stopped committing",
    GroupStatus.STALL: "commits the same offset",
    GroupStatus.REWIND: "its offset went back",
    GroupStatus.WARN: "falls behind",
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
    """Return the flow of what was observed."""
    return _Derivation(observed).flow()


def latency_of(histogram: Histogram) -> Latency:
    """Return half and 95 of 100 of a histogram."""
    return Latency(quantile(histogram, 0.5), quantile(histogram, 0.95))


class _Derivation:
    """One derivation: what is looked up again and again, by its key."""

    def __init__(self, observed: FlowObservations) -> None:
        self._observed = observed
        #: Rules of severe findings by subject; partitions count for their topic.
        self._rules: dict[str, set[str]] = defaultdict(set)
        for finding in observed.findings:
            if finding.severity in _SEVERE:
                self._rules[_thing(finding.subject)].add(finding.rule)
        sinks: dict[str, list[QueryLinks]] = defaultdict(list)
        for query in observed.queries:
            if query.application:
                sinks[query.application].append(query)
        self._sinks = sinks
        self._gaps: list[FlowGap] = list(observed.gaps)
        self._groups: dict[NodeId, list[GroupReads]] = defaultdict(list)

    def flow(self) -> Flow:
        edges = [*self._produced(), *self._read_by_groups(), *self._of_queries()]
        edges.sort(key=lambda edge: (edge.ends, edge.group))
        ids = {node for edge in edges for node in edge.ends}
        ids |= {NodeId(NodeKind.QUERY, each.ident) for each in self._observed.queries}
        into: dict[NodeId, list[FlowEdge]] = defaultdict(list)
        for edge in edges:
            into[edge.target].append(edge)
        queries = {each.ident: each for each in self._observed.queries}
        nodes = {at: self._node(at, into.get(at, ()), queries) for at in sorted(ids)}
        return Flow(nodes, edges, sorted(set(self._gaps)))

    def _produced(self) -> Iterator[FlowEdge]:
        """Yield what applications write that are the sink of no query."""
        for each in self._observed.writes:
            if each.application not in self._sinks:
                source = NodeId(NodeKind.APPLICATION, each.application)
                yield self._written(source, each, LinkKind.PRODUCES)

    def _written(self, source: NodeId, writes: TopicWrites, kind: LinkKind) -> FlowEdge:
        health, reason = FlowHealth.OK, ""
        if (writes.application, writes.topic) in self._observed.blocking:
            health, reason = FlowHealth.BLOCKED, "an open transaction blocks its LSO"
        elif writes.aborts > writes.commits:
            health, reason = FlowHealth.WARNING, f"{writes.aborts:,} of its transactions aborted"
        return FlowEdge(
            source,
            NodeId(NodeKind.TOPIC, writes.topic),
            kind,
            health,
            reason,
            rate=self._per_minute(writes.commits),
            latency=latency_of(writes.unreadable_times),
            last_ms=writes.last_ms,
        )

    def _per_minute(self, number: int) -> float | None:
        return number / self._observed.minutes if self._observed.minutes > 0 else None

    def _read_by_groups(self) -> Iterator[FlowEdge]:
        shared = Counter(
            (each.application, each.log_partition)
            for each in {(g.group, g.application, g.log_partition): g for g in self._observed.groups}.values()
        )
        rates = {each[:2]: each.commits for each in self._observed.offset_writes}
        for each in self._observed.groups:
            topic = NodeId(NodeKind.TOPIC, each.topic)
            if each.application is None:
                self._gap(f"group:{each.group}", "which application commits its offsets is not observed yet")
            if not each.application or each.application in self._sinks:
                target, kind, rate = NodeId(NodeKind.GROUP, each.group), LinkKind.CONSUMES, None
                self._groups[target].append(each)
            else:
                target, kind = NodeId(NodeKind.APPLICATION, each.application), LinkKind.PROCESSES
                key = each.application, each.log_partition
                alone = shared[key] == 1 and each.log_partition is not None
                rate = self._per_minute(rates[key]) if alone and key in rates else None
            health, reason = _group_health(each)
            yield FlowEdge(
                topic, target, kind, health, reason,
                group=each.group if kind is LinkKind.PROCESSES else "", rate=rate, latency=each.lag,
            )  # fmt: skip

    def _of_queries(self) -> Iterator[FlowEdge]:
        written: dict[str, list[TopicWrites]] = defaultdict(list)
        for each in self._observed.writes:
            written[each.application].append(each)
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
        """Yield what its ledger names, and what its ids write where they are those of no other query."""
        alone = len(self._sinks.get(query.application, ())) == 1
        figures = {each.topic: each for each in written} if alone else {}
        health, reason = self._query_health(query, _OUTPUT)
        for topic in sorted({*query.outputs, *figures}):
            known = figures.get(topic)
            if known is None:
                edge = FlowEdge(at, NodeId(NodeKind.TOPIC, topic), LinkKind.WRITES)
            else:
                edge = self._written(at, known, LinkKind.WRITES)
            yield _with_health(edge, health, reason) if health is not FlowHealth.OK else edge

    def _shared_sinks(self, written: Mapping[str, Sequence[TopicWrites]]) -> None:
        for application, queries in self._sinks.items():
            known = {topic for query in queries for topic in query.outputs}
            others = sorted({each.topic for each in written.get(application, ())} - known)
            if len(queries) > 1 and others:
                names = ", ".join(sorted(each.name or each.ident for each in queries))
                which = f"which of them writes {', '.join(others)} is not known"
                reason = f"the sinks of {names} share the prefix {application}: {which}"
                for each in queries:
                    self._gap(f"query:{each.ident}", reason)

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
        """Return how a query's input, or output, is, by its findings and its state."""
        found = sorted(self._rules.get(f"query:{query.ident}", set()) & set(rules))
        if query.prepared and "batch_prepared" in rules and (found or query.state is QueryState.FAILED):
            return FlowHealth.BLOCKED, f"{query.prepared:,} prepared and not committed"
        if found:
            return FlowHealth.BLOCKED, _RULE_WORDS.get(found[0], found[0])
        return _STATE_HEALTH[query.state], _STATE_WORDS.get(query.state, "")

    def _node(self, at: NodeId, into: Sequence[FlowEdge], queries: Mapping[str, QueryLinks]) -> FlowNode:
        rules = self._rules.get(str(at), set())
        found = FlowHealth.WARNING if rules else FlowHealth.OK
        if rules & _BLOCKING:
            found = FlowHealth.BLOCKED
        if at.kind is NodeKind.TOPIC:
            counts = self._observed.topics.get(at.name)
            return FlowNode(at, at.name, worst_health([found, _topic_health(counts)]), _topic_words(counts))
        if at.kind is NodeKind.GROUP:
            health = worst_health([found, *(edge.health for edge in into)])
            return FlowNode(at, at.name, health, _group_words(into))
        if at.kind is NodeKind.QUERY:
            query = queries[at.name]
            health = worst_health([found, self._query_health(query, (*_INPUT, *_OUTPUT))[0]])
            return FlowNode(at, query.name or query.ident, health, _query_words(query))
        groups = sorted({edge.group for edge in into if edge.group})
        return FlowNode(at, at.name, found, f"through {', '.join(groups)}" if groups else "")

    def _gap(self, subject: str, reason: str) -> None:
        self._gaps.append(FlowGap(subject, reason))


_RULE_WORDS = {
    "batch_lost": "a prepared batch is lost",
    "batch_prepared": "a batch is prepared and not committed",
    "query_blocked": "blocked at an LSO",
    "query_failed": "failed",
}


def merge_writes(found: Iterable[TopicWrites]) -> Sequence[TopicWrites]:
    """Return one for each application and topic: counts added, the latest instant."""
    by_ends: dict[tuple[str, str], list[TopicWrites]] = defaultdict(list)
    for each in found:
        by_ends[each.application, each.topic].append(each)
    return [
        TopicWrites(
            *ends,
            sum(each.commits for each in some),
            sum(each.aborts for each in some),
            merge_histograms(each.unreadable_times for each in some),
            max((each.last_ms for each in some if each.last_ms is not None), default=None),
        )
        for ends, some in sorted(by_ends.items())
    ]


def _thing(subject: str) -> str:
    """Return the subject of the node that a finding is about: a partition's is its topic."""
    kind, _, name = subject.partition(":")
    return f"topic:{name.rpartition('-')[0]}" if kind == "partition" else subject


def _with_health(edge: FlowEdge, health: FlowHealth, reason: str) -> FlowEdge:
    worse = health_rank(health) > health_rank(edge.health)
    return replace(edge, health=health, reason=reason) if worse else edge


def _group_health(each: GroupReads) -> tuple[FlowHealth, str]:
    if each.status is GroupStatus.BLOCKED or each.blocked:
        return FlowHealth.BLOCKED, f"blocked on {count_noun(max(1, each.blocked), 'partition')}"
    return _GROUP_HEALTH.get(each.status, FlowHealth.WARNING), _GROUP_WORDS.get(each.status, "")


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
