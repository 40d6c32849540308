"""The guarantee of each link of a pipeline, and the weakest one: derived from observations, never a guess.

| link | exactly once if | else |
|---|---|---|
| application → topic | its ids are transactional: such a producer cannot send outside a transaction | |
| topic → Spark query | the offsets are in its checkpoint, and it reads read_committed or an audit proves its output | at least once with asynchronous progress or read_uncommitted |
| Spark query → topic | our sink, whose ledger is complete | at least once without our sink, at most once if batches are lost |
| Spark query → its sink | an audit by keys proves the table that it writes to | |
| topic → group | its offsets are committed inside transactions, read_committed | at least once otherwise |
| topic → application | the same | at least once if it reads read_uncommitted |

A link without the needed observations is unknown. Records outside of transactions are a separate link.
"""  # noqa: E501 - a table

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from fenceline.facts import Isolation
from fenceline.flow.graph import FlowEdge, FlowNode, LinkKind, NodeKind
from fenceline.flow.observations import FlowObservations, GroupReads, ProducerKind, QueryLinks
from fenceline.flow.pipelines import Pipeline
from fenceline.grouping import grouped


class Guarantee(StrEnum):
    """How often a record passes a link, from the strongest guarantee to the weakest."""

    EXACTLY_ONCE = "exactly_once"
    #: Too little was observed.
    UNKNOWN = "unknown"
    #: Records may be repeated.
    AT_LEAST_ONCE = "at_least_once"
    #: Records may be missing.
    AT_MOST_ONCE = "at_most_once"


_RANKS = {guarantee: number for number, guarantee in enumerate(Guarantee)}

TRANSACTIONAL = "transactional, all sends inside transactions"
IDEMPOTENT = "idempotent only: a producer that restarts may send again"
PLAIN = "neither transactional nor idempotent: a retry may send again"
PRODUCERS_UNKNOWN = "its producers are not known: no transaction names it"
ISOLATION_UNKNOWN = "isolation of its readers is not known"
UNCOMMITTED = "read_uncommitted: records of aborted transactions are read"
IN_CHECKPOINT = "read_committed, offsets in the checkpoint"
CHECKPOINT_UNKNOWN = "its checkpoint was not read"
ASYNCHRONOUS = "progress is tracked asynchronously: batches may run again"
SINK_COMPLETE = "transactional sink, ledger complete"
SINK_PLAIN = "sink without transactions: a batch that runs again is written again"
SINK_UNKNOWN = "what its sink guarantees is not known"
LEDGER_DAMAGED = "transactional sink, files of its ledger cannot be read"
OUTSIDE = "offsets committed outside a transaction"
INSIDE = "offsets committed inside transactions (send_offsets_to_transaction)"
COMMITTER_UNKNOWN = "which producer commits its offsets is not known"

Reasoned = tuple[Guarantee, str]


class LinkGuarantee(NamedTuple):
    source: str
    target: str
    guarantee: Guarantee
    reason: str

    @property
    def name(self) -> str:
        """Return the link as `orders → billing`."""
        return f"{self.source} → {self.target}"


@dataclass(frozen=True, slots=True)
class PipelineGuarantee:
    """The links along a pipeline's path."""

    links: Sequence[LinkGuarantee]

    @property
    def weakest(self) -> LinkGuarantee:
        """Return the first of the weakest links. Known weakness outranks an unknown guarantee."""
        return max(self.links, key=lambda link: _RANKS[link.guarantee])

    @property
    def guarantee(self) -> Guarantee:
        return self.weakest.guarantee

    @property
    def unknown(self) -> int:
        """Return the number of links without a known guarantee."""
        return sum(link.guarantee is Guarantee.UNKNOWN for link in self.links)


class GuaranteeFacts:
    """The inputs of guarantees, by key; `proved` has the ids of queries that an audit proves."""

    def __init__(self, observed: FlowObservations, proved: Mapping[str, int] | None = None) -> None:
        self.queries = {query.ident: query for query in observed.queries}
        self.outside = observed.outside
        self.proved = proved or {}
        self.reads = grouped(((group.group, group.topic), group) for group in observed.groups)


def pipeline_guarantee(pipeline: Pipeline, facts: GuaranteeFacts) -> PipelineGuarantee:
    nodes = {node.id: node for node in pipeline.path}
    links = list(_into(pipeline.path[0], facts, starts=True))
    for edge in pipeline.edges:
        source, target = nodes[edge.source], nodes[edge.target]
        links.append(LinkGuarantee(source.label, target.label, *edge_guarantee(edge, facts)))
        links += _into(target, facts)
    if pipeline.end.id.kind is NodeKind.QUERY:
        ident = pipeline.end.id.name
        written = _into_sink(facts.queries[ident], facts.proved.get(ident))
        links.append(LinkGuarantee(pipeline.end.label, "its sink", *written))
    return PipelineGuarantee(links)


def _into(node: FlowNode, facts: GuaranteeFacts, *, starts: bool = False) -> Iterator[LinkGuarantee]:
    """Yield the writers of a topic outside of transactions; an unknown one if no writer was observed."""
    if node.id.kind is not NodeKind.TOPIC:
        return
    kind = facts.outside.get(node.id.name)
    if kind is not None:
        reason = IDEMPOTENT if kind is ProducerKind.IDEMPOTENT else PLAIN
        yield LinkGuarantee("other producers", node.label, Guarantee.AT_LEAST_ONCE, reason)
    elif starts:
        yield LinkGuarantee("producers", node.label, Guarantee.UNKNOWN, PRODUCERS_UNKNOWN)


def edge_guarantee(edge: FlowEdge, facts: GuaranteeFacts) -> Reasoned:
    if edge.kind is LinkKind.PRODUCES:
        return Guarantee.EXACTLY_ONCE, TRANSACTIONAL
    if edge.kind is LinkKind.READS:
        return _read(facts.queries[edge.target.name], facts.proved.get(edge.target.name))
    if edge.kind is LinkKind.WRITES:
        return _written(facts.queries[edge.source.name])
    reads = facts.reads[edge.group or edge.target.name, edge.source.name]
    if edge.kind is LinkKind.PROCESSES:
        reads = [group for group in reads if group.application == edge.target.name]
    return max(map(_consumed, reads), key=lambda answer: _RANKS[answer[0]])


def _read(query: QueryLinks, proved: int | None) -> Reasoned:
    if query.asynchronous:
        return Guarantee.AT_LEAST_ONCE, ASYNCHRONOUS
    if query.isolation is Isolation.READ_UNCOMMITTED:
        return Guarantee.AT_LEAST_ONCE, UNCOMMITTED
    if query.error or not query.checkpoint:
        return Guarantee.UNKNOWN, CHECKPOINT_UNKNOWN
    if query.isolation is Isolation.READ_COMMITTED:
        return Guarantee.EXACTLY_ONCE, IN_CHECKPOINT
    if proved is not None:
        return Guarantee.EXACTLY_ONCE, f"offsets in the checkpoint, audited through batch {proved:,}"
    return Guarantee.UNKNOWN, f"offsets in the checkpoint; {ISOLATION_UNKNOWN}"


def _written(query: QueryLinks) -> Reasoned:
    if query.sink == "kafka":
        return Guarantee.AT_LEAST_ONCE, SINK_PLAIN
    if query.sink != "exactly_once":
        return Guarantee.UNKNOWN, SINK_UNKNOWN
    if query.lost:
        return Guarantee.AT_MOST_ONCE, f"transactional sink, batches lost: {query.lost:,}"
    if query.ledger_damaged or query.error:
        return Guarantee.UNKNOWN, LEDGER_DAMAGED
    return Guarantee.EXACTLY_ONCE, SINK_COMPLETE


def _into_sink(query: QueryLinks, proved: int | None) -> Reasoned:
    """Return the guarantee of a query's sink without topics: only an audit reads tables."""
    written = _written(query)
    if proved is None or written[1] != SINK_UNKNOWN:
        return written
    return Guarantee.EXACTLY_ONCE, f"its output is audited through batch {proved:,}"


def _consumed(reads: GroupReads) -> Reasoned:
    if reads.application is None:
        return Guarantee.UNKNOWN, COMMITTER_UNKNOWN
    if not reads.application:
        return Guarantee.AT_LEAST_ONCE, OUTSIDE
    if reads.isolation is Isolation.READ_UNCOMMITTED:
        return Guarantee.AT_LEAST_ONCE, UNCOMMITTED
    if reads.isolation is Isolation.READ_COMMITTED:
        return Guarantee.EXACTLY_ONCE, INSIDE
    return Guarantee.UNKNOWN, f"{INSIDE}; {ISOLATION_UNKNOWN}"
