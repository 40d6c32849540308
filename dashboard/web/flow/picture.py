"""The picture and the tables of a flow: the context of `templates/pipelines/_flow.html`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.urls import reverse
from django.utils.http import urlencode

from dashboard.labels.flow import HEALTH_LABELS, LINK_WORDS
from dashboard.labels.status import StatusLabel
from dashboard.runtime.criteria import LONGEST_SEARCH
from dashboard.web import addresses
from dashboard.web.flow.layout import BOX_HEIGHT, BOX_WIDTH, FlowBox, FlowLine, draw_flow
from fenceline.flow.graph import (
    Flow,
    FlowEdge,
    FlowHealth,
    FlowNode,
    Latency,
    LinkKind,
    NodeId,
    NodeKind,
    RateUnit,
    health_rank,
)
from fenceline.flow.pipelines import Pipeline
from fenceline.formatting import count_noun, format_duration, list_names, shorten

#: Maximum characters of a label in a box, and beside an edge.
_IN_BOX, _BESIDE = 21, 13
#: Maximum edges with words beside each: with more the words overlap.
_MOST_WORDS = 60
#: Maximum rows of the tables; the worst come first.
MOST_ROWS, MOST_PIPELINES = 200, 30
#: Nodes that the name of a long pipeline shows at each end.
_NAMED = 3
_UNITS = {RateUnit.TRANSACTIONS: "tx/min", RateUnit.RECORDS: "records/min"}


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A box of the picture."""

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
        return shorten(self.box.node.detail or self.box.node.id.kind.value, _IN_BOX + 3)

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
class DrawnEdge:
    """A line of the picture, and a row of its table."""

    edge: FlowEdge
    look: StatusLabel
    source: FlowNode
    target: FlowNode
    source_url: str
    target_url: str
    group_url: str
    line: FlowLine | None = None
    #: The words beside the line.
    beside: str = ""

    @property
    def how(self) -> str:
        """Return how it was observed."""
        return LINK_WORDS[self.edge.kind]

    @property
    def rate_words(self) -> str:
        """Return its rate with its unit, "" where it is not known."""
        return "" if self.edge.rate is None else f"{_number(self.edge.rate)} {_UNITS[self.edge.rate_unit]}"

    @property
    def p50(self) -> str:
        return latency_words(self.edge.latency)[0]

    @property
    def p95(self) -> str:
        return latency_words(self.edge.latency)[1]

    @property
    def words(self) -> str:
        """Return one line of text about it."""
        through = f" through group {self.edge.group}" if self.edge.group else ""
        reason = f": {self.edge.reason}" if self.edge.reason else ""
        return f"{self.source.label} to {self.target.label}{through}, {self.look.words}{reason}"


@dataclass(frozen=True, slots=True)
class PipelineRow:
    """A row of the table of pipelines."""

    of: Pipeline
    name: str
    look: StatusLabel
    url: str
    p50: str
    p95: str
    missing: str

    @property
    def more_starts(self) -> str:
        """Return `+2 more sources` for a pipeline with several sources, else ""."""
        more = self.of.starts - 1
        return f"+{count_noun(more, 'more source')}" if more else ""


@dataclass(frozen=True, slots=True)
class FlowPicture:
    """The picture of one cluster's flow: nodes and edges as drawn, and edges as a table, the worst first."""

    cluster: str
    name: str
    nodes: Sequence[DrawnNode]
    edges: Sequence[DrawnEdge]
    rows: Sequence[DrawnEdge]
    width: int
    height: int
    words: str
    box_width: int = BOX_WIDTH
    box_height: int = BOX_HEIGHT


def flow_picture(cluster: str, flow: Flow, name: str = "flow") -> FlowPicture:
    """Return the picture of a flow; `name` begins the ids of its elements."""
    drawing = draw_flow(flow)
    labelled = _labelled(flow)
    edges = [_drawn(cluster, flow, line.edge, line, labelled=line.edge in labelled) for line in drawing.lines]
    # The worst edge is drawn last, over the others.
    edges.sort(key=lambda row: health_rank(row.edge.health))
    return FlowPicture(
        cluster,
        name,
        [_boxed(cluster, box) for box in drawing.boxes],
        edges,
        sorted(edges, key=lambda row: (-health_rank(row.edge.health), row.edge.ends))[:MOST_ROWS],
        drawing.width,
        drawing.height,
        _words(flow),
    )


def pipeline_rows(cluster: str, pipelines: Sequence[Pipeline]) -> Sequence[PipelineRow]:
    """Return the rows of pipelines, in their order, up to a limit."""
    return [
        PipelineRow(
            pipeline,
            path_name(pipeline),
            HEALTH_LABELS[pipeline.health],
            focus_url(cluster, pipeline.end.id),
            *latency_words(pipeline.latency),
            list_names(pipeline.missing),
        )
        for pipeline in pipelines[:MOST_PIPELINES]
    ]


def path_name(of: Pipeline) -> str:
    """Return `orders → orders_enrich → orders_enriched`; for a long path its first and last nodes."""
    labels = [node.label for node in of.path]
    if len(labels) > 2 * _NAMED + 1:
        labels = [*labels[:_NAMED], f"{len(labels) - 2 * _NAMED} more", *labels[-_NAMED:]]
    return " → ".join(labels)


def latency_words(latency: Latency) -> tuple[str, str]:
    """Return p50 and p95 in words, "—" where not known."""
    return tuple("—" if ms is None else format_duration(round(ms)) for ms in latency)  # type: ignore[return-value]


def focus_url(cluster: str, node: NodeId) -> str:
    """Return the address of the flow around a node."""
    return f"{reverse('pipelines')}?{urlencode({'cluster': cluster, 'focus': str(node)})}"


def _boxed(cluster: str, box: FlowBox) -> DrawnNode:
    return DrawnNode(box, HEALTH_LABELS[box.node.health], _node_url(cluster, box.node))


def _drawn(cluster: str, flow: Flow, edge: FlowEdge, line: FlowLine, *, labelled: bool) -> DrawnEdge:
    source, target = flow.nodes[edge.source], flow.nodes[edge.target]
    return DrawnEdge(
        edge,
        HEALTH_LABELS[edge.health],
        source,
        target,
        _row_url(cluster, source),
        _row_url(cluster, target),
        _group_url(cluster, edge.group) if edge.group else "",
        line,
        shorten(_beside(edge), _BESIDE) if labelled else "",
    )


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


def _row_url(cluster: str, node: FlowNode) -> str:
    return _fold_url(cluster, node) if node.number > 1 else focus_url(cluster, node.id)


def _node_url(cluster: str, node: FlowNode) -> str:
    """Return the page of a node; for a folded one, the list of its nodes."""
    if node.number > 1:
        return _fold_url(cluster, node)
    if node.id.kind is NodeKind.TOPIC:
        return (
            f"{reverse('partitions')}?{urlencode({'cluster': cluster, 'q': node.id.name[:LONGEST_SEARCH]})}"
        )
    if node.id.kind is NodeKind.GROUP:
        return _group_url(cluster, node.id.name)
    return addresses.subject_url(cluster, str(node.id))


def _fold_url(cluster: str, node: FlowNode) -> str:
    prefix = node.label.removesuffix("*")
    return f"{reverse('pipelines')}?{urlencode({'cluster': cluster, 'q': prefix[:LONGEST_SEARCH]})}"


def _group_url(cluster: str, family: str) -> str:
    """Return the page of a group; for a family of groups with random ids, its list."""
    if "*" in family:
        return f"{reverse('groups')}?{urlencode({'cluster': cluster, 'family': family})}"
    return addresses.group_url(cluster, family)


def _words(flow: Flow) -> str:
    """Return the picture in one sentence for screen readers."""
    counts = ", ".join(_counts(flow.nodes))
    blocked = sum(edge.health is FlowHealth.BLOCKED for edge in flow.edges)
    return f"{counts}; {len(flow.edges):,} edges, {blocked:,} blocked. The table below has the same."


def _counts(nodes: Mapping[NodeId, FlowNode]) -> Iterator[str]:
    for kind, one, several in (
        (NodeKind.APPLICATION, "application", "applications"),
        (NodeKind.TOPIC, "topic", "topics"),
        (NodeKind.GROUP, "group", "groups"),
        (NodeKind.QUERY, "Spark query", "Spark queries"),
    ):
        number = sum(node.number for node in nodes.values() if node.id.kind is kind)
        if number:
            yield f"{number:,} {one if number == 1 else several}"


def _number(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"
