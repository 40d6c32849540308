"""The picture of a flow: the context of `templates/pipelines/_flow.html`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from django.urls import reverse

from dashboard.labels.flow import HEALTH_LABELS
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
    return reverse("pipelines", query={"cluster": cluster, "focus": str(node)})


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
        prefix = node.label.removesuffix("*")
        return reverse("pipelines", query={"cluster": cluster, "q": prefix[:LONGEST_SEARCH]})
    if node.id.kind is NodeKind.TOPIC:
        return reverse("partitions", query={"cluster": cluster, "q": node.id.name[:LONGEST_SEARCH]})
    if node.id.kind is NodeKind.GROUP:
        return family_url(cluster, node.id.name)
    return addresses.subject_url(cluster, str(node.id))


def family_url(cluster: str, family: str) -> str:
    """Return the page of a group; for a family of groups with random ids, its list."""
    if "*" in family:
        return reverse("groups", query={"cluster": cluster, "family": family})
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
