"""An unfolded pipeline: its links in order with audited batches, and its proof, for `_details.html`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django.urls import reverse
from django.utils.http import urlencode

from dashboard.labels.flow import AUDIT_LABELS, GUARANTEE_LABELS, HEALTH_LABELS, LINK_WORDS
from dashboard.labels.status import StatusLabel
from dashboard.runtime.paging import Number, Page, page_of
from dashboard.web import addresses
from dashboard.web.flow.picture import family_url, focus_url, latency_words, node_url
from dashboard.web.flow.rows import ListedPipeline, audit_name
from dashboard.web.templatetags.fenceline import rate as rate_words
from fenceline.audit.manifest import DUPLICATE_KEYS, LOSS_KEYS, AuditedBatch, AuditedRange, AuditManifest
from fenceline.flow.graph import (
    Flow,
    FlowEdge,
    FlowHealth,
    FlowNode,
    NodeId,
    NodeKind,
    RateUnit,
    health_rank,
    nodes_before,
    reachable_from,
)
from fenceline.flow.guarantee import LinkGuarantee, edge_guarantee
from fenceline.flow.pipelines import Pipeline
from fenceline.flow.proof import PipelineProof

#: Maximum batches of a page of an audit, ranges of a cell, and links beside the way.
_BATCHES, _MOST_RANGES, _MOST_BESIDE = 10, 3, 20
_UNITS = {RateUnit.TRANSACTIONS: "tx/min", RateUnit.RECORDS: "records/min"}


@dataclass(frozen=True, slots=True)
class RangeLink:
    """A range of offsets, and the page of its partition."""

    words: str
    url: str


class RecordCount(NamedTuple):
    """A cell of a batch: its heading on phones, the number of records, and their ranges."""

    words: str
    number: int | None
    ranges: Sequence[RangeLink] = ()


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A row of the table of an audit's batches."""

    of: AuditedBatch
    look: StatusLabel
    url: str
    counts: Sequence[RecordCount]


@dataclass(frozen=True, slots=True)
class AuditTable:
    """A page of the batches of one audit, the newest first; an audit by keys has none."""

    of: AuditManifest
    name: str
    look: StatusLabel
    page: Page[BatchRow]
    duplicates: Sequence[RangeLink]
    losses: Sequence[RangeLink]

    @property
    def keys_at(self) -> Sequence[str]:
        """Return the place of the job's keys of tables: keys are payload, which this page does not show."""
        part = self.of.parts[-1] if self.of.parts else ""
        keys = ((LOSS_KEYS, self.of.loss_keys), (DUPLICATE_KEYS, self.of.duplicate_keys))
        return [f"parts/part={part}/table={name}" for name, known in keys if known]


@dataclass(frozen=True, slots=True)
class LinkRow:
    """One link: its guarantee, the observed edge, and the audits that end with it.

    Producers outside of transactions, and a query's sink without a topic, have no edge.
    """

    of: LinkGuarantee
    look: StatusLabel
    edge: FlowEdge | None = None
    source_url: str = ""
    target_url: str = ""
    group_url: str = ""
    audits: Sequence[AuditTable] = ()

    @property
    def health(self) -> StatusLabel | None:
        """Return its health unless it is well."""
        return (
            HEALTH_LABELS[self.edge.health] if self.edge and self.edge.health is not FlowHealth.OK else None
        )

    @property
    def figures(self) -> str:
        """Return `12 tx/min · p50 900 ms · p95 3 s`, without unknown figures."""
        if self.edge is None:
            return ""
        rate, unit = self.edge.rate, _UNITS[self.edge.rate_unit]
        p50, p95 = latency_words(self.edge.latency)
        known = "" if self.edge.latency.p95_ms is None else f"p50 {p50} · p95 {p95}"
        return " · ".join(filter(None, ("" if rate is None else f"{rate_words(rate)} {unit}", known)))

    @property
    def how(self) -> str:
        """Return the way in which it was observed."""
        return LINK_WORDS[self.edge.kind] if self.edge else ""


@dataclass(frozen=True, slots=True)
class PipelineDetails:
    """The content of an unfolded row; `proof` is None for an audit of no pipeline."""

    proof: PipelineProof | None
    links: Sequence[LinkRow]
    #: Other links to its end, the worst first, and the number of further ones.
    beside: Sequence[LinkRow]
    more_beside: int
    #: Audits that belong to none of its links.
    audits: Sequence[AuditTable]
    focus: str
    download: str


def pipeline_details(chosen: ListedPipeline, batches: Number) -> PipelineDetails:
    """Return the details of a pipeline; `batches` is the requested page of its audits' batches."""
    tables = [_table(chosen, audit, batches) for audit in chosen.audits]
    if chosen.proof is None:
        return PipelineDetails(None, (), (), 0, tables, "", "")
    pipeline, cluster = chosen.proof.pipeline, chosen.of.cluster
    beside = _beside(chosen.of.flow, pipeline)
    ends = [_proved_edge(pipeline, audit) for audit in chosen.audits]
    return PipelineDetails(
        chosen.proof,
        list(_links(chosen, chosen.proof, list(zip(ends, tables, strict=True)))),
        [_edge_row(chosen, edge) for edge in beside[:_MOST_BESIDE]],
        len(beside[_MOST_BESIDE:]),
        [],
        focus_url(cluster, pipeline.end.id),
        f"{reverse('pipeline-proof')}?{urlencode({'cluster': cluster, 'end': str(pipeline.end.id)})}",
    )


def _links(
    of: ListedPipeline, proof: PipelineProof, audits: Sequence[tuple[FlowEdge, AuditTable]]
) -> Iterator[LinkRow]:
    """Yield the links of the way, with its edges in order."""
    edges = list(proof.pipeline.edges)
    nodes = of.of.flow.nodes
    for link in proof.guarantee.links:
        edge = edges[0] if edges else None
        if edge and (nodes[edge.source].label, nodes[edge.target].label) == (link.source, link.target):
            edges.pop(0)
            yield _link_row(of, link, edge, [table for end, table in audits if end is edge])
        else:
            yield LinkRow(link, GUARANTEE_LABELS[link.guarantee])


def _edge_row(of: ListedPipeline, edge: FlowEdge) -> LinkRow:
    nodes = of.of.flow.nodes
    labels = nodes[edge.source].label, nodes[edge.target].label
    return _link_row(of, LinkGuarantee(*labels, *edge_guarantee(edge, of.of.facts)), edge)


def _link_row(
    of: ListedPipeline, link: LinkGuarantee, edge: FlowEdge, audits: Sequence[AuditTable] = ()
) -> LinkRow:
    def page(node: FlowNode) -> str:
        return node_url(of.of.cluster, node)

    nodes = of.of.flow.nodes
    group = family_url(of.of.cluster, edge.group) if edge.group else ""
    ends = page(nodes[edge.source]), page(nodes[edge.target])
    return LinkRow(link, GUARANTEE_LABELS[link.guarantee], edge, *ends, group, audits)


def _beside(flow: Flow, of: Pipeline) -> Sequence[FlowEdge]:
    """Return the edges to a pipeline's end that are not on its way, the worst first."""
    upstream = reachable_from([of.end.id], nodes_before(flow.edges))
    way = set(of.edges)
    edges = [edge for edge in flow.edges if edge.target in upstream and edge not in way]
    return sorted(edges, key=lambda edge: (-health_rank(edge.health), edge.ends))


def _proved_edge(of: Pipeline, audit: AuditManifest) -> FlowEdge:
    """Return the edge at the end of an audited part: into its target, else into its query."""
    targets = {NodeId(NodeKind.TOPIC, name) for name in audit.targets}
    query = NodeId(NodeKind.QUERY, audit.query_id)
    ends = [edge for edge in of.edges if edge.target in targets]
    return next(reversed(ends or [edge for edge in of.edges if edge.target == query] or list(of.edges)))


def _table(of: ListedPipeline, audit: AuditManifest, batches: Number) -> AuditTable:
    cluster = of.of.cluster
    ident = audit.query_id if NodeId(NodeKind.QUERY, audit.query_id) in of.of.flow.nodes else ""
    page = page_of(audit.batches, batches, _BATCHES)
    return AuditTable(
        audit,
        audit_name(audit, of.of),
        AUDIT_LABELS[audit.verdict],
        page.with_items([_batch_row(cluster, batch, ident) for batch in page.items]),
        list(_range_links(cluster, audit.duplicates)),
        list(_range_links(cluster, audit.losses)),
    )


def _batch_row(cluster: str, batch: AuditedBatch, ident: str) -> BatchRow:
    return BatchRow(
        batch,
        AUDIT_LABELS[batch.verdict],
        addresses.batch_url(cluster, ident, batch.batch_id) if ident else "",
        [
            RecordCount("input", batch.input),
            RecordCount("dropped", batch.dropped),
            RecordCount("written", batch.written),
            RecordCount("committed", batch.committed),
            RecordCount("readable", batch.readable),
            RecordCount("duplicates", batch.duplicated, list(_range_links(cluster, batch.duplicates))),
            RecordCount("missing", batch.missing, list(_range_links(cluster, batch.losses))),
        ],
    )


def _range_links(cluster: str, ranges: Iterable[AuditedRange]) -> Iterator[RangeLink]:
    for topic, partition, first, end in list(ranges)[:_MOST_RANGES]:
        offsets = f"{first:,}" if end - 1 <= first else f"{first:,}–{end - 1:,}"
        yield RangeLink(f"{topic}-{partition}: {offsets}", addresses.partition_url(cluster, topic, partition))
