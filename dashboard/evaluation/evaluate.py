"""The evaluator: each second, from facts through rules to findings. One tick is one run. A finding keeps its
row while its rule finds the same instance (`facts.Finding.instance`): `since` stays, the words are updated;
another instance gets its own row. It closes on the first tick without it that could see its subject;
`complete`: whether the last tick could. The numbers of consecutive ticks with and without it are counted
here, where each tick is seen; alerts read them less often. No finding is opened as critical, or raised to it,
from one poll of its sources (`dashboard.evaluation.second_polls`).
"""

import hashlib
import json
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence

from django.conf import settings
from django.db.models import Case, F, Value, When
from django.db.models.functions import Now

from dashboard.evaluation import finding_queries
from dashboard.evaluation.snapshot import SnapshotReader
from dashboard.incidents import store as incident_store
from dashboard.incidents.store import GroupingFacts
from dashboard.models import Collector, FindingRecord
from dashboard.runtime import leases
from dashboard.runtime.collector_names import JUDGE
from dashboard.runtime.sql import update_rows
from dashboard.runtime.write_transactions import retry_write, write_transaction
from fenceline import rules
from fenceline.facts import Finding, Severity
from fenceline.incidents.findings import is_same_instance
from fenceline.snapshot import Snapshot

NAME = JUDGE
#: Columns of a finding that are updated in every tick.
_WORDS = ["severity", "summary", "evidence", "next_step", "affected", "deadline_ms", "since_ms", "instance"]
#: The last tick found a finding that is open and complete after it.
_IS_FOUND = Case(When(complete=True, then=Value(1)), default=Value(0))

#: The facts for incidents without a snapshot.
NO_FACTS = GroupingFacts()
#: Whether a tick could observe a finding's subject.
Sees = Callable[[FindingRecord], bool]


def evaluate_cluster(lease: leases.Lease, reader: SnapshotReader, *, now_ms: int) -> int:
    """Evaluate one cluster once; return the number of findings. Raises `leases.LeaseLost`."""
    limits = settings.FENCELINE.limits
    snapshot = reader.read(now_ms=now_ms, limits=limits)
    findings = list(rules.evaluate_rules(snapshot, now_ms=now_ms, limits=limits))
    visible = snapshot.visibility(now_ms=now_ms, limits=limits)

    def sees(row: FindingRecord) -> bool:
        return rules.covers_finding(visible, row.rule, row.subject, row.affected)

    waiting = _unconfirmed(lease, reader, findings, snapshot, now_ms)
    facts = incident_store.incident_facts(snapshot, now_ms=now_ms)
    save_findings(lease, findings, sees=sees, now_ms=now_ms, waiting=waiting, facts=facts)
    reader.open_transactions.save_due(lease, snapshot, visible, now_ms=now_ms)
    return len(findings) - len(waiting)


def _unconfirmed(
    lease: leases.Lease, reader: SnapshotReader, findings: Iterable[Finding], snapshot: Snapshot, now_ms: int
) -> Collection[bytes]:
    """Return the fingerprints of critical findings that wait for a second poll of their sources."""
    limits = settings.FENCELINE.limits
    critical = {
        _fingerprint(finding): finding for finding in findings if finding.severity is Severity.CRITICAL
    }
    read_through: Mapping[str, int | None] = {}
    if critical:
        for row in finding_queries.open_in_cluster(lease.cluster_id):
            if row.severity == Severity.CRITICAL:
                critical.pop(bytes(row.fingerprint), None)
        # Read after the snapshot, so that a poll saved in between does not count as a second one.
        read_through = dict(
            Collector.objects.filter(cluster_id=lease.cluster_id).values_list("name", "seen_through_ms")
        )
    marks = {
        key: {
            name: read_through.get(name)
            for name in rules.source_collectors(finding.rule, snapshot, now_ms=now_ms, limits=limits)
        }
        for key, finding in critical.items()
    }
    return reader.second_polls.unconfirmed_findings(lease.token, marks)


@retry_write
def save_findings(
    lease: leases.Lease,
    findings: Sequence[Finding],
    *,
    sees: Sees,
    now_ms: int,
    waiting: Collection[bytes] = (),
    facts: GroupingFacts = NO_FACTS,
) -> None:
    """Open, update and close findings and their incidents in one transaction; notify pages of changes.
    `waiting`: fingerprints of findings that leave the stored rows as they are. The evaluator's lease guards
    them.
    """
    wanted = {_fingerprint(finding): finding for finding in findings}
    with write_transaction(lease, {"seen_through_ms": now_ms}, lock_cluster=False) as write:
        rows = {bytes(row.fingerprint): row for row in finding_queries.open_in_cluster(lease.cluster_id)}
        shown = {key: finding for key, finding in wanted.items() if key not in waiting}
        # The rule found another transaction, batch or start than the row's.
        replaced = [
            rows.pop(key)
            for key, finding in shown.items()
            if key in rows and not is_same_instance(rows[key].instance, finding.instance)
        ]
        news = [_row(lease, key, finding, now_ms) for key, finding in shown.items() if key not in rows]
        changed = [row for key, row in rows.items() if key in shown and _reword(row, shown[key])]
        missing = [row for key, row in rows.items() if key not in wanted]
        ended = [row for row in missing if sees(row)]
        _settle(lease, wanted, sees)
        _close(replaced, FindingRecord.AGAIN)
        FindingRecord.objects.bulk_create(news)
        update_rows(changed, _WORDS)
        _close(ended, max(0, settings.FENCELINE.alerts.resolve_ticks - 1))
        dimmed = _mark(rows.values(), {row.pk for row in missing} - {row.pk for row in ended})
        if rows or news:
            still_open = FindingRecord.objects.filter(cluster_id=lease.cluster_id, closed_at=None)
            still_open.update(seen_at=Now(), ticks=F("ticks") + _IS_FOUND)
        if news or changed or ended or dimmed:
            write.notify_after_commit("findings")
        left = {row.pk for row in ended}
        open_rows = [*(row for row in rows.values() if row.pk not in left), *news]
        if incident_store.save_incidents(lease.cluster_id, open_rows, facts, now_ms=now_ms):
            write.notify_after_commit("incidents")


def _settle(lease: leases.Lease, wanted: Container[bytes], sees: Sees) -> None:
    """Count another tick without, or with, recently closed findings."""
    rows = finding_queries.lately_closed(lease.cluster_id)
    again = [row.pk for row in rows if bytes(row.fingerprint) in wanted]
    missed = [row.pk for row in rows if bytes(row.fingerprint) not in wanted and sees(row)]
    if again:
        FindingRecord.objects.filter(pk__in=again).update(to_miss=FindingRecord.AGAIN)
    if missed:
        FindingRecord.objects.filter(pk__in=missed).update(to_miss=F("to_miss") - 1)


def _close(rows: Iterable[FindingRecord], to_miss: int) -> None:
    keys = [row.pk for row in rows]
    if keys:
        closed = FindingRecord.objects.filter(pk__in=keys)
        closed.update(seen_at=Now(), closed_at=Now(), complete=True, to_miss=to_miss)


def _mark(rows: Iterable[FindingRecord], unseen: set[int]) -> bool:
    """Mark the findings that could not be observed in this tick; return whether a mark changed."""
    changed = [row for row in rows if row.complete == (row.pk in unseen)]
    for row in changed:
        row.complete = row.pk not in unseen
    update_rows(changed, ["complete"])
    return bool(changed)


def _fingerprint(finding: Finding) -> bytes:
    return hashlib.sha256(json.dumps([finding.cluster, finding.rule, finding.subject]).encode()).digest()


def _row(lease: leases.Lease, key: bytes, finding: Finding, now_ms: int) -> FindingRecord:
    row = FindingRecord(
        cluster_id=lease.cluster_id,
        rule=finding.rule,
        subject=finding.subject,
        fingerprint=key,
        since_ms=now_ms if finding.since_ms is None else finding.since_ms,
        seen_at=Now(),
    )
    _reword(row, finding)
    return row


def _reword(row: FindingRecord, finding: Finding) -> bool:
    """Copy the finding's fields of this tick to a row; return whether one differs."""
    words = {name: getattr(finding, name) for name in _WORDS} | {"affected": list(finding.affected)}
    words["severity"] = finding.severity.value
    words["instance"] = finding.instance or row.instance
    words["since_ms"] = row.since_ms if finding.since_ms is None else finding.since_ms
    if row.complete:
        # A continuing finding keeps its earliest start.
        words["since_ms"] = min(row.since_ms, words["since_ms"])
    differs = any(getattr(row, name) != value for name, value in words.items())
    for name, value in words.items():
        setattr(row, name, value)
    return differs
