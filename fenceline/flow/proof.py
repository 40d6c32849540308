"""The proofs of a pipeline: its audits, the guarantee of its links, and both in words.

A statement claims a proof only if the newest manifest of an audit has it; unknown parts are named.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fenceline.audit.manifest import DUPLICATE_KEYS, LOSS_KEYS, AuditManifest, AuditMode, AuditVerdict
from fenceline.flow.graph import NodeKind
from fenceline.flow.guarantee import (
    Guarantee,
    GuaranteeFacts,
    LinkGuarantee,
    PipelineGuarantee,
    pipeline_guarantee,
)
from fenceline.flow.observations import FlowObservations
from fenceline.flow.pipelines import Pipeline
from fenceline.formatting import count_noun, list_names

#: The format of the downloaded document; a newer Fenceline has a larger number.
FORMAT = 1
GUARANTEE_WORDS: Mapping[Guarantee, str] = {
    Guarantee.EXACTLY_ONCE: "exactly once",
    Guarantee.AT_LEAST_ONCE: "at least once",
    Guarantee.AT_MOST_ONCE: "at most once",
    Guarantee.UNKNOWN: "unknown",
}


@dataclass(frozen=True, slots=True)
class PipelineProof:
    """A pipeline, the guarantees of its links, and the newest audit of each audited part."""

    pipeline: Pipeline
    guarantee: PipelineGuarantee
    audits: Sequence[AuditManifest] = ()

    @property
    def verdict(self) -> AuditVerdict | None:
        """Return the worst verdict of its audits; None without any.

        A proof of a part is no proof of the whole while another link is unknown.
        """
        verdicts = {audit.verdict for audit in self.audits}
        order = AuditVerdict.VIOLATED, AuditVerdict.UNPROVED, AuditVerdict.PROVED
        worst = next((verdict for verdict in order if verdict in verdicts), None)
        return AuditVerdict.UNPROVED if worst is AuditVerdict.PROVED and self.guarantee.unknown else worst

    @property
    def is_partial(self) -> bool:
        """Whether every audit proves its part while another link is unknown."""
        proved = bool(self.audits) and all(audit.verdict is AuditVerdict.PROVED for audit in self.audits)
        return proved and bool(self.guarantee.unknown)

    @property
    def statements(self) -> Sequence[str]:
        """Return its proofs, one sentence per audit, or that there is none."""
        return [audit_statement(audit) for audit in self.audits] or ["Not proved: no audit of it was read."]

    @property
    def known(self) -> str:
        """Return the weakest link in words, and the number of unknown links."""
        weakest, links = self.guarantee.weakest, count_noun(len(self.guarantee.links), "link")
        if weakest.guarantee is Guarantee.EXACTLY_ONCE:
            return f"As observed, exactly once on each link: {links}."
        words = f"Weakest link: {weakest.name} ({GUARANTEE_WORDS[weakest.guarantee]})."
        return f"{words} Not known: {self.guarantee.unknown} of {links}." if self.guarantee.unknown else words


def guarantee_facts(observed: FlowObservations, audits: Iterable[AuditManifest]) -> GuaranteeFacts:
    """Return the inputs of guarantees: observations, and the batches that audits prove."""
    proved = {
        audit.query_id: audit.proved_through
        for audit in audits
        if audit.query_id
        and audit.verdict is AuditVerdict.PROVED
        and audit.proved_through is not None
        # A proof of some records proves nothing about the others.
        and not audit.condition
    }
    return GuaranteeFacts(observed, proved)


def pipeline_proofs(
    pipelines: Iterable[Pipeline], observed: FlowObservations, audits: Sequence[AuditManifest]
) -> Sequence[PipelineProof]:
    facts = guarantee_facts(observed, audits)
    return [
        PipelineProof(pipeline, pipeline_guarantee(pipeline, facts), audits_of(pipeline, audits))
        for pipeline in pipelines
    ]


def audits_of(pipeline: Pipeline, audits: Iterable[AuditManifest]) -> Sequence[AuditManifest]:
    """Return the audits of parts of a pipeline's path, in the path's order."""
    matches = [(at, audit) for audit in audits if (at := _place(pipeline, audit)) is not None]
    return [audit for _, audit in sorted(matches, key=lambda match: (match[0], match[1].pipeline))]


def _place(pipeline: Pipeline, audit: AuditManifest) -> int | None:
    """Return the begin of an audit's part on the way: its query, or its sources before its targets."""
    ids = [node.id for node in pipeline.path]
    if audit.query_id:
        places = (at for at, node_id in enumerate(ids) if node_id == (NodeKind.QUERY, audit.query_id))
        return next(places, None)
    topics = {node_id.name: at for at, node_id in enumerate(ids) if node_id.kind is NodeKind.TOPIC}
    sources = [topics[name] for name in audit.sources if name in topics]
    targets = [topics[name] for name in audit.targets if name in topics]
    return min(sources) if sources and targets and min(sources) < max(targets) else None


def audit_statement(audit: AuditManifest) -> str:
    """Return an audit's proof in one sentence, or why it proves nothing."""
    sources, targets = list_names(audit.sources) or "its input", list_names(audit.targets) or "its output"
    if audit.verdict is AuditVerdict.VIOLATED:
        since = "compared by key" if _by_keys(audit) else f"since batch {audit.first_batch or 0:,}"
        return f"{_violated(audit)} of {sources} in {targets}, {since}."
    if audit.verdict is AuditVerdict.PROVED:
        if _by_keys(audit):
            return _proved_by_keys(audit, sources, targets)
        once = f"Each record of {sources} appears exactly once in {targets}"
        dropped = "" if _keeps_all(audit) else " or was dropped by the query"
        return f"{once}{dropped}, {audited_range(audit)}."
    if audit.obstacles:
        first = audit.obstacles[0]
        return f"{sources} → {targets} is not proved: {first.where}: {first.detail}; {first.consequence}."
    return f"{sources} → {targets} is not proved yet: no batch of it is."


def _by_keys(audit: AuditManifest) -> bool:
    return audit.mode is AuditMode.KEYS


def _proved_by_keys(audit: AuditManifest, sources: str, targets: str) -> str:
    """Return a proof by keys in words: the number of records, and the last batch for a query."""
    condition = f" with {audit.condition}" if audit.condition else ""
    through = f" through batch {audit.proved_through:,}" if audit.proved_through is not None else ""
    compared = f"{count_noun(audit.input, 'record')} compared by key{through}"
    return f"Each record of {sources}{condition} appears exactly once in {targets}, {compared}."


def audited_range(audit: AuditManifest) -> str:
    """Return the proved batches: `through batch 1,203`, with the first one unless it is 0."""
    first = f"from batch {audit.first_batch:,} " if audit.first_batch else ""
    return f"{first}through batch {audit.proved_through:,}"


def _violated(audit: AuditManifest) -> str:
    counts = ((audit.missing, "missing"), (audit.duplicated, "duplicated"))
    return " and ".join(f"{count_noun(number, 'record')} {word}" for number, word in counts if number)


def _keeps_all(audit: AuditManifest) -> bool:
    """Whether counts show that the query dropped no record of the proved part. Later batches may be open."""
    through = audit.proved_through or 0
    later = [batch for batch in audit.batches if batch.batch_id > through]
    still_open = sum((batch.input or 0) - (batch.readable or 0) for batch in later)
    dropped = any(batch.dropped for batch in audit.batches)
    return not dropped and audit.input - audit.readable in (0, still_open)


def proof_document(cluster: str, proof: PipelineProof) -> dict[str, Any]:
    """Return the proof as the downloaded document: JSON types only."""
    return {
        "format": FORMAT,
        "cluster": cluster,
        "path": [str(node.id) for node in proof.pipeline.path],
        "labels": [node.label for node in proof.pipeline.path],
        "verdict": proof.verdict,
        "statements": list(proof.statements),
        "guarantee": proof.guarantee.guarantee,
        "weakest": _link(proof.guarantee.weakest),
        "links": [_link(link) for link in proof.guarantee.links],
        "audits": [_audit(audit) for audit in proof.audits],
    }


def _audit(audit: AuditManifest) -> dict[str, Any]:
    """Return an audit without records' keys, which are payload."""
    document = {**asdict(audit), "verdict": audit.verdict}
    return {name: value for name, value in document.items() if name not in (LOSS_KEYS, DUPLICATE_KEYS)}


def _link(link: LinkGuarantee) -> dict[str, str]:
    return link._asdict()
