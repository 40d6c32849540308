"""Select the shown part of a flow: around nodes, by a search, folded by prefix, or the worst nodes."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from fenceline.flow.graph import (
    UNKNOWN_LATENCY,
    Flow,
    FlowEdge,
    FlowHealth,
    FlowNode,
    NodeId,
    health_rank,
    nodes_after,
    nodes_before,
    reachable_from,
    worst_health,
)
from fenceline.formatting import count_noun
from fenceline.grouping import grouped

#: A larger flow is folded unless the whole flow is requested.
MOST_UNFOLDED = 60
#: Maximum nodes that stay separate in a folded flow: blocked ones first.
_MOST_APART = 30
_WARNING = health_rank(FlowHealth.WARNING)
_SEPARATORS = "-_.:/"
_PREFIX = re.compile(rf"[^{re.escape(_SEPARATORS)}]+[{re.escape(_SEPARATORS)}]")

#: The part before the number in a name without a separator.
_NUMBERED = re.compile(r".*?\D(?=\d+$)", re.DOTALL)


def flow_around_nodes(flow: Flow, wanted: Iterable[NodeId]) -> Flow:
    """Return the wanted nodes with everything upstream and downstream of them."""
    known = [node for node in wanted if node in flow.nodes]
    if not known:
        return Flow(gaps=flow.gaps)
    up, down = reachable_from(known, nodes_before(flow.edges)), reachable_from(known, nodes_after(flow.edges))
    return flow.restricted_to(up | down)


def matching_nodes(flow: Flow, text: str) -> set[NodeId]:
    small = text.casefold()
    return {at for at, node in flow.nodes.items() if small in node.label.casefold() or small in at.name}


def search_flow(flow: Flow, text: str) -> Flow:
    """Return the nodes whose name, or whose group, contains a text, with their neighbours."""
    small, matches = text.casefold(), matching_nodes(flow, text)
    beside = {
        end
        for edge in flow.edges
        if edge.source in matches or edge.target in matches or (edge.group and small in edge.group.casefold())
        for end in edge.ends
    }
    return flow.restricted_to(matches | beside)


def fold_flow(
    flow: Flow, most: int = MOST_UNFOLDED, *, apart: Collection[NodeId] = (), beyond: str = ""
) -> Flow:
    """Fold nodes of one kind and prefix into one node, if there are more than `most`.

    Nodes of `apart`, blocked nodes and nodes with a warning stay separate, up to a limit. `beyond` is a
    searched part of names: prefixes are longer. A folded edge has the worst health, the sum of the rates, and
    the times of the slowest edge.
    """
    if len(flow.nodes) <= most:
        return flow
    separate = set(_unwell(flow, apart)[:_MOST_APART])
    groups = grouped(
        (at if at in separate else _folded_id(node, beyond.casefold()), node)
        for at, node in flow.nodes.items()
    )
    into = {node.id: at for at, nodes in groups.items() for node in nodes}
    names = {at: (nodes[0].id if len(nodes) == 1 else at) for at, nodes in groups.items()}
    nodes = {names[at]: _folded_node(names[at], nodes) for at, nodes in groups.items()}
    edges = _folded_edges(flow.edges, {at: names[group] for at, group in into.items()})
    return Flow(dict(sorted(nodes.items())), edges, flow.gaps)


def cut_flow(flow: Flow, most: int, *, first: Collection[NodeId] = ()) -> Flow:
    """Return at most `most` nodes: `first`, blocked ones, those with a warning, then their neighbours."""
    if len(flow.nodes) <= most:
        return flow
    return flow.restricted_to(set(islice(_from_worst(flow, first), most)))


def _from_worst(flow: Flow, first: Collection[NodeId]) -> Iterator[NodeId]:
    """Yield all nodes: `first`, the ends of unwell parts, then nodes by their distance from these."""
    unwell = [edge for edge in flow.edges if health_rank(edge.health) >= _WARNING]
    ends = sorted(unwell, key=lambda edge: -health_rank(edge.health))
    starts = [*_unwell(flow, first), *(end for edge in ends for end in edge.ends)]
    beside = grouped(pair for edge in flow.edges for pair in (edge.ends, edge.ends[::-1]))
    seen: set[NodeId] = set()
    for start_nodes in (starts, *([node] for node in sorted(flow.nodes))):
        waiting = [node for node in dict.fromkeys(start_nodes) if node not in seen]
        seen.update(waiting)
        for node in waiting:
            yield node
            fresh = [other for other in dict.fromkeys(beside.get(node, ())) if other not in seen]
            seen.update(fresh)
            waiting += fresh


def _unwell(flow: Flow, first: Collection[NodeId]) -> Sequence[NodeId]:
    """Return the nodes of `first`, then blocked nodes, then nodes with a warning."""
    ranks = {at: (at not in first, -health_rank(node.health)) for at, node in flow.nodes.items()}
    wanted = (at for at, (is_other, rank) in ranks.items() if not is_other or -rank >= _WARNING)
    return sorted(wanted, key=lambda at: (ranks[at], at))


def _folded_id(node: FlowNode, beyond: str) -> NodeId:
    start = len(beyond) if node.label.casefold().startswith(beyond) else 0
    prefix = _PREFIX.match(node.label, start) or _NUMBERED.match(node.label, start)
    return NodeId(node.id.kind, f"{node.label[: prefix.end()]}*") if prefix else node.id


def _folded_node(at: NodeId, nodes: Sequence[FlowNode]) -> FlowNode:
    if len(nodes) == 1:
        return nodes[0]
    health = worst_health(node.health for node in nodes)
    number = sum(node.number for node in nodes)
    detail = count_noun(number, at.kind.value)
    unwell = sum(node.health is health for node in nodes)
    if health is not FlowHealth.OK:
        detail = f"{detail}, {unwell:,} {health.value}"
    return FlowNode(at, at.name, health, detail, number)


def _folded_edges(edges: Iterable[FlowEdge], into: Mapping[NodeId, NodeId]) -> Sequence[FlowEdge]:
    by_ends = grouped(((into[edge.source], into[edge.target], edge.kind.value), edge) for edge in edges)
    return [_folded_edge(key[0], key[1], edges) for key, edges in sorted(by_ends.items())]


def _folded_edge(source: NodeId, target: NodeId, edges: Sequence[FlowEdge]) -> FlowEdge:
    worst = max(edges, key=lambda edge: health_rank(edge.health))
    if len(edges) == 1:
        return replace(worst, source=source, target=target)
    rates = [edge.rate for edge in edges if edge.rate is not None]
    groups = {edge.group for edge in edges}
    latencies = [edge.latency for edge in edges if edge.latency.p95_ms is not None]
    return replace(
        worst,
        source=source,
        target=target,
        group=groups.pop() if len(groups) == 1 else "",
        rate=sum(rates) if rates else None,
        latency=max(latencies, key=lambda latency: latency.p95_ms or 0.0, default=UNKNOWN_LATENCY),
        last_ms=max((edge.last_ms for edge in edges if edge.last_ms is not None), default=None),
    )
