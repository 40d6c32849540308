"""Labels of the health of the flow's nodes and edges, and of the kinds of its edges. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dashboard.labels.status import StatusLabel
from fenceline.flow.graph import FlowHealth, LinkKind

HEALTH_LABELS: Mapping[FlowHealth, StatusLabel] = MappingProxyType(
    {
        FlowHealth.BLOCKED: StatusLabel("blocked", "critical", "records do not get through"),
        FlowHealth.WARNING: StatusLabel("warning", "warning", "something about it needs attention"),
        FlowHealth.UNKNOWN: StatusLabel("unknown", "unknown", "too little is known"),
        FlowHealth.OK: StatusLabel("ok", "ok", "nothing holds it up"),
    }
)
#: How an edge was observed.
LINK_WORDS: Mapping[LinkKind, str] = MappingProxyType(
    {
        LinkKind.PRODUCES: "partitions in its transactions",
        LinkKind.PROCESSES: "offsets committed in its transactions",
        LinkKind.CONSUMES: "committed offsets",
        LinkKind.READS: "checkpoint or listener",
        LinkKind.WRITES: "ledger or the sink's transactions",
    }
)
