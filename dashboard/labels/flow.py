"""Labels of the health of the flow's nodes and edges, and of the kinds of its edges. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from dashboard.labels.status import StatusLabel
from fenceline.audit.manifest import AuditVerdict
from fenceline.flow.graph import FlowHealth, LinkKind
from fenceline.flow.guarantee import Guarantee
from fenceline.flow.proof import GUARANTEE_WORDS

HEALTH_LABELS: Mapping[FlowHealth, StatusLabel] = {
    FlowHealth.BLOCKED: StatusLabel("blocked", "critical", "records do not get through"),
    FlowHealth.WARNING: StatusLabel("warning", "warning", "something about it needs attention"),
    FlowHealth.UNKNOWN: StatusLabel("unknown", "unknown", "too little is known"),
    FlowHealth.OK: StatusLabel("ok", "ok", "nothing holds it up"),
}
#: How an edge was observed.
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
PROVED_IN_PART = StatusLabel("proved in part", "unknown", "another link of the pipeline is not known")
AUDIT_LABELS: Mapping[AuditVerdict, StatusLabel] = {
    AuditVerdict.PROVED: StatusLabel(
        "proved", "ok", "every input record is readable once, or was dropped by the query"
    ),
    AuditVerdict.PREPARED: StatusLabel("prepared", "warning", "its transactions are not committed yet"),
    AuditVerdict.UNPROVED: StatusLabel("not proved", "unknown", "something could not be observed"),
    AuditVerdict.VIOLATED: StatusLabel("violated", "critical", "records are missing or duplicated"),
}
