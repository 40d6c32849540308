"""The list of pipelines: a row for each, and the unfolded one. The context of `_list.html`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dashboard.labels.flow import AUDIT_LABELS, HEALTH_LABELS, proof_label
from dashboard.labels.status import StatusLabel
from dashboard.runtime.paging import Number, Page, page_of
from dashboard.web.flow.picture import latency_words
from fenceline.audit.manifest import AuditManifest, AuditVerdict
from fenceline.flow.graph import Flow, NodeId, NodeKind, health_rank
from fenceline.flow.guarantee import Guarantee, GuaranteeFacts
from fenceline.flow.pipelines import Pipeline
from fenceline.flow.proof import PipelineProof
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


@dataclass(frozen=True, slots=True)
class PipelineRow:
    """A row of the list."""

    cluster: str
    key: str
    name: str
    proof: StatusLabel
    health: StatusLabel | None = None
    weakest: str = ""
    p50: str = "—"
    p95: str = "—"
    #: `+2 more sources` for a pipeline with several sources, else "".
    more_starts: str = ""
    is_open: bool = False


def list_pipelines(clusters: Iterable[ClusterPipelines]) -> Sequence[ListedPipeline]:
    """Return the pipelines of all clusters, sorted by need for attention; then audits without a pipeline."""
    clusters = list(clusters)
    listed = [ListedPipeline(of, proof, proof.audits) for of in clusters for proof in of.proofs]
    others = [ListedPipeline(of, None, [audit]) for of in clusters for audit in of.others]
    return [*sorted(listed, key=_needs_attention), *sorted(others, key=_violated_first)]


def find_listed(listed: Sequence[ListedPipeline], asked: str) -> ListedPipeline | None:
    """Return the pipeline of an address: the one with this end, else the first with an audit of this name."""
    named = (row for row in listed if any(audit.pipeline == asked for audit in row.audits))
    return next((row for row in listed if row.key == asked), None) or next(named, None)


def pipeline_page(
    listed: Sequence[ListedPipeline], number: Number, chosen: ListedPipeline | None
) -> Page[PipelineRow]:
    """Return a page of the list; without a number, the one with the chosen pipeline."""
    if number is None and chosen is not None:
        number = listed.index(chosen) // ROWS + 1
    page = page_of(listed, number, ROWS)
    return page.with_items([_row(row, is_open=row is chosen) for row in page.items])


def _row(row: ListedPipeline, *, is_open: bool) -> PipelineRow:
    if row.proof is None:
        (audit,) = row.audits
        name, look = audit_name(audit, row.of), AUDIT_LABELS[audit.verdict]
        return PipelineRow(row.of.cluster, row.key, name, look, is_open=is_open)
    pipeline = row.proof.pipeline
    more = pipeline.starts - 1
    return PipelineRow(
        row.of.cluster,
        row.key,
        path_name(pipeline),
        proof_label(row.proof),
        HEALTH_LABELS[pipeline.health],
        pipeline.weakest,
        *latency_words(pipeline.latency),
        f"+{count_noun(more, 'more source')}" if more else "",
        is_open,
    )


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
        proof.verdict is AuditVerdict.PROVED and proof.guarantee.guarantee is Guarantee.EXACTLY_ONCE
        for proof in proofs
    )
    words = f"{proved:,} of {len(proofs):,} audited and proved exactly once"
    return f"{violated:,} with missing or duplicated records, {words}" if violated else words


def _needs_attention(row: ListedPipeline) -> int:
    # Each cluster's pipelines are in order; the sort keeps it.
    return -health_rank(row.proof.pipeline.health) if row.proof else 0


def _violated_first(row: ListedPipeline) -> tuple[bool, bool, str]:
    verdict = row.audits[0].verdict
    return verdict is not AuditVerdict.VIOLATED, verdict is AuditVerdict.PROVED, row.key
