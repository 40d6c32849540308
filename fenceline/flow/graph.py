"""The flow of one cluster as a graph: nodes, edges with their figures, and gaps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from fenceline.grouping import grouped


class NodeKind(StrEnum):
    """The kind of a node of the flow."""

    APPLICATION = "application"
    TOPIC = "topic"
    GROUP = "group"
    QUERY = "query"


class LinkKind(StrEnum):
    """The observation behind an edge."""

    #: An application's transactions name partitions of the topic.
    PRODUCES = "produces"
    #: An application's transactions commit a group's offsets for the topic (read-process-write).
    PROCESSES = "processes"
    #: A group has committed offsets for the topic, outside of any transaction.
    CONSUMES = "consumes"
    #: A streaming query's checkpoint or listener names the topic as a source.
    READS = "reads"
    #: A streaming query's sink writes to the topic: by its ledger, or by its transactions.
    WRITES = "writes"


class FlowHealth(StrEnum):
    """The health of a node or an edge, from harmless to worst."""

    OK = "ok"
    #: Too little is known.
    UNKNOWN = "unknown"
    WARNING = "warning"
    #: Records are blocked.
    BLOCKED = "blocked"


_RANKS = {health: number for number, health in enumerate(FlowHealth)}


class RateUnit(StrEnum):
    """The unit of a rate."""

    TRANSACTIONS = "transactions"
    RECORDS = "records"


class NodeId(NamedTuple):
    """A node's kind and name; its text form is a subject, `topic:orders`."""

    kind: NodeKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.name}"


class Latency(NamedTuple):
    """The 50th and the 95th percentile of durations, in ms; None if unknown."""

    p50_ms: float | None = None
    p95_ms: float | None = None


UNKNOWN_LATENCY = Latency()


@dataclass(frozen=True, slots=True)
class FlowNode:
    """An application, topic, group or query."""

    id: NodeId
    #: Its name on pages; a query's id is no name.
    label: str
    health: FlowHealth = FlowHealth.OK
    #: A short line: "4 partitions, 2 blocked".
    detail: str = ""
    #: The number of nodes that it represents; more than one for folded nodes of one prefix.
    number: int = 1

    @property
    def words(self) -> str:
        """Return its kind and its name: `topic orders`."""
        kind = "Spark query" if self.id.kind is NodeKind.QUERY else self.id.kind.value
        return f"{kind} {self.label}"


@dataclass(frozen=True, slots=True)
class FlowEdge:
    """Records flow from `source` to `target`."""

    source: NodeId
    target: NodeId
    kind: LinkKind
    health: FlowHealth = FlowHealth.OK
    #: Why it is not well, in a few words; "" if it is.
    reason: str = ""
    #: The group whose offsets a read-process-write application commits; "" for other edges.
    group: str = ""
    #: Per minute; None if unknown.
    rate: float | None = None
    rate_unit: RateUnit = RateUnit.TRANSACTIONS
    #: The time for which records stay unreadable, batches take, or consumers are behind.
    latency: Latency = UNKNOWN_LATENCY
    #: The last observation, in ms since 1970; None if unknown.
    last_ms: int | None = None

    @property
    def ends(self) -> tuple[NodeId, NodeId]:
        return self.source, self.target


class FlowGap(NamedTuple):
    """A part of a node, or of the whole flow (""), that could not be observed."""

    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class Flow:
    """Nodes by their ids, edges in the order of their ends, and gaps."""

    nodes: Mapping[NodeId, FlowNode] = field(default_factory=dict)
    edges: Sequence[FlowEdge] = ()
    gaps: Sequence[FlowGap] = ()

    def restricted_to(self, wanted: Collection[NodeId]) -> Flow:
        """Return the subgraph of the wanted nodes: the edges between them, and the gaps about them."""
        names = {str(node_id) for node_id in wanted}
        return Flow(
            {at: node for at, node in self.nodes.items() if at in wanted},
            [edge for edge in self.edges if edge.source in wanted and edge.target in wanted],
            [gap for gap in self.gaps if gap.subject in ("", *names)],
        )


def worst_health(healths: Iterable[FlowHealth]) -> FlowHealth:
    """Return the worst health; OK without any."""
    return max(healths, key=health_rank, default=FlowHealth.OK)


def health_rank(health: FlowHealth) -> int:
    """Return a number that grows with severity."""
    return _RANKS[health]


def nodes_after(edges: Iterable[FlowEdge]) -> Mapping[NodeId, Sequence[NodeId]]:
    return grouped((edge.source, edge.target) for edge in edges)


def nodes_before(edges: Iterable[FlowEdge]) -> Mapping[NodeId, Sequence[NodeId]]:
    return grouped((edge.target, edge.source) for edge in edges)


def reachable_from(starts: Iterable[NodeId], steps: Mapping[NodeId, Sequence[NodeId]]) -> set[NodeId]:
    """Return the start nodes and all nodes reachable from them. The graph may have cycles."""
    reached = set(starts)
    waiting = list(reached)
    while waiting:
        for node in steps.get(waiting.pop(), ()):
            if node not in reached:
                reached.add(node)
                waiting.append(node)
    return reached


def feedback_edges(nodes: Iterable[NodeId], edges: Iterable[FlowEdge]) -> set[tuple[NodeId, NodeId]]:
    """Return the edges that close a cycle on a depth-first walk; without them there is no cycle.

    The walk starts at nodes without a source, then takes the others. Both are sorted, so the same flow gives
    the same edges.
    """
    pairs = sorted({edge.ends for edge in edges})
    steps = grouped(pairs)
    targets = {target for _, target in pairs}
    closing: set[tuple[NodeId, NodeId]] = set()
    done: set[NodeId] = set()
    for start in sorted(nodes, key=lambda node: (node in targets, node)):
        if start not in done:
            closing.update(_leading_back(start, steps, done))
    return closing


def _leading_back(
    start: NodeId, steps: Mapping[NodeId, Sequence[NodeId]], done: set[NodeId]
) -> Iterator[tuple[NodeId, NodeId]]:
    """Walk depth-first from a node. The walk is iterative, because a path may contain all nodes."""
    on_path, walk = {start}, [(start, iter(steps.get(start, ())))]
    while walk:
        node, rest = walk[-1]
        target = next(rest, None)
        if target is None:
            walk.pop()
            on_path.discard(node)
            done.add(node)
        elif target in on_path:
            yield node, target
        elif target not in done:
            on_path.add(target)
            walk.append((target, iter(steps.get(target, ()))))
