"""What lists of alerts, deliveries and silences are asked for, parsed without ever failing. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dashboard.alerts.queries import AlertCriteria, DeliveryFilter
from dashboard.models import Alert, Delivery
from dashboard.web.forms.columns import check_cluster, clip, one_of, page_number, searched, size_of
from fenceline.facts import Severity

STATES = tuple(state.value for state in (Alert.State.FIRING, Alert.State.PENDING, Alert.State.RESOLVED))
SEVERITIES = tuple(severity.value for severity in Severity)
VOICES = ("loud", "quiet")
DELIVERY_STATES = tuple(state.value for state in Delivery.State)
ORIGINS = tuple(origin.value for origin in Delivery.Origin)
_LONGEST = 200
_LONGEST_NUMBER = 18


@dataclass(frozen=True, slots=True)
class AlertListQuery:
    """A parsed query string; `ignored` says in words what in it could not be used."""

    filter: AlertCriteria
    page: int
    size: int
    ignored: Sequence[str] = field(default_factory=list)

    @property
    def narrowed(self) -> bool:
        """Return whether anything but the cluster narrows the list."""
        only = self.filter
        return bool(only.state or only.severity or only.rule or only.team or only.q or only.voice)


@dataclass(frozen=True, slots=True)
class DeliveryListQuery:
    """The same of deliveries; `before` is the row behind which the list goes on."""

    filter: DeliveryFilter
    before: int | None
    ignored: Sequence[str] = field(default_factory=list)

    @property
    def narrowed(self) -> bool:
        """Return whether anything narrows the list."""
        return self.filter != DeliveryFilter()


def parse(query: Mapping[str, str], cluster: str, clusters: Sequence[str]) -> AlertListQuery:
    """Return which alerts a query string asks for."""
    ignored: list[str] = []
    check_cluster(query, clusters, ignored)
    wanted = AlertCriteria(
        cluster=cluster,
        state=one_of("state", query, STATES, "", ignored),
        severity=one_of("severity", query, SEVERITIES, "", ignored),
        voice=one_of("voice", query, VOICES, "", ignored),
        rule=_text(query, "rule"),
        team=_text(query, "team"),
        q=searched(query),
    )
    return AlertListQuery(wanted, page_number(query, ignored), size_of(query, ignored), ignored)


def parse_deliveries(query: Mapping[str, str]) -> DeliveryListQuery:
    """Return which deliveries a query string asks for."""
    ignored: list[str] = []
    wanted = DeliveryFilter(
        channel=_number(query, "channel", ignored),
        state=one_of("state", query, DELIVERY_STATES, "", ignored),
        origin=one_of("origin", query, ORIGINS, "", ignored),
    )
    return DeliveryListQuery(wanted, _number(query, "before", ignored), ignored)


def _text(query: Mapping[str, str], key: str) -> str:
    return query.get(key, "").replace("\0", "")[:_LONGEST]


def _number(query: Mapping[str, str], key: str, ignored: list[str]) -> int | None:
    value = query.get(key, "")
    if not value:
        return None
    if value.isascii() and value.isdigit() and len(value) <= _LONGEST_NUMBER:
        return int(value)
    ignored.append(f"{key} “{clip(value)}” is not a number")
    return None
