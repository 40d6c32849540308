"""`/api/v1/groups`: how far each consumer group is behind, and what it waits for."""

from __future__ import annotations

from typing import Any, Literal

from django.http import Http404, HttpRequest
from ninja import Query, Router, Schema

from dashboard.api import cursors, schemas
from dashboard.api.common_schemas import BlockerOut, OwnerOut
from dashboard.api.series_schemas import GroupSeries, SeriesFilters, group_step, series_answer
from dashboard.groups import queries as group_queries
from dashboard.models import Group, GroupOffset
from dashboard.runtime import visibility
from dashboard.runtime.collector_names import GROUPS
from dashboard.system import owners
from fenceline.decode import text
from fenceline.kafka.groups import GroupStatus, Waiting
from fenceline.series.points import GROUP

router = Router(tags=["groups"])

#: More partitions of a group than these are not returned at once.
_MOST_OFFSETS = 10_000


class GroupOut(Schema):
    """A consumer group; its status is its worst partition's (Burrow's words, and BLOCKED).

    `lag_lso` and `lag_hw` count offsets over all partitions, null where one is unknown; `lag_ms` is the
    longest. In `blocked` partitions its status is BLOCKED: it has consumed everything up to the last stable
    offset, which an open transaction has kept from moving for `group_blocked_s`. For `unstable` partitions a
    transactional commit is pending. Groups with random ids share a `family`.
    """

    cluster: str
    group: str
    family: str
    status: GroupStatus
    state: str
    kind: str
    members: int | None
    coordinator: int | None
    log_partition: int | None
    partitions: int
    lag_lso: int | None
    lag_hw: int | None
    lag_ms: int | None
    blocked: int
    unstable: int
    seen_at: str | None
    error: str
    rev: int


class OffsetOut(Schema):
    """What a group committed for a partition; `offset` is null where only a pending commit is there.

    `waiting`, where the LSO is below the high watermark: it is at the LSO (`probably`; BLOCKED once that
    lasts), past it (`reads_past`: read_uncommitted), or `not_yet` there. `waiting_since` is since when.
    """

    topic: str
    partition: int
    status: GroupStatus
    offset: int | None
    committed_at: str | None
    metadata: str
    log_start: int | None
    lso: int | None
    high_watermark: int | None
    lag_lso: int | None
    lag_hw: int | None
    lag_ms: int | None
    only_markers: bool
    commit_pending: bool
    waiting: Waiting | Literal[""]
    waiting_since: str | None
    blockers: list[BlockerOut]


class LagAt(Schema):
    at: str
    lag_lso: int | None
    lag_hw: int | None


class GroupDetail(GroupOut):
    """A group with its partitions, the worst first, and its lag in the last polls."""

    owner: OwnerOut | None
    offsets: list[OffsetOut]
    trend: list[LagAt]


class GroupList(schemas.Listing):
    items: list[GroupOut]


class GroupFilters(schemas.ListFilters, group_queries.GroupCriteria):
    """The query string of the list; `q` is a part of a group's id, `pending` groups have a commit pending."""


@router.get("", response=GroupList, summary="List consumer groups")
def list_groups(request: HttpRequest, wanted: Query[GroupFilters]) -> dict[str, object]:
    """Every consumer group that matches, as it was first seen; families are not folded."""
    schemas.refuse_range(request, "consumer groups")
    place = cursors.read_number(wanted.cursor, "groups") or 0
    found = group_queries.groups_after(wanted, place=place, limit=wanted.limit + 1)
    page, following = cursors.cut_page("groups", found, wanted.limit, cursors.by_key)
    return {
        "items": [GroupOut(**_fields(row)) for row in page],
        "next": following,
        **schemas.visibility_fields(visibility.noun_visibility(wanted.cluster, GROUPS)),
    }


@router.get(
    "/{cluster}/{text:group}/series",
    response=GroupSeries,
    by_alias=True,
    summary="The lag of a consumer group over time",
)
def get_group_series(
    request: HttpRequest, cluster: schemas.Name, group: str, wanted: Query[SeriesFilters]
) -> dict[str, object]:
    """Its lag in a range of time; also of a group that is gone. Percent-encode all but letters and digits."""
    row = group_queries.find_group(cluster, group)
    name = text.escape_bytes(group.encode()) if row is None else row.group_id
    found = series_answer(cluster, GROUP, name, wanted, group_step, is_known=lambda: row is not None)
    if found is None:
        raise Http404(f"No group '{group}' was ever known on cluster '{cluster}'.")
    return found


@router.get("/{cluster}/{text:group}", response=GroupDetail, summary="One consumer group")
def get_group(request: HttpRequest, cluster: schemas.Name, group: str) -> GroupDetail:
    """One group in each of its partitions; percent-encode all but letters and digits."""
    row = group_queries.find_group(cluster, group)
    if row is None or not row.cluster.configured:
        raise Http404(f"No group '{group}' is known on cluster '{cluster}'.")
    return GroupDetail(
        **_fields(row),
        owner=OwnerOut.from_owner(owners.find_owner(row.group_id, row.family)),
        offsets=[_offset(each) for each in group_queries.offset_page(row, page=1, size=_MOST_OFFSETS).items],
        trend=[
            LagAt(at=schemas.format_iso(point.at_ms) or "", lag_lso=point.lag_lso, lag_hw=point.lag_hw)
            for point in group_queries.lag_trend(row)
        ],
    )


def _fields(row: Group) -> dict[str, Any]:
    return {
        "cluster": row.cluster.name,
        "group": row.group_id,
        "family": row.family,
        "status": GroupStatus(row.status),
        "state": row.state,
        "kind": row.kind,
        "members": row.members,
        "coordinator": row.coordinator,
        "log_partition": row.log_partition,
        "partitions": row.partitions,
        "lag_lso": row.lag_lso,
        "lag_hw": row.lag_hw,
        "lag_ms": row.lag_ms,
        "blocked": row.blocked,
        "unstable": row.unstable,
        "seen_at": schemas.format_iso(row.seen_ms),
        "error": row.error,
        "rev": row.rev,
    }


def _offset(row: GroupOffset) -> OffsetOut:
    return OffsetOut(
        topic=row.topic,
        partition=row.partition,
        status=GroupStatus(row.status),
        offset=row.offset,
        committed_at=schemas.format_iso(row.commit_ms),
        metadata=row.metadata,
        log_start=row.log_start,
        lso=row.lso,
        high_watermark=row.high_watermark,
        lag_lso=group_queries.offset_lag(row, row.lso),
        lag_hw=group_queries.offset_lag(row, row.high_watermark),
        lag_ms=row.lag_ms,
        only_markers=row.only_markers,
        commit_pending=row.unstable,
        waiting=Waiting(row.waiting) if row.waiting else "",
        waiting_since=schemas.format_iso(row.waiting_ms),
        blockers=[BlockerOut.from_blocker(each) for each in group_queries.blocking_transactions(row)],
    )
