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

A pipeline's proofs are its audits and these guarantees, in words. A statement claims a proof only if the
newest manifest of an audit has it; unknown parts are named.
"""  # noqa: E501 - a table

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from fenceline.audit.manifest import DUPLICATE_KEYS, LOSS_KEYS, AuditManifest, AuditMode, AuditVerdict
from fenceline.facts import Isolation
from fenceline.flow.graph import FlowEdge, FlowNode, LinkKind, NodeKind
from fenceline.flow.observations import FlowObservations, GroupReads, ProducerKind, QueryLinks
from fenceline.flow.pipelines import Pipeline
from fenceline.formatting import count_noun, list_names
from fenceline.grouping import grouped

#: The format of the downloaded document; a newer Fenceline has a larger number.
FORMAT = 1


class Guarantee(StrEnum):
    """How often a record passes a link, from the strongest guarantee to the weakest."""

    EXACTLY_ONCE = "exactly_once"
    #: Too little was observed.
    UNKNOWN = "unknown"
    #: Records may be repeated.
    AT_LEAST_ONCE = "at_least_once"
    #: Records may be missing.
    AT_MOST_ONCE = "at_most_once"


GUARANTEE_WORDS: Mapping[Guarantee, str] = {
    Guarantee.EXACTLY_ONCE: "exactly once",
    Guarantee.AT_LEAST_ONCE: "at least once",
    Guarantee.AT_MOST_ONCE: "at most once",
    Guarantee.UNKNOWN: "unknown",
}
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


class GuaranteeFacts:
    """The inputs of guarantees, by key; `proved` has the ids of queries that an audit proves."""

    def __init__(self, observed: FlowObservations, proved: Mapping[str, int] | None = None) -> None:
        self.queries = {query.ident: query for query in observed.queries}
        self.outside = observed.outside
        self.proved = proved or {}
        self.reads = grouped(((group.group, group.topic), group) for group in observed.groups)


def pipeline_links(pipeline: Pipeline, facts: GuaranteeFacts) -> Sequence[LinkGuarantee]:
    """Return the links along a pipeline's path."""
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
    return links


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
    guarantee, reason = _written(query)
    if proved is None or reason != SINK_UNKNOWN:
        return guarantee, reason
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


@dataclass(frozen=True, slots=True)
class PipelineProof:
    """A pipeline, the guarantees of its links, and the newest audit of each audited part."""

    pipeline: Pipeline
    links: Sequence[LinkGuarantee]
    audits: Sequence[AuditManifest] = ()

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

    @property
    def verdict(self) -> AuditVerdict | None:
        """Return the worst verdict of its audits; None without any.

        A proof of a part is no proof of the whole while another link is unknown.
        """
        verdicts = {audit.verdict for audit in self.audits}
        order = AuditVerdict.VIOLATED, AuditVerdict.UNPROVED, AuditVerdict.PROVED
        worst = next((verdict for verdict in order if verdict in verdicts), None)
        return AuditVerdict.UNPROVED if worst is AuditVerdict.PROVED and self.unknown else worst

    @property
    def is_partial(self) -> bool:
        """Whether every audit proves its part while another link is unknown."""
        proved = bool(self.audits) and all(audit.verdict is AuditVerdict.PROVED for audit in self.audits)
        return proved and bool(self.unknown)

    @property
    def statements(self) -> Sequence[str]:
        """Return its proofs, one sentence per audit, or that there is none."""
        return [audit_statement(audit) for audit in self.audits] or ["Not proved: no audit of it was read."]

    @property
    def known(self) -> str:
        """Return the weakest link in words, and the number of unknown links."""
        weakest, links = self.weakest, count_noun(len(self.links), "link")
        if weakest.guarantee is Guarantee.EXACTLY_ONCE:
            return f"As observed, exactly once on each link: {links}."
        words = f"Weakest link: {weakest.name} ({GUARANTEE_WORDS[weakest.guarantee]})."
        return f"{words} Not known: {self.unknown} of {links}." if self.unknown else words


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
        PipelineProof(pipeline, pipeline_links(pipeline, facts), audits_of(pipeline, audits))
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
        "guarantee": proof.guarantee,
        "weakest": proof.weakest._asdict(),
        "links": [link._asdict() for link in proof.links],
        "audits": [_audit(audit) for audit in proof.audits],
    }


def _audit(audit: AuditManifest) -> dict[str, Any]:
    """Return an audit without records' keys, which are payload."""
    document = {**asdict(audit), "verdict": audit.verdict}
    return {name: value for name, value in document.items() if name not in (LOSS_KEYS, DUPLICATE_KEYS)}
