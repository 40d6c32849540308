"""The picture of a flow: the context of `templates/pipelines/_flow.html`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from django.utils.http import urlencode

from dashboard.labels.flow import HEALTH_LABELS
from dashboard.labels.status import StatusLabel
from dashboard.runtime.criteria import LONGEST_SEARCH
from dashboard.web import addresses
from dashboard.web.flow.layout import BOX_HEIGHT, BOX_WIDTH, FlowBox, draw_flow
from fenceline.flow.graph import (
    Flow,
    FlowEdge,
    FlowHealth,
    FlowNode,
    Latency,
    LinkKind,
    NodeId,
    NodeKind,
    health_rank,
)
from fenceline.formatting import format_duration, shorten

#: Maximum characters of a label in a box, and beside an edge.
_IN_BOX, _BESIDE = 21, 13
#: Maximum edges with words beside each: with more the words overlap.
_MOST_WORDS = 60


@dataclass(frozen=True, slots=True)
class DrawnNode:
    box: FlowBox
    look: StatusLabel
    url: str

    @property
    def label(self) -> str:
        """Return its name, shortened to fit."""
        return shorten(self.box.node.label, _IN_BOX)

    @property
    def detail(self) -> str:
        """Return its second line, shortened to fit."""
        return shorten(self.box.node.detail or self.box.node.id.kind.value, _IN_BOX + 1)

    @property
    def words(self) -> str:
        """Return one line of text about it."""
        node = self.box.node
        parts = [f"{node.words}", self.look.words, node.detail]
        return ", ".join(filter(None, parts))

    @property
    def name(self) -> str:
        """Return its accessible name: the text in the box, then its kind (WCAG 2.5.3)."""
        return f"{self.label} {self.detail}: {self.box.node.words}, {self.look.words}"

    @property
    def text_x(self) -> float:
        return self.box.x + BOX_WIDTH / 2


@dataclass(frozen=True, slots=True)
class FlowPicture:
    """The picture of one cluster's flow: nodes and edges as drawn."""

    cluster: str
    name: str
    nodes: Sequence[DrawnNode]
    edges: Sequence[Mapping[str, Any]]
    width: int
    height: int
    columns: int
    words: str
    box_width: int = BOX_WIDTH
    box_height: int = BOX_HEIGHT


def flow_picture(
    cluster: str, flow: Flow, name: str = "flow", url_of: Callable[[str, FlowNode], str] | None = None
) -> FlowPicture:
    """Return the picture of a flow; `name` begins the ids of its elements.

    `url_of` returns the address of a node, by default its page.
    """
    drawing, url_of = draw_flow(flow), url_of or node_url
    labelled = _labelled(flow)
    # The worst edge is drawn last, over the others.
    lines = sorted(drawing.lines, key=lambda line: health_rank(line.edge.health))
    return FlowPicture(
        cluster,
        name,
        [DrawnNode(box, HEALTH_LABELS[box.node.health], url_of(cluster, box.node)) for box in drawing.boxes],
        [
            {
                "edge": line.edge,
                "words": _edge_words(flow, line.edge),
                "line": line,
                "beside": shorten(_beside(line.edge), _BESIDE) if line.edge in labelled else "",
            }
            for line in lines
        ],
        drawing.width,
        drawing.height,
        len({box.x for box in drawing.boxes}),
        _words(flow),
    )


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
