"""Labels of the flow: health of nodes and edges, guarantees of links, proofs of audits, engines' own reports,
and Flink's pending commits and its sinks' other open transactions.
"""

from collections.abc import Mapping

from dashboard.labels.status import StatusLabel
from fenceline.audit.manifest import AuditVerdict
from fenceline.engines.flink.restore import CommitFate, Lingering
from fenceline.flow.graph import FlowHealth, LinkKind
from fenceline.flow.proof import GUARANTEE_WORDS, Guarantee, PipelineProof
from fenceline.formatting import count_noun

HEALTH_LABELS: Mapping[FlowHealth, StatusLabel] = {
    FlowHealth.BLOCKED: StatusLabel("blocked", "critical", "records do not get through"),
    FlowHealth.WARNING: StatusLabel("warning", "warning", "something about it needs attention"),
    FlowHealth.UNKNOWN: StatusLabel("unknown", "unknown", "too little is known"),
    FlowHealth.OK: StatusLabel("ok", "ok", "records get through"),
}
#: The source of an observed edge.
LINK_WORDS: Mapping[LinkKind, str] = {
    LinkKind.PRODUCES: "partitions in its transactions",
    LinkKind.PROCESSES: "offsets committed in its transactions",
    LinkKind.CONSUMES: "committed offsets",
    LinkKind.READS: "checkpoint or listener",
    LinkKind.WRITES: "ledger or the sink's transactions",
}
GUARANTEE_LABELS: Mapping[Guarantee, StatusLabel] = {
    guarantee: StatusLabel(GUARANTEE_WORDS[guarantee], tone, means)
    for guarantee, tone, means in (
        (Guarantee.EXACTLY_ONCE, "ok", "each record gets through once"),
        (Guarantee.AT_LEAST_ONCE, "warning", "a record may be there again"),
        (Guarantee.AT_MOST_ONCE, "critical", "a record may be missing"),
        (Guarantee.UNKNOWN, "unknown", "too little was observed"),
    )
}
AUDIT_LABELS: Mapping[AuditVerdict, StatusLabel] = {
    AuditVerdict.PROVED: StatusLabel(
        "proved", "ok", "every input record is readable once, or was dropped by the query"
    ),
    AuditVerdict.PREPARED: StatusLabel("prepared", "warning", "its transactions are not committed yet"),
    AuditVerdict.UNPROVED: StatusLabel("not proved", "unknown", "something could not be observed"),
    AuditVerdict.VIOLATED: StatusLabel("violated", "critical", "records are missing or duplicated"),
}
_TONES = "ok", "unknown", "warning", "critical"


def proof_label(proof: PipelineProof) -> StatusLabel:
    """Return a pipeline's guarantee and its proof; the worse of both gives the tone."""
    if proof.verdict is AuditVerdict.VIOLATED:
        return StatusLabel(_violated_words(proof), "critical", AUDIT_LABELS[AuditVerdict.VIOLATED].means)
    guarantee = GUARANTEE_LABELS[proof.guarantee]
    proved = AUDIT_LABELS[proof.verdict or AuditVerdict.UNPROVED]
    tone = max(guarantee.tone, proved.tone, key=_TONES.index)
    words = f"{_guarantee_words(proof)} · {_proved_words(proof, proved.words)}"
    return StatusLabel(words, tone, f"{guarantee.means}; {proved.means}")


def _guarantee_words(proof: PipelineProof) -> str:
    weakest = proof.guarantee
    if weakest is Guarantee.UNKNOWN:
        return f"{count_noun(proof.unknown, 'link')} unknown"
    return f"{'' if weakest is Guarantee.EXACTLY_ONCE else 'weakest link '}{GUARANTEE_WORDS[weakest]}"


def _proved_words(proof: PipelineProof, verdict: str) -> str:
    """Return a text such as `proved through batch 16`; of several audits, the one that proved least counts.

    A proof of a part does not prove a pipeline with a weaker link.
    """
    is_proved = proof.verdict is AuditVerdict.PROVED
    if proof.is_partial or (is_proved and proof.guarantee is not Guarantee.EXACTLY_ONCE):
        return "proved in part"
    through = [audit.proved_through for audit in proof.audits if audit.proved_through is not None]
    return f"proved through batch {min(through):,}" if is_proved and through else verdict


def _violated_words(proof: PipelineProof) -> str:
    counts = {
        "missing": sum(audit.missing for audit in proof.audits),
        "duplicated": sum(audit.duplicated for audit in proof.audits),
    }
    return ", ".join(f"{count_noun(number, 'record')} {word}" for word, number in counts.items() if number)


FATE_LABELS: Mapping[CommitFate, StatusLabel] = {
    CommitFate.LOST: StatusLabel(
        "lost", "critical", "it was aborted: a restore does not bring its records back"
    ),
    CommitFate.PENDING: StatusLabel(
        "not yet committed", "warning", "it is open as it was pre-committed: a restore commits it"
    ),
    CommitFate.UNKNOWN: StatusLabel("unknown", "unknown", "its coordinator's state is not known here"),
    CommitFate.ENDED: StatusLabel(
        "ended", "unknown", "its id has gone on under another epoch: see the history of the id"
    ),
    CommitFate.SUPERSEDED: StatusLabel(
        "superseded", "info", "it has ended; its id has a newer transaction open, which a restore leaves open"
    ),
    CommitFate.COMMITTED: StatusLabel("committed", "ok", "its coordinator has committed it"),
}
LINGERING_LABELS: Mapping[Lingering, StatusLabel] = {
    Lingering.LEFT: StatusLabel(
        "left behind", "warning", "no checkpoint holds it: a restore aborts it, or its timeout does"
    ),
    Lingering.UNDECIDED: StatusLabel(
        "unknown", "unknown", "the newest checkpoint does not hold it, and a run without one may write it"
    ),
    Lingering.WRITING: StatusLabel("writing", "info", "it writes for a later checkpoint"),
}
#: Labels of a job's newest readable checkpoint.
CHECKPOINT_WORDS: Mapping[bool | None, str] = {True: "savepoint", False: "checkpoint", None: "checkpoint"}


#: By Flink's and Connect's own names; any other one is unknown.
_STATE_TONES: Mapping[str, str] = {
    "RUNNING": "ok",
    "FINISHED": "info",
    "PAUSED": "info",
    "STOPPED": "info",
    "CANCELED": "info",
    "SUSPENDED": "info",
    "CREATED": "info",
    "INITIALIZING": "info",
    "SCHEDULED": "info",
    "DEPLOYING": "info",
    "RECONCILING": "info",
    "RESTARTING": "warning",
    "CANCELLING": "warning",
    "CANCELING": "warning",
    "FAILING": "warning",
    "UNASSIGNED": "warning",
    "FAILED": "critical",
}


def engine_state(word: str) -> StatusLabel:
    """Return the label of a state, in the engine's own name."""
    return StatusLabel(word, _STATE_TONES.get(word, "unknown"), "as the engine's REST API reported it last")
