"""Django's admin shows the same rows, and changes none: observed state has one writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest

from dashboard.actions import admin_actions
from dashboard.models import (
    Action,
    AddedOffsetsRecord,
    Alert,
    AlertChange,
    AuditEntry,
    AuditViolationRecord,
    Batch,
    Channel,
    Cluster,
    Collector,
    CommitRecord,
    ConnectorRecord,
    Delivery,
    FindingRecord,
    FlinkCheckpointRecord,
    FlinkJob,
    FlinkRunRecord,
    GapRecord,
    Group,
    GroupOffset,
    GroupRecord,
    Incident,
    IncidentEvent,
    IncidentFinding,
    ObservedSpan,
    OperatorStateRecord,
    PartitionRecord,
    PinRecord,
    Position,
    Query,
    Recovery,
    ReplicaLook,
    Run,
    Series,
    SeriesChunk,
    Silence,
    SinkDecision,
    Token,
    Transaction,
)

if TYPE_CHECKING:
    # Django's own class takes no type parameter at run time.
    Base = admin.ModelAdmin[Any]
else:
    Base = admin.ModelAdmin


class ReadOnlyAdmin(Base):
    """Lists and shows; adds, changes and deletes nothing."""

    # COUNT(*) over every row of a large table, for a figure beside a search.
    show_full_result_count = False
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Refuse: rows come from collectors."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Refuse: what was observed is not edited."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Refuse: what was observed is not deleted by hand."""
        return False


def _show(
    model: type[Model],
    columns: Sequence[str],
    *,
    filters: Sequence[str] = (),
    search: Sequence[str] = (),
    hidden: Sequence[str] = (),
    actions: Sequence[Any] = (),
) -> None:
    attributes: dict[str, Any] = {"list_display": columns, "list_filter": filters, "search_fields": search}
    # Lists show foreign keys: one query for all of them.
    attributes |= {"list_select_related": True, "exclude": hidden, "actions": actions}
    admin.site.register(model, type(f"{model.__name__}Admin", (ReadOnlyAdmin,), attributes))


_show(Cluster, ["name", "rev", "configured"])
_show(
    Transaction,
    ["transactional_id", "cluster", "state", "producer_id", "producer_epoch", "partition_count", "rev"],
    filters=["cluster", "state"],
    search=["transactional_id"],
    actions=[admin_actions.abort_of_ids, admin_actions.fence_producers],
)
_show(Collector, ["name", "cluster", "token", "holder", "expires_at", "behind", "records", "error"])
_show(Position, ["topic", "partition", "cluster", "next_offset", "end_offset"], filters=["cluster", "topic"])
_show(
    GapRecord, ["source", "scope", "cluster", "reason", "count", "since_ms", "until_ms"], filters=["cluster"]
)
_show(
    FindingRecord,
    ["summary", "cluster", "rule", "severity", "seen_at", "closed_at"],
    filters=["cluster", "rule"],
)
_show(
    Incident,
    ["__str__", "cluster", "severity", "opened_ms", "closed_ms", "acknowledged_by"],
    filters=["cluster", "rule", "severity"],
)
_show(IncidentFinding, ["summary", "incident", "role", "since_ms", "until_ms"], filters=["role"])
_show(IncidentEvent, ["__str__", "incident", "at_ms", "actor"], filters=["kind"])
_show(
    PartitionRecord,
    ["topic", "partition", "cluster", "verdict", "log_start", "lso", "high_watermark", "leader", "rev"],
    filters=["cluster", "verdict"],
    search=["topic"],
    actions=[admin_actions.abort_in],
)
_show(
    PinRecord,
    ["topic", "partition", "cluster", "transactional_id", "producer_id", "start_offset", "verdict", "ground"],
    filters=["cluster", "verdict"],
    search=["topic", "transactional_id"],
    actions=[admin_actions.abort_of_pins],
)
_show(ReplicaLook, ["topic", "partition", "broker", "cluster", "leads", "seen_ms", "error"], search=["topic"])
_show(
    Group,
    ["group_id", "cluster", "status", "state", "lag_lso", "lag_hw", "blocked", "unstable", "rev"],
    filters=["cluster", "status"],
    search=["group_id"],
)
_show(
    GroupOffset, ["topic", "partition", "group", "offset", "status", "waiting", "unstable"], search=["topic"]
)
_show(
    CommitRecord,
    ["group_id", "topic", "partition", "cluster", "offset", "commit_ms"],
    filters=["cluster"],
    search=["group_id", "topic"],
)
_show(
    AddedOffsetsRecord,
    ["producer_id", "log_partition", "cluster", "producer_epoch", "total", "marker", "read_ms"],
    filters=["cluster"],
    search=["offsets"],
    hidden=["offsets"],
)
_show(
    GroupRecord,
    ["group_id", "cluster", "log_partition", "log_offset"],
    filters=["cluster"],
    search=["group_id"],
)
_show(
    Series,
    ["name", "kind", "cluster", "since_ms", "open_ms", "peak", "ended_ms"],
    filters=["cluster", "kind"],
    search=["name"],
    hidden=["points", "minutes", "hours"],
)
_show(
    SeriesChunk,
    ["series", "cluster", "resolution", "start_ms", "until_ms", "peak"],
    filters=["cluster", "kind", "resolution"],
    hidden=["packed"],
)
_show(ObservedSpan, ["source", "cluster", "from_ms", "to_ms"], filters=["cluster", "source"])
_show(
    Recovery,
    ["transactional_id", "cluster", "cause", "confidence", "outcome", "opened_ms", "closed_ms", "rev"],
    filters=["cluster", "outcome", "cause"],
    search=["transactional_id"],
)
_show(
    Query,
    ["__str__", "cluster", "state", "sink", "planned", "finished", "prepared", "restart", "seen_ms", "rev"],
    filters=["cluster", "state", "sink"],
    search=["name", "ident", "checkpoint"],
)
_show(
    Run, ["run_id", "query", "started_ms", "ended_ms", "heard_ms", "batch_id", "dropped"], search=["run_id"]
)
_show(
    Batch,
    ["batch_id", "query", "planned_ms", "committed_ms", "duration_ms", "input_rows"],
    search=["query__name", "query__ident"],
)
_show(
    OperatorStateRecord,
    ["query", "operator_id", "name", "broken", "read_ms"],
    search=["name"],
    hidden=["chains"],
)
_show(
    FlinkJob,
    ["__str__", "cluster", "job_id", "checkpoint_id", "completed_ms", "pending", "seen_ms", "rev"],
    filters=["cluster"],
    search=["ident", "path"],
)
_show(
    FlinkCheckpointRecord,
    ["__str__", "job", "checkpoint_id", "version", "completed_ms"],
    search=["job__ident"],
    hidden=["committables", "writers"],
)
_show(
    FlinkRunRecord,
    ["__str__", "cluster", "job_id", "state", "started_ms", "seen_ms"],
    filters=["cluster", "state"],
    search=["name", "job_id"],
)
_show(
    ConnectorRecord,
    ["name", "cluster", "group", "kind", "state", "worker", "seen_ms"],
    filters=["cluster", "state", "kind"],
    search=["name"],
)
_show(
    SinkDecision,
    ["batch_id", "round", "query", "decided", "by", "outcome", "decided_ms", "done_ms"],
    filters=["decided", "outcome"],
    search=["query__name", "query__ident"],
)
_show(
    Action,
    ["__str__", "cluster", "state", "planned_by", "executed_by", "planned_at", "confirmed_at", "rev"],
    filters=["cluster", "act", "state"],
    search=["subjects", "planned_by", "executed_by", "reason"],
    # By its token a worker knows that it was sent.
    hidden=["lease_token"],
)
_show(
    Alert,
    ["__str__", "cluster", "state", "severity", "since_ms", "fired_ms", "resolved_ms", "rev"],
    filters=["cluster", "state", "severity", "rule"],
    search=["subject"],
)
_show(AlertChange, ["__str__", "alert", "at_ms", "processed_at"])
# Addresses hold credentials, and the secret signs.
_show(
    Channel,
    ["name", "kind", "min_severity", "enabled"],
    filters=["kind", "enabled"],
    hidden=["url", "secret", "old_secret"],
)
_show(
    Delivery,
    ["message_id", "channel", "origin", "reason", "state", "attempts", "created_at"],
    filters=["channel", "state", "origin"],
)
_show(Silence, ["id", "matchers", "starts_ms", "ends_ms", "reason", "created_by", "ended_by"])
_show(
    AuditEntry,
    ["at", "event", "subject_name", "actor", "via", "address", "count"],
    filters=["event", "via"],
    search=["subject_name", "actor"],
)
_show(
    AuditViolationRecord,
    ["pipeline", "cluster", "missing", "duplicated", "since_ms"],
    filters=["cluster"],
    search=["pipeline"],
)


@admin.register(Token)
class TokenAdmin(ReadOnlyAdmin):
    """Tokens are made and revoked by commands; whoever has Django's own permission deletes them here."""

    list_display = ["name", "role", "created_at", "expires_at", "revoked_at", "last_used_at"]
    list_filter = ["role"]
    search_fields = ["name"]
    exclude = ["digest"]

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Allow what Django's permission allows."""
        return bool(request.user.has_perm("dashboard.delete_token"))
