"""Django's admin shows the same rows without changing any: observed state has one writer. Actions on selected
rows make one plan, of at most 50 subjects of one cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from dashboard import models
from dashboard.actions import offers
from dashboard.actions import planning as action_service
from dashboard.models import PartitionRecord, PinRecord, Transaction
from dashboard.partitions import queries as partition_queries
from dashboard.runtime import loop
from dashboard.system import access
from fenceline.formatting import list_names
from fenceline.plans.plan import MOST_SUBJECTS, Act

Row = TypeVar("Row", Transaction, PinRecord, PartitionRecord)
#: Acts that end a transaction from a list; a batch of our sink is ended from its query's page.
_ENDS = (Act.FENCE, Act.ABORT_MARKER)
_NOTHING = "Nothing that is selected is open and can be ended from here."
_MOST_REASONS = 3


class _Chosen(NamedTuple):
    """One subject: its cluster, its act, and its name as planning takes it."""

    cluster: str
    act: Act
    name: str


class _Unfit(Exception):
    """No plan can be made of the selection; the text is the reason and the remedy."""


@admin.action(description="Fence producers…")
def fence_producers(of: object, request: HttpRequest, rows: QuerySet[Transaction]) -> HttpResponse | None:
    """Plan to fence the producers of the selected ids."""
    return _plan(
        request,
        rows,
        lambda ids: [_Chosen(row.cluster.name, Act.FENCE, row.transactional_id) for row in ids],
    )


@admin.action(description="Abort stuck transactions…")
def abort_of_ids(of: object, request: HttpRequest, rows: QuerySet[Transaction]) -> HttpResponse | None:
    """Plan to end the open transactions of the selected ids: a fence if owned, an abort marker if hanging."""
    return _plan(request, rows, _of_ids)


@admin.action(description="Abort stuck transactions…")
def abort_of_pins(of: object, request: HttpRequest, rows: QuerySet[PinRecord]) -> HttpResponse | None:
    """Plan to end the selected open transactions."""
    return _plan(request, rows, _of_pins)


@admin.action(description="Abort stuck transactions…")
def abort_in(of: object, request: HttpRequest, rows: QuerySet[PartitionRecord]) -> HttpResponse | None:
    """Plan to end the open transactions in the selected partitions."""
    return _plan(request, rows, _of_partitions)


def _plan(
    request: HttpRequest, rows: QuerySet[Row], choose: Callable[[Sequence[Row]], Sequence[_Chosen]]
) -> HttpResponse | None:
    """Make the plan and redirect to its page; if no plan can be made, stay and show the reason."""
    try:
        chosen = choose(_selected(rows))
        _check(chosen)
        row = action_service.plan_for(
            access.actor_of(request, "admin"),
            chosen[0].cluster,
            chosen[0].act,
            [subject.name for subject in chosen],
            force=False,
            now_ms=loop.now_ms(),
        )
    except (action_service.NotPlanned, _Unfit) as error:
        messages.error(request, f"{error} Nothing was planned.")
        return None
    return HttpResponseRedirect(reverse("action", args=[row.pk]), status=303)


def _selected(rows: QuerySet[Row]) -> Sequence[Row]:
    """Return the selected rows; raises `_Unfit` if they exceed the subjects of one plan."""
    selected = list(rows.select_related("cluster")[: MOST_SUBJECTS + 1])
    if len(selected) > MOST_SUBJECTS:
        raise _Unfit(f"One plan has at most {MOST_SUBJECTS} subjects: select fewer rows.")
    return selected


def _check(chosen: Sequence[_Chosen]) -> None:
    """Raise `_Unfit` for a selection that is not one plan: nothing, several clusters, several acts."""
    if not chosen:
        raise _Unfit(_NOTHING)
    clusters = sorted({subject.cluster for subject in chosen})
    if len(clusters) > 1:
        raise _Unfit(
            f"One plan is for one cluster, and these are of {list_names(clusters)}: filter by cluster."
        )
    hanging = sum(subject.act is Act.ABORT_MARKER for subject in chosen)
    if 0 < hanging < len(chosen):
        raise _Unfit(
            f"One plan is one act: {hanging} of these hang and need an abort marker, "
            f"{len(chosen) - hanging} are owned by a coordinator and need a fence. Select one kind."
        )


def _of_ids(transactions: Sequence[Transaction]) -> Sequence[_Chosen]:
    offered = offers.of_transactions(transactions, now_ms=loop.now_ms())
    return _offered([offer for row in transactions for offer in offered[row.pk]])


def _of_partitions(partitions: Sequence[PartitionRecord]) -> Sequence[_Chosen]:
    names = [(row.cluster_id, row.topic, row.partition) for row in partitions]
    return _of_pins([pin for pins in partition_queries.partition_pins(names).values() for pin in pins])


def _of_pins(pins: Sequence[PinRecord]) -> Sequence[_Chosen]:
    now_ms = loop.now_ms()
    return _offered(
        [offer for pin in pins for offer in offers.of_pins(pin.cluster.name, [pin], now_ms=now_ms)]
    )


def _offered(offered: Sequence[offers.Offer]) -> Sequence[_Chosen]:
    """Return the planners' offers; raises `_Unfit` with their reasons if there are none.

    Without other offers, those that an admin may force are planned: the plan's page explains them.
    """
    ends = [offer for offer in offered if offer.act in _ENDS]
    wanted = offers.available_offers(ends) or [offer for offer in ends if offer.forceable]
    if not wanted and offered:
        reasons = dict.fromkeys(offer.refusals[0].words for offer in offered if offer.refusals)
        raise _Unfit(f"{_NOTHING} {' '.join(list(reasons)[:_MOST_REASONS])}")
    return list(dict.fromkeys(_Chosen(offer.cluster, offer.act, offer.subject) for offer in wanted))


if TYPE_CHECKING:
    # Django's own class takes no type parameter at run time.
    Base = admin.ModelAdmin[Any]
else:
    Base = admin.ModelAdmin


class ReadOnlyAdmin(Base):
    """Lists and shows rows; adds, changes and deletes none."""

    # The full count beside a search would read all rows of a large table.
    show_full_result_count = False
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Refuse, because rows come from collectors."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Refuse: observed rows are not edited."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Refuse: observed rows are not deleted by hand."""
        return False


def _show(
    model: type[Model],
    columns: str,
    filters: str = "",
    search: str = "",
    *,
    hidden: str = "",
    actions: Sequence[Any] = (),
) -> None:
    """Register a table: names of columns, filters, searched and hidden fields, as words of texts."""
    attributes: dict[str, Any] = {
        "list_display": columns.split(),
        "list_filter": filters.split(),
        "search_fields": search.split(),
        "exclude": hidden.split(),
        "actions": actions,
        # Lists show foreign keys, which are read in one query.
        "list_select_related": True,
    }
    admin.site.register(model, type(f"{model.__name__}Admin", (ReadOnlyAdmin,), attributes))


_show(models.Cluster, "name rev configured")
_show(
    models.Transaction,
    "transactional_id cluster state producer_id producer_epoch partition_count rev",
    "cluster state",
    "transactional_id",
    actions=[abort_of_ids, fence_producers],
)
_show(models.Collector, "name cluster token holder expires_at behind records error")
_show(
    models.CoordinatorMoveRecord, "__str__ cluster seen_ms from_broker to_broker ids answered_ms", "cluster"
)
_show(models.Position, "topic partition cluster next_offset end_offset", "cluster topic")
_show(models.GapRecord, "source scope cluster reason count since_ms until_ms", "cluster")
_show(models.FindingRecord, "summary cluster rule severity seen_at closed_at", "cluster rule")
_show(
    models.Incident, "__str__ cluster severity opened_ms closed_ms acknowledged_by", "cluster rule severity"
)
_show(models.IncidentFinding, "summary incident role since_ms until_ms", "role")
_show(models.IncidentEvent, "__str__ incident at_ms actor", "kind")
_show(
    models.PartitionRecord,
    "topic partition cluster verdict log_start lso high_watermark leader rev",
    "cluster verdict",
    "topic",
    actions=[abort_in],
)
_show(
    models.PinRecord,
    "topic partition cluster transactional_id producer_id start_offset verdict ground",
    "cluster verdict",
    "topic transactional_id",
    actions=[abort_of_pins],
)
_show(models.ReplicaLook, "topic partition broker cluster leads seen_ms error", search="topic")
_show(
    models.Group,
    "group_id cluster status state lag_lso lag_hw blocked unstable rev",
    "cluster status",
    "group_id",
)
_show(models.GroupOffset, "topic partition group offset status waiting unstable", search="topic")
_show(models.CommitRecord, "group_id topic partition cluster offset commit_ms", "cluster", "group_id topic")
_show(
    models.AddedOffsetsRecord,
    "producer_id log_partition cluster producer_epoch total marker read_ms",
    "cluster",
    "offsets",
    hidden="offsets",
)
_show(models.GroupRecord, "group_id cluster log_partition log_offset", "cluster", "group_id")
_show(
    models.Series,
    "name kind cluster since_ms open_ms peak ended_ms",
    "cluster kind",
    "name",
    hidden="points minutes hours",
)
_show(
    models.SeriesChunk,
    "series cluster resolution start_ms until_ms peak",
    "cluster kind resolution",
    hidden="packed",
)
_show(models.ObservedSpan, "source cluster from_ms to_ms", "cluster source")
_show(
    models.Recovery,
    "transactional_id cluster cause confidence outcome opened_ms closed_ms rev",
    "cluster outcome cause",
    "transactional_id",
)
_show(
    models.AbortedCommit,
    "transactional_id cluster application producer_id started_ms committed_ms",
    "cluster",
    "transactional_id",
)
_show(
    models.Query,
    "__str__ cluster state sink planned finished prepared restart seen_ms rev",
    "cluster state sink",
    "name ident checkpoint",
)
_show(models.Run, "run_id query started_ms ended_ms heard_ms batch_id dropped", search="run_id")
_show(
    models.Batch,
    "batch_id query planned_ms committed_ms duration_ms input_rows",
    search="query__name query__ident",
)
_show(models.OperatorStateRecord, "query operator_id name broken read_ms", search="name", hidden="chains")
_show(
    models.FlinkJob,
    "__str__ cluster job_id checkpoint_id completed_ms pending seen_ms rev",
    "cluster",
    "ident path",
)
_show(
    models.FlinkCheckpointRecord,
    "__str__ job checkpoint_id version completed_ms",
    search="job__ident",
    hidden="committables writers",
)
_show(
    models.FlinkRunRecord, "__str__ cluster job_id state started_ms seen_ms", "cluster state", "name job_id"
)
_show(models.ConnectorRecord, "name cluster group kind state worker seen_ms", "cluster state kind", "name")
_show(
    models.SinkDecision,
    "batch_id round query decided by outcome decided_ms done_ms",
    "decided outcome",
    "query__name query__ident",
)
# A worker's token proves that it was sent.
_show(
    models.Action,
    "__str__ cluster state planned_by executed_by planned_at confirmed_at rev",
    "cluster act state",
    "subjects planned_by executed_by reason",
    hidden="lease_token",
)
_show(
    models.Alert,
    "__str__ cluster state severity since_ms fired_ms resolved_ms rev",
    "cluster state severity rule",
    "subject",
)
_show(models.AlertChange, "__str__ alert at_ms processed_at")
# Addresses contain credentials, and the secret signs messages.
_show(models.Channel, "name kind min_severity enabled", "kind enabled", hidden="url secret old_secret")
_show(models.Delivery, "message_id channel origin reason state attempts created_at", "channel state origin")
_show(models.Silence, "id matchers starts_ms ends_ms reason created_by ended_by")
_show(models.AuditEntry, "at event subject_name actor via address count", "event via", "subject_name actor")
_show(models.AuditViolationRecord, "pipeline cluster missing duplicated since_ms", "cluster", "pipeline")


@admin.register(models.Token)
class TokenAdmin(ReadOnlyAdmin):
    """Tokens are made and revoked elsewhere; a user with Django's own permission deletes them here."""

    list_display = ["name", "role", "created_at", "expires_at", "revoked_at", "last_used_at"]
    list_filter = ["role"]
    search_fields = ["name"]
    exclude = ["digest"]

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Allow it with Django's permission."""
        return bool(request.user.has_perm("dashboard.delete_token"))
