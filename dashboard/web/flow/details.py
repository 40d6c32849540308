"""The list of pipelines, a row for each, and the unfolded one: its links in order with audited batches, and
its proof. The context of `_list.html` and `_details.html`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from django.urls import reverse

from dashboard.labels.flow import AUDIT_LABELS, GUARANTEE_LABELS, HEALTH_LABELS, LINK_WORDS, proof_label
from dashboard.runtime.criteria import Number, Page, page_of
from dashboard.web import addresses
from dashboard.web.flow.picture import family_url, focus_url, latency_words, node_url
from dashboard.web.templatetags.fenceline import rate as rate_words
from fenceline.audit.manifest import (
    DUPLICATE_KEYS,
    LOSS_KEYS,
    AuditedBatch,
    AuditedRange,
    AuditManifest,
    AuditVerdict,
)
from fenceline.flow.graph import (
    Flow,
    FlowEdge,
    FlowHealth,
    NodeId,
    NodeKind,
    RateUnit,
    health_rank,
    nodes_before,
    reachable_from,
)
from fenceline.flow.pipelines import Pipeline
from fenceline.flow.proof import Guarantee, GuaranteeFacts, LinkGuarantee, PipelineProof, edge_guarantee
from fenceline.formatting import count_noun, list_names

#: Rows per page of the list.
ROWS = 20
#: Nodes that the name of a long pipeline shows at each end.
_NAMED = 3


class ClusterPipelines(NamedTuple):
    """The pipelines of a cluster with their proofs, and the flow that contains them."""

    cluster: str
    flow: Flow
    facts: GuaranteeFacts
    proofs: Sequence[PipelineProof]
    #: Audits of no pipeline in `proofs`: of other ways, or of topics without present traffic.
    others: Sequence[AuditManifest]


class ListedPipeline(NamedTuple):
    """A pipeline of the list; `proof` is None for an audit without a pipeline."""

    of: ClusterPipelines
    proof: PipelineProof | None
    audits: Sequence[AuditManifest]

    @property
    def key(self) -> str:
        """Return its key in addresses: its end as `group:billing`, or the audit's name."""
        return str(self.proof.pipeline.end.id) if self.proof else self.audits[0].pipeline


def list_pipelines(clusters: Iterable[ClusterPipelines]) -> Sequence[ListedPipeline]:
    """Return the pipelines of all clusters, sorted by need for attention; then audits without a pipeline."""
    clusters = list(clusters)
    listed = [ListedPipeline(of, proof, proof.audits) for of in clusters for proof in of.proofs]
    others = [ListedPipeline(of, None, [audit]) for of in clusters for audit in of.others]
    # Each cluster's pipelines are in order; the sort keeps it.
    listed.sort(key=lambda row: -health_rank(row.proof.pipeline.health) if row.proof else 0)
    return [*listed, *sorted(others, key=_violated_first)]


def find_listed(listed: Sequence[ListedPipeline], asked: str) -> ListedPipeline | None:
    """Return the pipeline of an address: the one with this end, else the first with an audit of this name."""
    named = (row for row in listed if any(audit.pipeline == asked for audit in row.audits))
    return next((row for row in listed if row.key == asked), None) or next(named, None)


def pipeline_page(
    listed: Sequence[ListedPipeline], number: Number, chosen: ListedPipeline | None
) -> Page[Mapping[str, Any]]:
    """Return a page of the list; without a number, the one with the chosen pipeline."""
    if number is None and chosen is not None:
        number = listed.index(chosen) // ROWS + 1
    page = page_of(listed, number, ROWS)
    return page.with_items([_row(row, is_open=row is chosen) for row in page.items])


def _row(row: ListedPipeline, *, is_open: bool) -> Mapping[str, Any]:
    shown = {"cluster": row.of.cluster, "key": row.key, "is_open": is_open}
    if row.proof is None:
        (audit,) = row.audits
        name, look = audit_name(audit, row.of), AUDIT_LABELS[audit.verdict]
        return {**shown, "name": name, "proof": look, "p50": "—", "p95": "—"}
    pipeline = row.proof.pipeline
    p50, p95 = latency_words(pipeline.latency)
    more = pipeline.starts - 1
    return {
        **shown,
        "name": path_name(pipeline),
        "proof": proof_label(row.proof),
        "health": HEALTH_LABELS[pipeline.health],
        "weakest": pipeline.weakest,
        "p50": p50,
        "p95": p95,
        "more_starts": f"+{count_noun(more, 'more source')}" if more else "",
    }


def path_name(of: Pipeline) -> str:
    """Return `orders → orders_enrich → orders_enriched`; for a long path its first and last nodes."""
    labels = [node.label for node in of.path]
    if len(labels) > 2 * _NAMED + 1:
        labels = [*labels[:_NAMED], f"{len(labels) - 2 * _NAMED} more", *labels[-_NAMED:]]
    return " → ".join(labels)


def audit_name(audit: AuditManifest, of: ClusterPipelines) -> str:
    """Return the compared ends of an audit: `orders → orders_enrich → orders_enriched`."""
    query = of.flow.nodes.get(NodeId(NodeKind.QUERY, audit.query_id))
    ends = list_names(audit.sources), query.label if query else "", list_names(audit.targets)
    return " → ".join(filter(None, ends)) or audit.pipeline


def proofs_line(proofs: Sequence[PipelineProof]) -> str:
    """Return the numbers of pipelines that audits prove, and of those with missing or duplicated records."""
    violated = sum(proof.verdict is AuditVerdict.VIOLATED for proof in proofs)
    proved = sum(
        proof.verdict is AuditVerdict.PROVED and proof.guarantee is Guarantee.EXACTLY_ONCE for proof in proofs
    )
    words = f"{proved:,} of {len(proofs):,} audited and proved exactly once"
    return f"{violated:,} with missing or duplicated records, {words}" if violated else words


def _violated_first(row: ListedPipeline) -> tuple[bool, bool, str]:
    verdict = row.audits[0].verdict
    return verdict is not AuditVerdict.VIOLATED, verdict is AuditVerdict.PROVED, row.key


#: Maximum batches of a page of an audit, ranges of a cell, and links beside the way.
_BATCHES, _MOST_RANGES, _MOST_BESIDE = 10, 3, 20
_UNITS = {RateUnit.TRANSACTIONS: "tx/min", RateUnit.RECORDS: "records/min"}


def pipeline_details(chosen: ListedPipeline, batches: Number) -> Mapping[str, Any]:
    """Return the details of a pipeline; `batches` is the requested page of its audits' batches."""
    tables = [_table(chosen, audit, batches) for audit in chosen.audits]
    if chosen.proof is None:
        return {"proof": None, "audits": tables}
    pipeline, cluster = chosen.proof.pipeline, chosen.of.cluster
    beside = _beside(chosen.of.flow, pipeline)
    ends = [_proved_edge(pipeline, audit) for audit in chosen.audits]
    return {
        "proof": chosen.proof,
        "links": list(_links(chosen, chosen.proof, list(zip(ends, tables, strict=True)))),
        "beside": [_edge_row(chosen, edge) for edge in beside[:_MOST_BESIDE]],
        "more_beside": len(beside[_MOST_BESIDE:]),
        "audits": [],
        "focus": focus_url(cluster, pipeline.end.id),
        "download": reverse("pipeline-proof", query={"cluster": cluster, "end": str(pipeline.end.id)}),
    }


def _links(
    of: ListedPipeline, proof: PipelineProof, audits: Sequence[tuple[FlowEdge, Mapping[str, Any]]]
) -> Iterator[Mapping[str, Any]]:
    edges = list(proof.pipeline.edges)
    nodes = of.of.flow.nodes
    for link in proof.links:
        edge = edges[0] if edges else None
        if edge and (nodes[edge.source].label, nodes[edge.target].label) == (link.source, link.target):
            edges.pop(0)
            yield _link_row(of, link, edge, [table for end, table in audits if end is edge])
        else:
            # Producers outside of transactions, and a query's sink without a topic, have no edge.
            yield {"of": link, "look": GUARANTEE_LABELS[link.guarantee], "figures": ""}


def _edge_row(of: ListedPipeline, edge: FlowEdge) -> Mapping[str, Any]:
    nodes = of.of.flow.nodes
    labels = nodes[edge.source].label, nodes[edge.target].label
    return _link_row(of, LinkGuarantee(*labels, *edge_guarantee(edge, of.of.facts)), edge)


def _link_row(
    of: ListedPipeline, link: LinkGuarantee, edge: FlowEdge, audits: Sequence[Mapping[str, Any]] = ()
) -> Mapping[str, Any]:
    """Return one link: its guarantee, the observed edge, and the audits that end with it."""
    nodes, cluster = of.of.flow.nodes, of.of.cluster
    return {
        "of": link,
        "look": GUARANTEE_LABELS[link.guarantee],
        "edge": edge,
        "source_url": node_url(cluster, nodes[edge.source]),
        "target_url": node_url(cluster, nodes[edge.target]),
        "group_url": family_url(cluster, edge.group) if edge.group else "",
        "audits": audits,
        "health": HEALTH_LABELS[edge.health] if edge.health is not FlowHealth.OK else None,
        "figures": _figures(edge),
        "how": LINK_WORDS[edge.kind],
    }


def _figures(edge: FlowEdge) -> str:
    """Return `12 tx/min · p50 900 ms · p95 3 s`, without unknown figures."""
    p50, p95 = latency_words(edge.latency)
    known = "" if edge.latency.p95_ms is None else f"p50 {p50} · p95 {p95}"
    rate = "" if edge.rate is None else f"{rate_words(edge.rate)} {_UNITS[edge.rate_unit]}"
    return " · ".join(filter(None, (rate, known)))


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


def _table(of: ListedPipeline, audit: AuditManifest, batches: Number) -> Mapping[str, Any]:
    """Return a page of the batches of one audit, the newest first; an audit by keys has none."""
    cluster = of.of.cluster
    ident = audit.query_id if NodeId(NodeKind.QUERY, audit.query_id) in of.of.flow.nodes else ""
    page = page_of(audit.batches, batches, _BATCHES)
    part = audit.parts[-1] if audit.parts else ""
    keys = ((LOSS_KEYS, audit.loss_keys), (DUPLICATE_KEYS, audit.duplicate_keys))
    return {
        "of": audit,
        "name": audit_name(audit, of.of),
        "look": AUDIT_LABELS[audit.verdict],
        "page": page.with_items([_batch_row(cluster, batch, ident) for batch in page.items]),
        "duplicates": list(_range_links(cluster, audit.duplicates)),
        "losses": list(_range_links(cluster, audit.losses)),
        # The places of the job's tables of keys: keys are payload, which this page does not show.
        "keys_at": [f"parts/part={part}/table={name}" for name, known in keys if known],
    }


def _batch_row(cluster: str, batch: AuditedBatch, ident: str) -> Mapping[str, Any]:
    return {
        "of": batch,
        "look": AUDIT_LABELS[batch.verdict],
        "url": addresses.batch_url(cluster, ident, batch.batch_id) if ident else "",
        "counts": [
            ("input", batch.input, ()),
            ("dropped", batch.dropped, ()),
            ("written", batch.written, ()),
            ("committed", batch.committed, ()),
            ("readable", batch.readable, ()),
            ("duplicates", batch.duplicated, list(_range_links(cluster, batch.duplicates))),
            ("missing", batch.missing, list(_range_links(cluster, batch.losses))),
        ],
    }


def _range_links(cluster: str, ranges: Iterable[AuditedRange]) -> Iterator[Mapping[str, str]]:
    """Yield the first ranges of offsets, each with the page of its partition."""
    for topic, partition, first, end in list(ranges)[:_MOST_RANGES]:
        offsets = f"{first:,}" if end - 1 <= first else f"{first:,}–{end - 1:,}"
        url = addresses.partition_url(cluster, topic, partition)
        yield {"words": f"{topic}-{partition}: {offsets}", "url": url}
