"""The alerts of one cluster during a tick: read once, advanced, written once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

from django.db.models import QuerySet

from dashboard.evaluation import finding_queries
from dashboard.incidents.queries import IncidentMembership, memberships_of
from dashboard.models import Alert, FindingRecord
from dashboard.runtime.leases import Lease
from dashboard.runtime.sql import in_portions, prepared
from dashboard.streaming import registry as query_names
from dashboard.system import owners
from fenceline.alerts.engine import (
    PENDING,
    RESOLVED,
    Alerting,
    AlertState,
    FindingObservation,
    StateChange,
    advance_alert,
)
from fenceline.alerts.labels import annotations_of, labels_of
from fenceline.decode.typed import record_of
from fenceline.incidents.findings import IncidentCause
from fenceline.owners import Owner

#: Maximum new findings in one tick; the others follow in the next.
AT_ONCE = 2_000
_ALONE = IncidentMembership(0)
_STATE = tuple(state_field.name for state_field in fields(AlertState))
_SAVED = [*_STATE, "quiet", "told", "rev"]


@prepared
def _unresolved(cluster_id: int) -> QuerySet[Alert]:
    return Alert.objects.filter(cluster_id=cluster_id).exclude(state=RESOLVED)


class Book:
    """Reads a cluster's findings and alerts, keeps alerts by fingerprint, and marks changed ones."""

    def __init__(self, lease: Lease, limits: Alerting) -> None:
        self._lease, self._limits = lease, limits
        #: Unresolved alerts, and others as needed.
        self.rows: dict[bytes, Alert] = {}
        #: The reasons why each alert was not notified before this tick.
        self.before: dict[bytes, Sequence[Sequence[str]]] = {}
        self._findings: dict[bytes, dict[int, FindingRecord]] = {}
        self._owners: Mapping[int, Owner | None] = {}
        self._query_names: Mapping[str, str] = {}
        self._memberships: Mapping[int, IncidentMembership] = {}
        self._changed: set[bytes] = set()

    def follow_findings(self, after: int, now_ms: int) -> tuple[list[tuple[Alert, StateChange]], int]:
        """Advance alerts by their findings; findings up to `after` were processed before.

        Returns the changes, and the last processed finding. New alerts are already written then; `save`
        writes the others.
        """
        upto = self._find(after)
        self._keep(_unresolved(self._lease.cluster_id))
        self.load_alerts(self._findings)
        self._find_pending()
        findings = [row for rows in self._findings.values() for row in rows.values()]
        self._owners = owners.of_findings(findings)
        subjects = {row.subject for row in findings}
        self._query_names = query_names.names_by_subject(self._lease.cluster_id, subjects)
        self._memberships = memberships_of(self._lease.cluster_id, {row.pk for row in findings})
        happened: list[tuple[Alert, StateChange]] = []
        news: list[Alert] = []
        for key in self.rows.keys() | self._findings.keys():
            known = self.rows.get(key)
            before = None if known is None else state_of(known)
            findings_of_key = self._findings.get(key, {})
            observations = [self._observation(findings_of_key[number]) for number in sorted(findings_of_key)]
            now, changes = advance_alert(before, observations, now_ms=now_ms, limits=self._limits)
            if now is None or now == before:
                continue
            row = known or self._new(key, news)
            self.set_columns(row, **{name: getattr(now, name) for name in _STATE})
            happened += [(row, change) for change in changes]
        Alert.objects.bulk_create(news)
        return happened, upto

    def causes_of(self, row: Alert) -> Sequence[IncidentCause]:
        return self._memberships.get(row.finding, _ALONE).causes

    def load_alerts(self, keys: Iterable[bytes]) -> None:
        """Read the alerts with these fingerprints that were not read yet."""
        missing = [key for key in keys if key not in self.rows]
        for rows in in_portions(Alert.objects.all(), "fingerprint", missing):
            self._keep(rows)

    def adopt_row(self, row: Alert) -> Alert:
        """Return the book's own row of an alert from another query."""
        key = bytes(row.fingerprint)
        if key not in self.rows:
            self._keep([row])
        return self.rows[key]

    def set_columns(self, row: Alert, **columns: object) -> None:
        """Set columns of an alert, and mark it for writing if any differs."""
        for name, value in columns.items():
            if getattr(row, name) != value:
                setattr(row, name, value)
                self._changed.add(bytes(row.fingerprint))

    @property
    def is_changed(self) -> bool:
        return bool(self._changed)

    def save(self, rev: int) -> None:
        rows = [self.rows[key] for key in self._changed]
        for row in rows:
            row.rev = rev
        # An upsert of existing rows: many times as fast as an UPDATE with a CASE per column.
        Alert.objects.bulk_create(rows, update_conflicts=True, unique_fields=["id"], update_fields=_SAVED)

    def _find(self, after: int) -> int:
        """Read the open, unsettled and new findings; return the last new one."""
        of_cluster = self._lease.cluster_id
        rows = FindingRecord.objects.filter(cluster_id=of_cluster, pk__gt=after)
        since = list(rows.order_by("pk")[:AT_ONCE])
        open_rows = finding_queries.open_in_cluster(of_cluster)
        self._file([*open_rows, *finding_queries.lately_closed(of_cluster), *since])
        return max((row.pk for row in since), default=after)

    def _find_pending(self) -> None:
        """Read the closed findings of pending alerts, which may have lasted long enough."""
        gone = [key for key, row in self.rows.items() if row.state == PENDING and key not in self._findings]
        findings = [self.rows[key].finding for key in gone]
        for rows in in_portions(FindingRecord.objects.all(), "pk", findings):
            self._file(rows)

    def _file(self, rows: Iterable[FindingRecord]) -> None:
        for row in rows:
            self._findings.setdefault(bytes(row.fingerprint), {})[row.pk] = row

    def _observation(self, row: FindingRecord) -> FindingObservation:
        owner = self._owners[row.pk]
        labels = labels_of(
            row,
            owner,
            cluster=self._lease.cluster,
            query_name=self._query_names.get(row.subject, ""),
            incident=self._memberships.get(row.pk, _ALONE).number,
        )
        return FindingObservation(
            row.pk, row.closed_at is None, row.complete, row.ticks, row.to_miss, row.severity, row.since_ms,
            labels, annotations_of(row, owner), row.affected,
        )  # fmt: skip

    def _new(self, key: bytes, news: list[Alert]) -> Alert:
        finding = next(iter(self._findings[key].values()))
        row = Alert(
            cluster_id=self._lease.cluster_id, fingerprint=key, rule=finding.rule, subject=finding.subject
        )
        self.rows[key], self.before[key] = row, []
        news.append(row)
        return row

    def _keep(self, rows: Iterable[Alert]) -> None:
        for row in rows:
            key = bytes(row.fingerprint)
            self.rows[key], self.before[key] = row, row.quiet


def state_of(row: Alert) -> AlertState:
    """Return the engine's state of an alert."""
    return record_of(AlertState, row)
