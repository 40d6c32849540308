"""`/api/v1/groups`: consumer groups, their lag, and the transactions that block them."""

from typing import Literal

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from dashboard.api import schemas
from dashboard.api.schemas import BlockerOut, OwnerOut
from dashboard.api.series_schemas import GroupSeries, SeriesFilters, series_answer
from dashboard.groups import queries as group_queries
from dashboard.groups.queries import group_stores
from dashboard.models import Group
from dashboard.runtime.collector_names import GROUPS
from dashboard.system import owners
from fenceline.decode import text
from fenceline.kafka.groups import GroupStatus, Waiting
from fenceline.series.points import GROUP

router = Router(tags=["groups"])

#: The most partitions of a group in one response.
_MOST_OFFSETS = 10_000


class GroupOut(Schema):
    """A consumer group; its status is its worst partition's (Burrow's terms, and BLOCKED).

    `lag_lso` and `lag_hw` count offsets over all partitions, null if one is unknown; `lag_ms` is the longest
    lag. `blocked` counts partitions with the status BLOCKED: the group has consumed everything up to the last
    stable offset, and an open transaction has held that offset for `group_blocked_s`. `unstable` counts
    partitions with a pending transactional commit. Groups with random ids share a `family`.
    """

    cluster: str = Field(validation_alias="cluster.name")
    group: str = Field(validation_alias="group_id")
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
    seen_at: schemas.Instant | None = Field(validation_alias="seen_ms")
    error: str
    rev: int


class OffsetOut(Schema):
    """A group's committed offset of a partition; `offset` is null if there is only a pending commit.

    `waiting` is set if the LSO is below the high watermark. `probably`: the group is at the LSO (BLOCKED once
    that lasts). `reads_past`: it is past the LSO, as with read_uncommitted. `not_yet`: it is below the LSO.
    `waiting_since` is the time since which it waits.
    """

    topic: str
    partition: int
    status: GroupStatus
    offset: int | None
    committed_at: schemas.Instant | None = Field(validation_alias="commit_ms")
    metadata: str
    log_start: int | None
    lso: int | None
    high_watermark: int | None
    lag_lso: int | None
    lag_hw: int | None
    lag_ms: int | None
    only_markers: bool
    commit_pending: bool = Field(validation_alias="unstable")
    waiting: Waiting | Literal[""]
    waiting_since: schemas.Instant | None = Field(validation_alias="waiting_ms")
    blockers: list[BlockerOut]

    resolve_blockers = staticmethod(group_queries.blocking_transactions)


class LagAt(Schema):
    at: schemas.Instant = Field(validation_alias="at_ms")
    lag_lso: int | None
    lag_hw: int | None


class StoreOut(Schema):
    """A state store of Kafka Streams; numbers of tasks are null if brokers do not report them (KIP-1071).

    `offsets` is the most offsets that a rebuild from its changelog reads.
    """

    name: str
    changelog: str
    sources: list[str]
    active: int | None
    standby: int | None
    warmup: int | None
    offsets: int | None


class GroupDetail(GroupOut):
    """A group with its partitions (worst first), its lag in the last polls, and its state stores."""

    owner: OwnerOut | None
    offsets: list[OffsetOut]
    trend: list[LagAt]
    stores: list[StoreOut]

    resolve_stores = staticmethod(group_stores)
    resolve_owner = staticmethod(lambda row: owners.find_owner(row.group_id, row.family))

    @staticmethod
    def resolve_offsets(row: Group) -> object:
        return group_queries.offset_page(row, page=1, size=_MOST_OFFSETS).items

    resolve_trend = staticmethod(group_queries.lag_trend)


class GroupFilters(schemas.ListFilters, group_queries.GroupCriteria):
    """The query string of the list; `q` is a part of a group's id, `pending` groups have a pending commit."""


@router.get("", response=schemas.list_of(GroupOut), summary="List consumer groups")
def list_groups(request: HttpRequest, wanted: Query[GroupFilters]) -> dict[str, object]:
    """Consumer groups, in the order in which they were first seen; families are not folded."""
    place = schemas.read_number(wanted.cursor, "groups") or 0
    rows = group_queries.groups_after(wanted, place=place, limit=wanted.limit + 1)
    return schemas.list_answer(*schemas.cut_page("groups", rows, wanted.limit), wanted.cluster, GROUPS)


@router.get(
    "/{cluster}/{text:group}/series",
    response=GroupSeries,
    by_alias=True,
    summary="The lag of a consumer group over time",
)
def get_group_series(
    request: HttpRequest, cluster: schemas.Name, group: schemas.Name, wanted: Query[SeriesFilters]
) -> dict[str, object]:
    """Lag in a range of time, also of a deleted group. Percent-encode all but letters and digits."""
    row = group_queries.find_group(cluster, group)
    name = text.escape_bytes(group.encode()) if row is None else row.group_id
    unknown = f"No group '{group}' was ever known on cluster '{cluster}'."
    return series_answer(cluster, GROUP, name, wanted, is_known=lambda: row is not None, unknown=unknown)


@router.get("/{cluster}/", response=GroupDetail, include_in_schema=False)
def get_group_without_id(request: HttpRequest, cluster: schemas.Name) -> Group:
    """Return the group with the empty id: its path ends with a slash."""
    return get_group(request, cluster, "")


@router.get("/{cluster}/{text:group}", response=GroupDetail, summary="One consumer group")
def get_group(request: HttpRequest, cluster: schemas.Name, group: schemas.Name) -> Group:
    """Return a group with its partitions; percent-encode all but letters and digits in the path."""
    unknown = f"No group '{group}' is known on cluster '{cluster}'."
    return schemas.known(group_queries.find_group(cluster, group), unknown)
