"""The picture of a flow: its layout, and the context of `templates/pipelines/_flow.html`. The same flow gets
the same drawing.

Layers come from networkx (`topological_generations` of the flow without the backward edges of cycles): a node
is right of all its predecessors. Nodes of a layer are ordered by their neighbours' positions. An edge that
passes a layer gets its own place there, so that it runs beside nodes, not behind them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import networkx as nx
from django.urls import reverse
from django.utils.http import urlencode

from dashboard.labels.flow import HEALTH_LABELS
from dashboard.runtime.criteria import LONGEST_SEARCH
from dashboard.web import addresses
from fenceline.flow.graph import (
    Flow,
    FlowEdge,
    FlowHealth,
    FlowNode,
    Latency,
    LinkKind,
    NodeId,
    NodeKind,
    feedback_edges,
    health_rank,
)
from fenceline.formatting import format_duration, shorten

BOX_WIDTH, BOX_HEIGHT = 138, 42
_COLUMN, _ROW, _PASSING, _MARGIN = BOX_WIDTH + 82, BOX_HEIGHT + 16, 26, 14
#: The depth of the curve of a backward edge below its nodes.
_DROP = 30
_ARROW = 7
#: Number of passes that improve the order of layers, and of places in them.
_SWEEPS, _RELAXATIONS = 6, 4

#: A node, or the place of an edge in a layer that it passes: source, target and layer.
_Item = NodeId | tuple[NodeId, NodeId, int]
#: Maximum characters of a label in a box, and beside an edge.
_IN_BOX, _BESIDE = 21, 13
#: Maximum edges with words beside each: with more the words overlap.
_MOST_WORDS = 60


@dataclass(frozen=True, slots=True)
class FlowBox:
    """A node and its rectangle: the upper left corner and the size."""

    node: FlowNode
    x: int
    y: int

    @property
    def middle(self) -> float:
        """Return the vertical position of its centre."""
        return self.y + BOX_HEIGHT / 2


@dataclass(frozen=True, slots=True)
class FlowLine:
    """An edge as a path, with its arrow and the position of its words."""

    edge: FlowEdge
    path: str
    arrow: str
    x: float
    y: float
    leads_back: bool = False


@dataclass(frozen=True, slots=True)
class FlowDrawing:
    """The whole layout, in pixels."""

    boxes: Sequence[FlowBox]
    lines: Sequence[FlowLine]
    width: int
    height: int


def draw_flow(flow: Flow) -> FlowDrawing:
    """Return the layout of all connected parts, the worst first."""
    back = feedback_edges(flow.nodes, flow.edges)
    graph = nx.DiGraph()
    graph.add_nodes_from(sorted(flow.nodes))
    graph.add_edges_from(sorted({edge.ends for edge in flow.edges} - back))
    whole = graph.copy()
    whole.add_edges_from(sorted(back))
    boxes: dict[NodeId, FlowBox] = {}
    passed: dict[_Item, float] = {}
    top = _MARGIN
    for part in sorted(nx.weakly_connected_components(whole), key=lambda part: _rank(part, flow)):
        layers, beside = _layered(graph.subgraph(part))
        heights = _placed(layers, beside)
        lowest = min(heights.values())
        for number, layer in enumerate(layers):
            for item in layer:
                y = round(heights[item] - lowest) + top
                if isinstance(item, NodeId):
                    boxes[item] = FlowBox(flow.nodes[item], _MARGIN + number * _COLUMN, y)
                else:
                    passed[item] = y + BOX_HEIGHT / 2
        bottom = max(box.y for at, box in boxes.items() if at in part)
        top = bottom + _ROW + (_DROP if any(ends[0] in part for ends in back) else 0)
    lines = [_line(edge, boxes, passed, edge.ends in back) for edge in flow.edges]
    width = max((box.x for box in boxes.values()), default=0) + BOX_WIDTH + _MARGIN
    return FlowDrawing(list(boxes.values()), lines, width, top)


def _rank(part: Iterable[NodeId], flow: Flow) -> tuple[int, int, NodeId]:
    nodes = sorted(part)
    return -max(health_rank(flow.nodes[node].health) for node in nodes), -len(nodes), nodes[0]


_Layers = list[list[_Item]]
#: Each item's neighbours in the layers before and after.
_Neighbours = Mapping[_Item, tuple[list[_Item], list[_Item]]]


def _layered(graph: nx.DiGraph) -> tuple[_Layers, _Neighbours]:
    """Return nodes by layer, with places for edges that pass a layer; sources are next to their targets."""
    layer = _layer_numbers(graph)
    layers: list[list[_Item]] = [[] for _ in range(max(layer.values()) + 1)]
    for node in sorted(graph):
        layers[layer[node]].append(node)
    beside: dict[_Item, tuple[list[_Item], list[_Item]]] = defaultdict(lambda: ([], []))
    for source, target in sorted(graph.edges):
        way: list[_Item] = [source]
        for number in range(layer[source] + 1, layer[target]):
            layers[number].append((source, target, number))
            way.append((source, target, number))
        for left, right in pairwise([*way, target]):
            beside[left][1].append(right)
            beside[right][0].append(left)
    for sweep in range(_SWEEPS):
        _order_layers(layers, beside, forward=sweep % 2 == 0)
    return layers, beside


def _layer_numbers(graph: nx.DiGraph) -> Mapping[NodeId, int]:
    layer: dict[NodeId, int] = {}
    for number, generation in enumerate(nx.topological_generations(graph)):
        layer |= dict.fromkeys(generation, number)
    for node in sorted(graph):
        if not graph.in_degree(node) and graph.out_degree(node):
            layer[node] = min(layer[target] for target in graph.successors(node)) - 1
    first = min(layer.values())
    return {node: number - first for node, number in layer.items()}


def _order_layers(layers: _Layers, beside: _Neighbours, *, forward: bool) -> None:
    """Order each layer by the mean place of its items' neighbours in the layer before."""
    count, side = len(layers), 0 if forward else 1
    for number in range(1, count) if forward else range(count - 2, -1, -1):
        near = layers[number - 1 if forward else number + 1]
        place = {item: at for at, item in enumerate(near)}
        own = {item: at for at, item in enumerate(layers[number])}
        by = {item: _mean([place[neighbour] for neighbour in beside[item][side]], own[item]) for item in own}
        layers[number].sort(key=by.__getitem__)


def _placed(layers: _Layers, beside: _Neighbours) -> Mapping[_Item, float]:
    """Return the vertical position of each item: near its neighbours, at least one row apart."""
    heights: dict[_Item, float] = {}
    for layer in layers:
        at = 0.0
        for item in layer:
            heights[item] = at
            at += _room(item)
    for turn in range(_RELAXATIONS):
        side = turn % 2
        for layer in layers if side == 0 else reversed(layers):
            wanted = [
                _mean([heights[neighbour] for neighbour in beside[item][side]], heights[item])
                for item in layer
            ]
            heights |= zip(layer, _apart(wanted, [_room(item) for item in layer]), strict=True)
    return heights


def _apart(wanted: Sequence[float], rooms: Sequence[float]) -> Sequence[float]:
    """Return the positions nearest to the wanted ones that keep order and spacing.

    The pool adjacent violators algorithm: least squares of a monotonic sequence.
    """
    starts = [0.0, *accumulate(rooms)][: len(rooms)]
    pools: list[tuple[float, int]] = []
    for height, start in zip(wanted, starts, strict=True):
        mean, number = height - start, 1
        while pools and pools[-1][0] > mean:
            before, count = pools.pop()
            mean, number = (before * count + mean * number) / (count + number), count + number
        pools.append((mean, number))
    means = [mean for mean, number in pools for _ in range(number)]
    return [mean + start for mean, start in zip(means, starts, strict=True)]


def _room(item: _Item) -> float:
    return _ROW if isinstance(item, NodeId) else _PASSING


def _mean(places: Sequence[float], otherwise: float) -> float:
    return sum(places) / len(places) if places else otherwise


def _line(
    edge: FlowEdge, boxes: Mapping[NodeId, FlowBox], passed: Mapping[_Item, float], leads_back: bool
) -> FlowLine:
    source, target = boxes[edge.source], boxes[edge.target]
    if leads_back:
        return _line_back(edge, source, target)
    points = [(source.x + BOX_WIDTH, source.middle)]
    first, last = _layer(source) + 1, _layer(target)
    for number in range(first, last):
        y = passed[edge.source, edge.target, number]
        left = _MARGIN + number * _COLUMN
        points += [(left, y), (left + BOX_WIDTH, y)]
    points.append((target.x - _ARROW, target.middle))
    path = f"M{points[0][0]:.0f} {points[0][1]:.0f}" + "".join(_curves(points))
    arrow = f"M{target.x} {target.middle:.0f}l-{_ARROW} -4v8z"
    # Its words are in the gap before its target, above its end.
    return FlowLine(edge, path, arrow, target.x - (_COLUMN - BOX_WIDTH) / 2, target.middle - 6)


def _curves(points: Sequence[tuple[float, float]]) -> Iterator[str]:
    for (x1, y1), (x2, y2) in pairwise(points):
        bend = (x2 - x1) / 2
        yield f"C{x1 + bend:.0f} {y1:.0f} {x2 - bend:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"


def _line_back(edge: FlowEdge, source: FlowBox, target: FlowBox) -> FlowLine:
    """Draw a backward edge: from below its source to below its target."""
    x1, x2 = source.x + BOX_WIDTH / 2, target.x + BOX_WIDTH / 2
    y1, y2 = source.y + BOX_HEIGHT, target.y + BOX_HEIGHT + _ARROW
    low = max(y1, y2) + _DROP
    path = f"M{x1:.0f} {y1}C{x1:.0f} {low} {x2:.0f} {low} {x2:.0f} {y2}"
    arrow = f"M{x2:.0f} {y2 - _ARROW}l-4 {_ARROW}h8z"
    return FlowLine(edge, path, arrow, (x1 + x2) / 2, low - 8, leads_back=True)


def _layer(box: FlowBox) -> int:
    return (box.x - _MARGIN) // _COLUMN


def flow_picture(
    cluster: str, flow: Flow, name: str, url_of: Callable[[str, FlowNode], str] | None = None
) -> Mapping[str, Any]:
    """Return the picture of one cluster's flow; `name` begins the ids of its elements.

    `url_of` returns the address of a node, by default its page.
    """
    drawing, url_of = draw_flow(flow), url_of or node_url
    labelled = _labelled(flow)
    # The worst edge is drawn last, over the others.
    lines = sorted(drawing.lines, key=lambda line: health_rank(line.edge.health))
    return {
        "cluster": cluster,
        "name": name,
        "nodes": [{**_drawn(box), "url": url_of(cluster, box.node)} for box in drawing.boxes],
        "edges": [
            {
                "edge": line.edge,
                "words": _edge_words(flow, line.edge),
                "line": line,
                "beside": shorten(_beside(line.edge), _BESIDE) if line.edge in labelled else "",
            }
            for line in lines
        ],
        "width": drawing.width,
        "height": drawing.height,
        "columns": len({box.x for box in drawing.boxes}),
        "words": _words(flow),
        "box_width": BOX_WIDTH,
        "box_height": BOX_HEIGHT,
    }


def _drawn(box: FlowBox) -> Mapping[str, Any]:
    node, health = box.node, HEALTH_LABELS[box.node.health].words
    label = shorten(node.label, _IN_BOX)
    detail = shorten(node.detail or node.id.kind.value, _IN_BOX + 1)
    return {
        "box": box,
        "label": label,
        "detail": detail,
        "words": ", ".join(filter(None, (node.words, health, node.detail))),
        # Its accessible name: the text in the box, then its kind (WCAG 2.5.3).
        "name": f"{label} {detail}: {node.words}, {health}",
        "text_x": box.x + BOX_WIDTH / 2,
    }


def latency_words(latency: Latency) -> tuple[str, str]:
    """Return p50 and p95 as text, "—" if unknown."""
    return tuple("—" if ms is None else format_duration(round(ms)) for ms in latency)  # type: ignore[return-value]


def focus_url(cluster: str, node: NodeId) -> str:
    """Return the address of the flow around a node."""
    return f"{reverse('pipelines')}?{urlencode({'cluster': cluster, 'focus': str(node)})}"


def _edge_words(flow: Flow, edge: FlowEdge) -> str:
    through = f" through group {edge.group}" if edge.group else ""
    reason = f": {edge.reason}" if edge.reason else ""
    ends = f"{flow.nodes[edge.source].label} to {flow.nodes[edge.target].label}"
    return f"{ends}{through}, {HEALTH_LABELS[edge.health].words}{reason}"


def _labelled(flow: Flow) -> set[FlowEdge]:
    """Return the edges with words: with many edges, the worst into each node."""
    if len(flow.edges) > _MOST_WORDS:
        return set()
    by_target: dict[NodeId, FlowEdge] = {}
    for edge in sorted(
        flow.edges, key=lambda candidate: (health_rank(candidate.health), candidate.latency.p95_ms or 0)
    ):
        by_target[edge.target] = edge
    return set(by_target.values())


def _beside(edge: FlowEdge) -> str:
    if edge.health in (FlowHealth.BLOCKED, FlowHealth.WARNING):
        return edge.health.value
    if edge.kind is LinkKind.PROCESSES:
        return edge.group
    p95_ms = edge.latency.p95_ms
    return "" if p95_ms is None else f"p95 {format_duration(round(p95_ms))}"


def node_url(cluster: str, node: FlowNode) -> str:
    """Return the page of a node; for a folded one, the list of its nodes."""
    if node.number > 1:
        return _fold_url(cluster, node)
    if node.id.kind is NodeKind.TOPIC:
        return (
            f"{reverse('partitions')}?{urlencode({'cluster': cluster, 'q': node.id.name[:LONGEST_SEARCH]})}"
        )
    if node.id.kind is NodeKind.GROUP:
        return family_url(cluster, node.id.name)
    return addresses.subject_url(cluster, str(node.id))


def _fold_url(cluster: str, node: FlowNode) -> str:
    prefix = node.label.removesuffix("*")
    return f"{reverse('pipelines')}?{urlencode({'cluster': cluster, 'q': prefix[:LONGEST_SEARCH]})}"


def family_url(cluster: str, family: str) -> str:
    """Return the page of a group; for a family of groups with random ids, its list."""
    if "*" in family:
        return f"{reverse('groups')}?{urlencode({'cluster': cluster, 'family': family})}"
    return addresses.group_url(cluster, family)


def _words(flow: Flow) -> str:
    """Return the picture in one sentence for screen readers."""
    counts = ", ".join(_counts(flow.nodes))
    blocked = sum(edge.health is FlowHealth.BLOCKED for edge in flow.edges)
    return f"{counts}; {len(flow.edges):,} edges, {blocked:,} blocked."


def _counts(nodes: Mapping[NodeId, FlowNode]) -> Iterator[str]:
    for kind, singular, plural in (
        (NodeKind.APPLICATION, "application", "applications"),
        (NodeKind.TOPIC, "topic", "topics"),
        (NodeKind.GROUP, "group", "groups"),
        (NodeKind.QUERY, "Spark query", "Spark queries"),
    ):
        number = sum(node.number for node in nodes.values() if node.id.kind is kind)
        if number:
            yield f"{number:,} {singular if number == 1 else plural}"
