"""Audits and guarantees on pages: the context of `_audit.html` and `_guarantee.html`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.urls import reverse
from django.utils.http import urlencode

from dashboard.history.audits import AuditStatus
from dashboard.history.report_types import ReportTrouble
from dashboard.labels.flow import AUDIT_LABELS, GUARANTEE_LABELS, PROVED_IN_PART
from dashboard.labels.status import StatusLabel
from dashboard.web import addresses
from dashboard.web.flow.picture import MOST_PIPELINES, path_name
from fenceline.audit.manifest import AuditedBatch, AuditedRange, AuditManifest, AuditVerdict
from fenceline.flow.graph import Flow, NodeId, NodeKind
from fenceline.flow.guarantee import LinkGuarantee
from fenceline.flow.proof import PipelineProof
from fenceline.formatting import list_names

#: Maximum audits with batches, batches of each, ranges of each cell, and links of one cluster.
_MOST_AUDITS, _MOST_BATCHES, _MOST_RANGES, _MOST_LINKS = 20, 20, 3, 100


@dataclass(frozen=True, slots=True)
class RangeLink:
    """A range of offsets, and the page of its partition."""

    words: str
    url: str


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A row of the table of a pipeline's batches."""

    of: AuditedBatch
    look: StatusLabel
    url: str
    duplicates: Sequence[RangeLink]
    losses: Sequence[RangeLink]


@dataclass(frozen=True, slots=True)
class AuditTable:
    """The batches of one audited pipeline, the newest first."""

    of: AuditManifest
    name: str
    look: StatusLabel
    rows: Sequence[BatchRow]
    #: Whether the audit is by keys: it has no batches.
    duplicates: Sequence[RangeLink]
    losses: Sequence[RangeLink]


@dataclass(frozen=True, slots=True)
class LinkRow:
    """A row of the table of links."""

    of: LinkGuarantee
    look: StatusLabel


@dataclass(frozen=True, slots=True)
class StatementCard:
    """The proof of one whole pipeline."""

    of: PipelineProof
    name: str
    look: StatusLabel
    download: str


@dataclass(frozen=True, slots=True)
class ProofPart:
    """The proofs and audits of one cluster."""

    tables: Sequence[AuditTable]
    links: Sequence[LinkRow]
    more_links: int
    cards: Sequence[StatementCard]
    troubles: Sequence[ReportTrouble]


def proof_part(
    cluster: str, flow: Flow, proofs: Sequence[PipelineProof], audits: AuditStatus, *, narrowed: bool
) -> ProofPart:
    """Return the proofs of a cluster; `narrowed`: only audits of the shown pipelines."""
    named = {audit.pipeline for proof in proofs for audit in proof.audits}
    wanted = [audit for audit in audits.manifests if audit.pipeline in named or not narrowed]
    links = list(dict.fromkeys(link for proof in proofs for link in proof.guarantee.links))
    return ProofPart(
        [_table(cluster, flow, audit) for audit in sorted(wanted, key=_worst_first)[:_MOST_AUDITS]],
        [LinkRow(link, GUARANTEE_LABELS[link.guarantee]) for link in links[:_MOST_LINKS]],
        len(links[_MOST_LINKS:]),
        [_card(cluster, proof) for proof in proofs[:MOST_PIPELINES]],
        audits.troubles,
    )


def proofs_line(proofs: Sequence[PipelineProof]) -> str:
    """Return the numbers of pipelines that audits prove, and that have records missing or duplicated."""
    violated = sum(proof.verdict is AuditVerdict.VIOLATED for proof in proofs)
    proved = sum(proof.verdict is AuditVerdict.PROVED for proof in proofs)
    words = f"{proved:,} of {len(proofs):,} audited and proved exactly once"
    return f"{violated:,} with missing or duplicated records, {words}" if violated else words


def proof_url(cluster: str, end: NodeId) -> str:
    """Return the address of a pipeline's proof as a file."""
    return f"{reverse('pipeline-proof')}?{urlencode({'cluster': cluster, 'end': str(end)})}"


def _worst_first(audit: AuditManifest) -> tuple[bool, bool, str]:
    verdict = audit.verdict
    return verdict is not AuditVerdict.VIOLATED, verdict is AuditVerdict.PROVED, audit.pipeline


def _table(cluster: str, flow: Flow, audit: AuditManifest) -> AuditTable:
    node = flow.nodes.get(NodeId(NodeKind.QUERY, audit.query_id))
    ends = list_names(audit.sources), node.label if node else "", list_names(audit.targets)
    rows = [_row(cluster, batch, node.id.name if node else "") for batch in audit.batches[:_MOST_BATCHES]]
    name = " → ".join(filter(None, ends)) or audit.pipeline
    duplicates, losses = (list(_range_links(cluster, ranges)) for ranges in (audit.duplicates, audit.losses))
    return AuditTable(audit, name, AUDIT_LABELS[audit.verdict], rows, duplicates, losses)


def _row(cluster: str, batch: AuditedBatch, ident: str) -> BatchRow:
    return BatchRow(
        batch,
        AUDIT_LABELS[batch.verdict],
        addresses.batch_url(cluster, ident, batch.batch_id) if ident else "",
        list(_range_links(cluster, batch.duplicates)),
        list(_range_links(cluster, batch.losses)),
    )


def _range_links(cluster: str, ranges: Sequence[AuditedRange]) -> Iterable[RangeLink]:
    for lost_range in ranges[:_MOST_RANGES]:
        last = lost_range.to_offset - 1
        offsets = (
            f"{lost_range.from_offset:,}"
            if last <= lost_range.from_offset
            else f"{lost_range.from_offset:,}–{last:,}"
        )
        url = addresses.partition_url(cluster, lost_range.topic, lost_range.partition)
        yield RangeLink(f"{lost_range.topic}-{lost_range.partition}: {offsets}", url)


def _card(cluster: str, proof: PipelineProof) -> StatementCard:
    look = PROVED_IN_PART if proof.is_partial else AUDIT_LABELS[proof.verdict or AuditVerdict.UNPROVED]
    return StatementCard(proof, path_name(proof.pipeline), look, proof_url(cluster, proof.pipeline.end.id))
