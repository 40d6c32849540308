"""Pipelines: the ends of the flow, the weakest way to each, and its duration from end to end.

A pipeline leads to one end: a topic without observed readers, a group, or a query that writes to no topic. It
begins with the first writers: applications without a source, or a topic without an observed transactional
writer. If several ways lead to an end, the pipeline shows the weakest: at each step back the one with the
worst health, then the one with the longest duration; among applications that write to a topic, unless one
blocks it, the one with the most commits there. Its own health is the worst of all ways to its end. Backward
edges of cycles (`graph.feedback_edges`) are omitted: a repeated round of a record is not counted.

The percentiles from end to end are sums over the edges of the way, so the 95th is an upper bound. The time
for which a query's output stays unreadable is part of its batch's time, and counted once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

from fenceline.flow.graph import (
    Flow,
    FlowEdge,
    FlowHealth,
    FlowNode,
    Latency,
    LinkKind,
    NodeId,
    feedback_edges,
    health_rank,
)
from fenceline.grouping import grouped

_BLOCKED = health_rank(FlowHealth.BLOCKED)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """All ways to one end."""

    #: The weakest path, from its first node to the end, and its edges.
    path: Sequence[FlowNode]
    edges: Sequence[FlowEdge]
    #: The worst health of all ways to the end, and its edge or node; "" if all are well.
    health: FlowHealth
    weakest: str
    #: Number of nodes with which its ways begin.
    starts: int
    latency: Latency
    #: Edges of the way without a known time: `orders → billing`.
    missing: Sequence[str]

    @property
    def end(self) -> FlowNode:
        return self.path[-1]

    @property
    def name(self) -> str:
        """Return the labels of its path: `orders → orders_enrich → orders_enriched`."""
        return " → ".join(node.label for node in self.path)


@dataclass(frozen=True, slots=True)
class _Reach:
    """The weakest path to a node so far."""

    edge: FlowEdge | None
    #: The path's health, its first application's commits, and its duration.
    rank: int
    rate: float
    p95_ms: float
    length: int
    #: The worst health upstream of the node.
    worst: int
    weakest: str


def find_pipelines(flow: Flow) -> Sequence[Pipeline]:
    """Return the pipelines of a flow, those that need attention first: by health, then the slowest."""
    back = feedback_edges(flow.nodes, flow.edges)
    edges = [edge for edge in flow.edges if edge.ends not in back]
    into = grouped((edge.target, edge) for edge in edges)
    sources = {node: [edge.source for edge in into.get(node, ())] for node in sorted(flow.nodes)}
    order = list(TopologicalSorter(sources).static_order())
    reached: dict[NodeId, _Reach] = {}
    for node in order:
        reached[node] = _reach(flow.nodes[node], into.get(node, ()), reached, flow)
    leading = {edge.source for edge in edges}
    ends = [node for node in order if node not in leading and node in into]
    starts = _start_counts(order, into, ends)
    pipelines = [_pipeline(end, flow, reached, starts[end]) for end in ends]
    return sorted(pipelines, key=_needs_somebody)


def edge_name(edge: FlowEdge, nodes: Mapping[NodeId, FlowNode]) -> str:
    """Return an edge as `orders → billing`."""
    return f"{nodes[edge.source].label} → {nodes[edge.target].label}"


def _reach(node: FlowNode, into: Sequence[FlowEdge], reached: Mapping[NodeId, _Reach], flow: Flow) -> _Reach:
    own = health_rank(node.health)
    steps = [_step(edge, reached[edge.source], flow) for edge in into]
    if not steps:
        return _Reach(None, own, 0.0, 0.0, 0, own, node.words if own else "")
    best = max(steps, key=_weakness)
    worst = max(steps, key=lambda step: step.worst)
    if own > worst.worst:
        return _Reach(best.edge, own, 0.0, best.p95_ms, best.length, own, node.words)
    rank = max(own, best.rank)
    return _Reach(best.edge, rank, 0.0, best.p95_ms, best.length, worst.worst, worst.weakest)


def _weakness(step: _Reach) -> tuple[int, float, float, int]:
    """Order ways to a node for display; an application that hardly writes there comes last."""
    is_start = step.edge is not None and step.edge.kind is LinkKind.PRODUCES
    rank = 0 if is_start and step.rank < _BLOCKED else step.rank
    return rank, step.rate, step.p95_ms, step.length


def _step(edge: FlowEdge, before: _Reach, flow: Flow) -> _Reach:
    own = health_rank(edge.health)
    counts = not _is_in_batch(edge, before.edge)
    p95_ms = before.p95_ms + (edge.latency.p95_ms or 0.0 if counts else 0.0)
    worst, weakest = before.worst, before.weakest
    if own > worst:
        worst, weakest = own, edge_name(edge, flow.nodes)
    rate = edge.rate or 0.0 if edge.kind is LinkKind.PRODUCES else 0.0
    return _Reach(edge, max(own, before.rank), rate, p95_ms, before.length + 1, worst, weakest)


def _is_in_batch(edge: FlowEdge, before: FlowEdge | None) -> bool:
    """Whether an edge's time is part of the previous edge's: a query's output belongs to its batch."""
    return (
        edge.kind is LinkKind.WRITES and before is not None and before.latency.p95_ms is not None
    )  # fmt: skip


def _pipeline(end: NodeId, flow: Flow, reached: Mapping[NodeId, _Reach], starts: int) -> Pipeline:
    edges: list[FlowEdge] = []
    step = reached[end].edge
    while step is not None:
        edges.append(step)
        step = reached[step.source].edge
    edges.reverse()
    path = [flow.nodes[edges[0].source], *(flow.nodes[edge.target] for edge in edges)]
    latency, missing = _sum(edges, flow)
    reach = reached[end]
    health = list(FlowHealth)[reach.worst]
    return Pipeline(path, edges, health, reach.weakest, starts, latency, missing)


def _sum(edges: Sequence[FlowEdge], flow: Flow) -> tuple[Latency, Sequence[str]]:
    p50_ms = p95_ms = 0.0
    missing, known, before = [], False, None
    for edge in edges:
        if not _is_in_batch(edge, before):
            if edge.latency.p50_ms is None or edge.latency.p95_ms is None:
                missing.append(edge_name(edge, flow.nodes))
            else:
                p50_ms, p95_ms, known = p50_ms + edge.latency.p50_ms, p95_ms + edge.latency.p95_ms, True
        before = edge
    return (Latency(p50_ms, p95_ms) if known else Latency()), missing


def _start_counts(
    order: Sequence[NodeId], into: Mapping[NodeId, Sequence[FlowEdge]], ends: Sequence[NodeId]
) -> Mapping[NodeId, int]:
    """Return the number of nodes without a source that lead to each end. Each is one bit of an integer."""
    bits: dict[NodeId, int] = {}
    number = 0
    for node in order:
        if node in into:
            mask = 0
            for edge in into[node]:
                mask |= bits[edge.source]
            bits[node] = mask
        else:
            bits[node] = 1 << number
            number += 1
    return {end: bits[end].bit_count() for end in ends}


def _needs_somebody(pipeline: Pipeline) -> tuple[int, float, str]:
    return -health_rank(pipeline.health), -(pipeline.latency.p95_ms or 0.0), pipeline.name
