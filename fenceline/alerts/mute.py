"""The reasons that keep an alert quiet: silences, and the alert of its cause. Pure.

An alert whose finding is an effect in an incident is inhibited for channels that want the alert of its cause;
other channels get the effect. As in an Alertmanager, a silenced cause still inhibits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from fenceline.alerts.grouping import Item, Route, route_refusal
from fenceline.alerts.labels import readable_name
from fenceline.alerts.matchers import CompilePattern, MatcherSet
from fenceline.alerts.notification_decision import Why
from fenceline.alerts.payload import format_rfc3339
from fenceline.incidents.findings import FindingKey


class Quiets(Protocol):
    """A silence's row."""

    pk: int
    matchers: Sequence[Sequence[str]]
    ends_ms: int
    reason: str
    created_by: str


class Muting:
    """The active silences, and the causes of incidents among one cluster's firing alerts."""

    def __init__(
        self, items: Iterable[Item], silences: Iterable[Quiets], compile_pattern: CompilePattern
    ) -> None:
        firing = [item for item in items if item.firing]
        self._silences = [(silence, MatcherSet(silence.matchers, compile_pattern)) for silence in silences]
        self._firing = {FindingKey(item.rule, item.subject): item for item in firing}
        self._silenced = {item.fingerprint: self._who(item) for item in firing}
        self._wanted: dict[tuple[int, str], bool] = {}

    def matching_silences(self, item: Item) -> Sequence[Why]:
        """Return the silences that match an alert: author, end, reason."""
        return self._silenced.get(item.fingerprint, ())

    def inhibition_reason(self, item: Item, route: Route | None) -> Why | None:
        """Return what inhibits an alert for a channel (without `route`: for every one), else None."""
        for incident_cause in item.causes:
            cause = self._firing.get(incident_cause.finding)
            if cause is not None and (route is None or self._wants(route, cause)):
                kind, name = cause.subject.partition(":")[0], readable_name(cause.subject, cause.labels)
                why = f"by the alert of {kind} {name}: covered by incident {incident_cause.incident}"
                return ["inhibited", f"#{cause.number}", why]
        return None

    def is_muted(self, item: Item, route: Route) -> bool:
        """Whether an alert is suppressed for a channel now."""
        return bool(self.matching_silences(item)) or self.inhibition_reason(item, route) is not None

    def is_anywhere(self, item: Item, routes: Iterable[Route]) -> bool:
        """Whether an alert is suppressed for any of these channels now."""
        return bool(self.matching_silences(item)) or any(
            self.inhibition_reason(item, route) for route in routes
        )

    def _who(self, item: Item) -> list[Why]:
        return [
            [
                "silenced",
                str(silence.pk),
                f"by {silence.created_by} until {_instant(silence.ends_ms)}: {silence.reason}",
            ]
            for silence, matchers in self._silences
            if matchers.matches(item.labels)
        ]

    def _wants(self, route: Route, cause: Item) -> bool:
        key = route.number, cause.fingerprint
        if key not in self._wanted:
            self._wanted[key] = route_refusal(route, cause.severity, cause.labels) is None
        return self._wanted[key]


def _instant(ms: int) -> str:
    return f"{format_rfc3339(ms)[:16].replace('T', ' ')} UTC"
