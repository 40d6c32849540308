"""`/api/v1/recoveries`: episodes, from a transaction that was ended until work went on."""

from __future__ import annotations

from typing import Annotated

from django.http import Http404, HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field, WithJsonSchema

from dashboard.api import cursors, schemas
from dashboard.api.common_schemas import OwnerOut
from dashboard.models import Recovery
from dashboard.recoveries import queries as recovery_queries
from dashboard.runtime.collector_names import RECOVERIES
from dashboard.system import owners
from fenceline.facts import Confidence, TransitionKind
from fenceline.losses.recoveries import RecoveryOutcome

router = Router(tags=["recoveries"])

#: Written in full: decisions of the sink have an `Outcome` of their own, and a description knows a name once.
EpisodeOutcome = Annotated[
    RecoveryOutcome,
    WithJsonSchema({"type": "string", "enum": [outcome.value for outcome in RecoveryOutcome]}),
]


class WaitOut(Schema):
    """A group that stood at the LSO; `resumed_at` is null until it had read on."""

    group: str
    topic: str
    partition: int
    offset: int
    since: schemas.Instant | None = Field(validation_alias="since_ms")
    resumed_at: schemas.Instant | None = Field(validation_alias="resumed_ms")


class LostOut(Schema):
    """The aborted records of a partition, offsets inclusive; null where nothing was written there.

    Not `sure`: only bounds are known, or nothing (`records` is null), or the topic may be another one since;
    `note` is the reason. `topic_deleted`: the topic was deleted since, re-created or not, and the records
    with it.
    """

    topic: str
    partition: int
    first_offset: int | None = Field(validation_alias="first")
    last_offset: int | None = Field(validation_alias="last")
    records: int | None
    sure: bool
    note: str
    topic_deleted: bool = Field(validation_alias="deleted")


class RecoveryOut(Schema):
    """An episode; null instants have not come, or were not seen.

    `released_at` is by the timestamps of the markers that consumers waited for; where `release_noticed`, the
    logs did not show them: consumers were unblocked then or before. `resumed_at` may come before it, where
    other transactions block the same partitions. `records_released` counts offsets that became readable when
    that was noticed, in topics that still exist. `lost` is whole once `lost_complete`.
    """

    id: int
    cluster: str = Field(validation_alias="cluster.name")
    transactional_id: str
    application: str
    cause: TransitionKind
    confidence: Confidence
    producer_id: int
    producer_epoch: int
    outcome: EpisodeOutcome
    begun_at: schemas.Instant | None = Field(validation_alias="begun_ms")
    opened_at: schemas.Instant | None = Field(validation_alias="opened_ms")
    completed_at: schemas.Instant | None = Field(validation_alias="completed_ms")
    released_at: schemas.Instant | None = Field(validation_alias="released_ms")
    release_noticed: bool
    resumed_at: schemas.Instant | None = Field(validation_alias="resumed_ms")
    resumed_by: str
    closed_at: schemas.Instant | None = Field(validation_alias="closed_ms")
    records_released: int | None
    waited: list[WaitOut]
    lost: list[LostOut]
    lost_complete: bool
    owner: OwnerOut | None
    rev: int

    @staticmethod
    def resolve_waited(row: Recovery) -> object:
        return recovery_queries.recovery_waits(row)

    @staticmethod
    def resolve_lost(row: Recovery) -> object:
        return recovery_queries.written_records(row)

    @staticmethod
    def resolve_owner(row: Recovery) -> object:
        return owners.of_transaction(row.transactional_id)


class RecoveryList(schemas.Listing):
    items: list[RecoveryOut]


class RecoveryFilters(schemas.ShortListFilters, recovery_queries.RecoveryCriteria):
    """The query string of the list; `q` is a part of a transactional id."""


@router.get("", response=RecoveryList, summary="List recoveries")
def list_recoveries(request: HttpRequest, wanted: Query[RecoveryFilters]) -> dict[str, object]:
    """Episodes, the newest first."""
    place = cursors.decode_cursor(wanted.cursor, "recoveries", (int, int))
    before = None if place is None else (int(place[0]), int(place[1]))
    rows, after = recovery_queries.newest_recoveries(wanted, before=before, limit=wanted.limit)
    following = None if after is None else cursors.encode_cursor("recoveries", *after)
    return schemas.list_answer(rows, following, wanted.cluster, RECOVERIES)


@router.get("/{cluster}/{int:number}", response=RecoveryOut, summary="One recovery")
def get_recovery(request: HttpRequest, cluster: schemas.Name, number: int) -> Recovery:
    """One episode by its id."""
    row = recovery_queries.find_recovery(cluster, number) if number < 2**63 else None
    if row is None or not row.cluster.configured:
        raise Http404(f"No recovery {number} is known on cluster '{cluster}'.")
    return row
