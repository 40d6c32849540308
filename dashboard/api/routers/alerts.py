"""`/api/v1/alerts` and `/api/v1/silences`: alerts, and the reason why each was notified or not; silences,
which suppress the notification of alerts.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Literal, Self

from django.http import HttpRequest
from ninja import Query, Router, Schema, Status
from pydantic import BeforeValidator, Field

from dashboard.alerts import queries as alert_queries
from dashboard.alerts import silences
from dashboard.api import schemas
from dashboard.api.auth import require_permission
from dashboard.api.problems import Body
from dashboard.models import Alert, Delivery, Silence
from dashboard.runtime import loop
from dashboard.runtime.collector_names import ALERTS
from dashboard.system import access
from fenceline.alerts.labels import MOST_MATCHERS, Matcher, make_matcher, parse_matchers
from fenceline.facts import Severity

router = Router(tags=["alerts"])
_CHANGES = 100


class QuietOut(Schema):
    """A reason against notifying; `by` is the number of a silence or an alert, a channel's name, or ""."""

    kind: str
    by: str
    words: str


class FateOut(Schema):
    """The outcome for one channel: a delivery and its state, or the reason (`why`) for no delivery."""

    channel_id: int | None
    channel: str
    delivery_id: int | None
    delivery_state: Delivery.State | Literal[""]
    why: str

    @classmethod
    def from_fate(cls, fate: alert_queries.NotificationOutcome) -> Self:
        channel, delivery = fate.channel, fate.delivery
        return cls(
            channel_id=channel.pk if channel else None,
            channel=channel.name if channel else "",
            delivery_id=delivery.pk if delivery else None,
            delivery_state=Delivery.State(delivery.state) if delivery else "",
            why=fate.why,
        )


class ChangeOut(Schema):
    """A change of an alert's state; `settled` once the notification is decided for every channel."""

    id: int = Field(validation_alias="of.pk")
    old: str = Field(validation_alias="of.old")
    new: Alert.State = Field(validation_alias="of.new")
    at: schemas.Instant | None = Field(validation_alias="of.at_ms")
    settled: bool = Field(validation_alias="is_settled")
    fates: list[FateOut]

    resolve_fates = staticmethod(lambda change: list(map(FateOut.from_fate, change.fates)))


class AlertOut(Schema):
    """An alert: all findings of one rule, cluster and subject over time are the same alert.

    `quiet` are the reasons why nobody is notified now. `told` are the channels that were notified that the
    alert fires. `/rules/{rule}` explains its rule.
    """

    id: int
    fingerprint: str
    rule: str
    cluster: str = Field(validation_alias="cluster.name")
    subject: str
    severity: Severity
    state: Alert.State
    since: schemas.Instant | None = Field(validation_alias="since_ms")
    fired_at: schemas.Instant | None = Field(validation_alias="fired_ms")
    resolved_at: schemas.Instant | None = Field(validation_alias="resolved_ms")
    flapping_since: schemas.Instant | None = Field(validation_alias="flapping_ms")
    labels: dict[str, str]
    annotations: dict[str, str]
    affected: list[str]
    quiet: list[QuietOut]
    told: list[FateOut] = Field(validation_alias="notified")
    rev: int

    resolve_fingerprint = staticmethod(lambda row: bytes(row.fingerprint).hex())

    @staticmethod
    def resolve_quiet(row: Alert) -> object:
        return [{"kind": kind, "by": by.removeprefix("#"), "words": words} for kind, by, words in row.quiet]


class AlertDetail(AlertOut):
    """An alert with its last hundred changes, newest first."""

    changes: list[ChangeOut]

    resolve_changes = staticmethod(lambda row: alert_queries.alert_changes(row, limit=_CHANGES))


class AlertFilters(schemas.ShortListFilters, alert_queries.AlertCriteria):
    """The query string of the list.

    `voice`: quiet alerts are those whose notification is suppressed; `q` is a part of a subject or a rule.
    """

    state: Literal["active", "firing", "pending", "resolved", "all"] = "active"


@router.get("", response=schemas.list_of(AlertOut), summary="List alerts")
def list_alerts(request: HttpRequest, wanted: Query[AlertFilters]) -> dict[str, object]:
    """Alerts, newest first; without `state` the firing and pending ones."""
    before = schemas.read_number(wanted.cursor, "alerts")
    rows = alert_queries.alerts_before(before, wanted, limit=wanted.limit + 1, now_ms=loop.now_ms())
    page, following = schemas.cut_page("alerts", rows, wanted.limit)
    return schemas.list_answer(_with_notified(page), following, wanted.cluster, ALERTS)


@router.get("/{int:number}", response=AlertDetail, summary="One alert")
def get_alert(request: HttpRequest, number: int) -> Alert:
    """Return an alert by its id, with its changes and the outcome of each for the channels."""
    row = schemas.known(alert_queries.find_alert(number), f"No alert {number} is known.")
    return _with_notified([row])[0]


def _with_notified(rows: Sequence[Alert]) -> Sequence[Alert]:
    """Return rows with the channels last notified of each alert, read for all rows at once."""
    notified = alert_queries.last_notifications(rows)
    for row in rows:
        schemas.add_fields(row, notified=list(map(FateOut.from_fate, notified[row.pk])))
    return rows


#: The most characters of a text that is parsed.
LONGEST_TEXT = 50_000
Text = Annotated[str, Field(max_length=LONGEST_TEXT)]


class MatcherIO(Body):
    """A condition on a label, as in Alertmanager; `operator` is one of = != =~ !~."""

    label: str = Field(max_length=100)
    operator: str = Field("=", max_length=2)
    value: str = Field(max_length=10_000)


#: Text such as `team="Payments", cluster=~"prod.*"`, or a list of matchers.
Matchers = Text | Annotated[list[MatcherIO], Field(max_length=100)]


def _read_kept(kept: list[list[str]]) -> list[MatcherIO]:
    return [MatcherIO(label=label, operator=sign, value=value) for label, sign, value in kept]


#: Matchers in the form stored in rows.
KeptMatchers = Annotated[list[MatcherIO], BeforeValidator(_read_kept)]


def read_matchers(asked: Matchers) -> list[Matcher]:
    """Return the matchers in a request; raises ValueError with a readable message."""
    if isinstance(asked, str):
        return parse_matchers(asked)
    if len(asked) > MOST_MATCHERS:
        raise ValueError(f"These are {len(asked)} matchers; at most {MOST_MATCHERS} are taken.")
    return [make_matcher(given.label, given.operator, given.value) for given in asked]


silences_router = Router(tags=["silences"])

State = Literal["active", "scheduled", "expired"]
#: The silence's own check rejects long durations with a reason; this limit prevents an overflow before it.
_LONGEST_S = 1e9


class SilenceOut(Schema):
    """A silence: alerts that match all of its matchers are not notified between its start and its end.

    `ended_by` is the user who ended it early, or "".
    """

    id: int
    state: State
    matchers: KeptMatchers
    starts_at: schemas.Instant | None = Field(validation_alias="starts_ms")
    ends_at: schemas.Instant | None = Field(validation_alias="ends_ms")
    reason: str
    created_by: str
    created_at: schemas.Instant | None
    ended_by: str

    resolve_state = staticmethod(lambda row: alert_queries.state_of(row, now_ms=loop.now_ms()))


class SilenceIn(Body):
    """A new silence from `starts_at` (default: now) until `ends_at`, or for `duration_s` seconds."""

    matchers: Matchers
    reason: Text
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    duration_s: float | None = Field(None, gt=0, le=_LONGEST_S)


class SilenceFilters(Schema):
    """The query string of the list."""

    state: Literal["active", "scheduled", "expired", "all"] = "all"
    limit: int = Field(100, ge=1, le=500)
    cursor: str = ""


@silences_router.get("", response=schemas.list_of(SilenceOut), summary="List silences")
def list_silences(request: HttpRequest, wanted: Query[SilenceFilters]) -> dict[str, object]:
    """Silences, newest first, also expired ones."""
    now_ms, before = loop.now_ms(), schemas.read_number(wanted.cursor, "silences")
    rows = alert_queries.silences_before(before, wanted.state, limit=wanted.limit + 1, now_ms=now_ms)
    return schemas.list_answer(*schemas.cut_page("silences", rows, wanted.limit), noun=ALERTS)


@silences_router.post("", response={201: SilenceOut}, summary="Make a silence")
def make_silence(request: HttpRequest, asked: SilenceIn) -> Status[Silence]:
    """Suppress the notification of matching alerts; needs the role operator."""
    actor = require_permission(request, access.SILENCE)
    draft = silences.SilenceDraft(
        matchers=partial(read_matchers, asked.matchers),
        reason=asked.reason,
        starts=lambda: _ms(asked.starts_at),
        ends=lambda: _ms(asked.ends_at),
        lasts_ms=None if asked.duration_s is None else int(asked.duration_s * 1_000),
    )
    return Status(201, silences.create_silence(draft, by=actor.name, now_ms=loop.now_ms()))


@silences_router.get("/{int:number}", response=SilenceOut, summary="One silence")
def get_silence(request: HttpRequest, number: int) -> Silence:
    """Return a silence by its id."""
    return _known_silence(number)


@silences_router.delete("/{int:number}", response=SilenceOut, summary="End a silence")
def end_silence(request: HttpRequest, number: int) -> Silence:
    """End a silence now; it stays in the list. Needs the role operator."""
    actor, row = require_permission(request, access.SILENCE), _known_silence(number)
    silences.end_silence(row, by=actor.name, now_ms=loop.now_ms())
    return _known_silence(number)


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else schemas.instant_ms(moment)


def _known_silence(number: int) -> Silence:
    return schemas.known(alert_queries.find_silence(number), f"No silence {number} is known.")
