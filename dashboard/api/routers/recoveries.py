"""`/api/v1/recoveries`: episodes from the end of a transaction until consumers and producers resumed."""

from typing import Annotated

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field, WithJsonSchema

from dashboard.api import schemas
from dashboard.api.schemas import OwnerOut
from dashboard.models import Recovery
from dashboard.recoveries import queries as recovery_queries
from dashboard.recoveries.evidence import written_records
from dashboard.runtime.collector_names import RECOVERIES
from dashboard.system import owners
from fenceline.facts import Confidence, TransitionKind
from fenceline.losses.recoveries import RecoveryOutcome

router = Router(tags=["recoveries"])

#: An inline enum: the sink's decisions have an `Outcome` too, and OpenAPI needs unique schema names.
EpisodeOutcome = Annotated[
    RecoveryOutcome,
    WithJsonSchema({"type": "string", "enum": [outcome.value for outcome in RecoveryOutcome]}),
]


class WaitOut(Schema):
    """A group that waited at the LSO; `resumed_at` is null until it reads on."""

    group: str
    topic: str
    partition: int
    offset: int
    since: schemas.Instant | None = Field(validation_alias="since_ms")
    resumed_at: schemas.Instant | None = Field(validation_alias="resumed_ms")


class LostOut(Schema):
    """The aborted records of a partition, offsets inclusive; offsets are null if nothing was written there.

    `sure` is false if only bounds are known, if nothing is known (`records` is null), or if the topic may
    have been re-created; `note` is the reason. `topic_deleted`: the topic was deleted since, with its
    records, whether re-created or not.
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
    """An episode; an instant is null until it is reached, or if it was not observed.

    `released_at` is by the timestamps of the markers that consumers waited for. With `release_noticed` the
    logs did not show the markers: consumers were unblocked then or earlier. `resumed_at` may be earlier than
    `released_at` if other transactions block the same partitions. `records_released` counts the offsets that
    became readable when the release was noticed, in topics that still exist. `lost` is final once
    `lost_complete`.
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

    resolve_waited = staticmethod(recovery_queries.recovery_waits)
    resolve_lost = staticmethod(written_records)
    resolve_owner = staticmethod(lambda row: owners.of_transaction(row.transactional_id))


class RecoveryFilters(schemas.ShortListFilters, recovery_queries.RecoveryCriteria):
    """The query string of the list; `q` is a part of a transactional id."""


@router.get("", response=schemas.list_of(RecoveryOut), summary="List recoveries")
def list_recoveries(request: HttpRequest, wanted: Query[RecoveryFilters]) -> dict[str, object]:
    """Episodes, newest first."""
    place = schemas.decode_cursor(wanted.cursor, "recoveries", (int, int))
    before = None if place is None else (int(place[0]), int(place[1]))
    rows, after = recovery_queries.newest_recoveries(wanted, before=before, limit=wanted.limit)
    following = None if after is None else schemas.encode_cursor("recoveries", *after)
    return schemas.list_answer(rows, following, wanted.cluster, RECOVERIES)


@router.get("/{cluster}/{int:number}", response=RecoveryOut, summary="One recovery")
def get_recovery(request: HttpRequest, cluster: schemas.Name, number: int) -> Recovery:
    """Return an episode by its id."""
    unknown = f"No recovery {number} is known on cluster '{cluster}'."
    return schemas.known(recovery_queries.find_recovery(cluster, number), unknown)
