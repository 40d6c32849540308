"""What is proved of a pipeline: its audits, the guarantee of its links, and both in words.

A statement names a proof only where the newest manifest of an audit has it; what is not known is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fenceline.audit.manifest import AuditManifest, AuditMode, AuditVerdict
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

#: Of the downloaded document; a larger number is of a newer Fenceline.
FORMAT = 1
GUARANTEE_WORDS: Mapping[Guarantee, str] = {
    Guarantee.EXACTLY_ONCE: "exactly once",
    Guarantee.AT_LEAST_ONCE: "at least once",
    Guarantee.AT_MOST_ONCE: "at most once",
    Guarantee.UNKNOWN: "unknown",
}


@dataclass(frozen=True, slots=True)
class PipelineProof:
    """A pipeline, what its links guarantee, and the newest audit of each part of it that is audited."""

    pipeline: Pipeline
    guarantee: PipelineGuarantee
    audits: Sequence[AuditManifest] = ()

    @property
    def verdict(self) -> AuditVerdict | None:
        """Return what its audits conclude together, the worst; None without any."""
        verdicts = {audit.verdict for audit in self.audits}
        order = AuditVerdict.VIOLATED, AuditVerdict.UNPROVED, AuditVerdict.PROVED
        return next((each for each in order if each in verdicts), None)

    @property
    def statements(self) -> Sequence[str]:
        """Return what is proved of it, a sentence for each audit, or that nothing is."""
        return [audit_statement(each) for each in self.audits] or ["Not proved: no audit of it was read."]

    @property
    def known(self) -> str:
        """Return its weakest link in words, and how many links are not known."""
        weakest, links = self.guarantee.weakest, count_noun(len(self.guarantee.links), "link")
        if weakest.guarantee is Guarantee.EXACTLY_ONCE:
            return f"As observed, exactly once on each link: {links}."
        words = f"Weakest link: {weakest.name} ({GUARANTEE_WORDS[weakest.guarantee]})."
        return f"{words} Not known: {self.guarantee.unknown} of {links}." if self.guarantee.unknown else words


def pipeline_proofs(
    pipelines: Iterable[Pipeline], observed: FlowObservations, audits: Sequence[AuditManifest]
) -> Sequence[PipelineProof]:
    """Return what is proved of each pipeline, in their order."""
    proved = {
        each.query_id: each.proved_through
        for each in audits
        if each.query_id and each.verdict is AuditVerdict.PROVED and each.proved_through is not None
    }
    facts = GuaranteeFacts(observed, proved)
    return [
        PipelineProof(each, pipeline_guarantee(each, facts), audits_of(each, audits)) for each in pipelines
    ]


def audits_of(pipeline: Pipeline, audits: Iterable[AuditManifest]) -> Sequence[AuditManifest]:
    """Return the audits of parts of a pipeline's way, in its order."""
    found = [(at, audit) for audit in audits if (at := _place(pipeline, audit)) is not None]
    return [audit for _, audit in sorted(found, key=lambda each: (each[0], each[1].pipeline))]


def _place(pipeline: Pipeline, audit: AuditManifest) -> int | None:
    """Return where on the way an audit's part begins: its query, or its sources before its targets."""
    ids = [node.id for node in pipeline.path]
    if audit.query_id:
        places = (at for at, each in enumerate(ids) if each == (NodeKind.QUERY, audit.query_id))
        return next(places, None)
    topics = {each.name: at for at, each in enumerate(ids) if each.kind is NodeKind.TOPIC}
    sources = [topics[name] for name in audit.sources if name in topics]
    targets = [topics[name] for name in audit.targets if name in topics]
    return min(sources) if sources and targets and min(sources) < max(targets) else None


def audit_statement(audit: AuditManifest) -> str:
    """Return what an audit proves in one sentence, or why it proves nothing."""
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
    """Return a proof by keys: of how many records, up to which batch where it is a query's."""
    some = f" with {audit.condition}" if audit.condition else ""
    through = f" through batch {audit.proved_through:,}" if audit.proved_through is not None else ""
    compared = f"{count_noun(audit.input, 'record')} compared by key{through}"
    return f"Each record of {sources}{some} appears exactly once in {targets}, {compared}."


def audited_range(audit: AuditManifest) -> str:
    """Return the batches that are proved: `through batch 1,203`, with the first one where it is not 0."""
    first = f"from batch {audit.first_batch:,} " if audit.first_batch else ""
    return f"{first}through batch {audit.proved_through:,}"


def _violated(audit: AuditManifest) -> str:
    counts = ((audit.missing, "missing"), (audit.duplicated, "duplicated"))
    return " and ".join(f"{count_noun(number, 'record')} {word}" for number, word in counts if number)


def _keeps_all(audit: AuditManifest) -> bool:
    """Whether counts show that the query dropped nothing of what is proved; later batches may be open."""
    through = audit.proved_through or 0
    later = [each for each in audit.batches if each.batch_id > through]
    still_open = sum((each.input or 0) - (each.readable or 0) for each in later)
    dropped = any(each.dropped for each in audit.batches)
    return not dropped and audit.input - audit.readable in (0, still_open)


def proof_document(cluster: str, proof: PipelineProof) -> dict[str, Any]:
    """Return all of it as what is downloaded: JSON's types alone."""
    return {
        "format": FORMAT,
        "cluster": cluster,
        "path": [str(node.id) for node in proof.pipeline.path],
        "labels": [node.label for node in proof.pipeline.path],
        "verdict": proof.verdict,
        "statements": list(proof.statements),
        "guarantee": proof.guarantee.guarantee,
        "weakest": _link(proof.guarantee.weakest),
        "links": [_link(each) for each in proof.guarantee.links],
        "audits": [{**asdict(each), "verdict": each.verdict} for each in proof.audits],
    }


def _link(link: LinkGuarantee) -> dict[str, str]:
    return link._asdict()
