"""The layout of a flow: nodes in layers from left to right. The same flow gets the same drawing.

Layers come from networkx (`topological_generations` of the flow without the backward edges of cycles): a node
is right of all its predecessors. Nodes of a layer are ordered by their neighbours' positions. An edge that
passes a layer gets its own place there, so that it runs beside nodes, not behind them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import networkx as nx

from fenceline.flow.graph import Flow, FlowEdge, FlowNode, NodeId, feedback_edges, health_rank

BOX_WIDTH, BOX_HEIGHT = 138, 42
_COLUMN, _ROW, _PASSING, _MARGIN = BOX_WIDTH + 82, BOX_HEIGHT + 16, 26, 14
#: The depth of the curve of a backward edge below its nodes.
_DROP = 30
_ARROW = 7
#: Number of passes that improve the order of layers, and of places in them.
_SWEEPS, _RELAXATIONS = 6, 4

#: A node, or the place of an edge in a layer that it passes: source, target and layer.
_Item = NodeId | tuple[NodeId, NodeId, int]


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
