"""The judge: each second, from facts through rules to findings. One tick is one run.

A finding keeps its row while its rule goes on finding it: `since` stays, the words follow. It closes on the
first complete tick without it; a tick that could not see (a gap within the rule's reach) closes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from dashboard import leases, live, store
from dashboard.eyes import JUDGE, eyes
from dashboard.models import Collector, FindingRecord, GapRecord
from dashboard.queries import open_transactions, partitions_of
from fenceline.facts import Finding, Gap, State
from fenceline.rules import judge
from fenceline.snapshot import CollectorStatus, OpenTransaction, Snapshot

NAME = JUDGE
#: Collectors that look at nothing outside.
_NO_LOOKERS = (NAME, "retention")
#: Columns of a finding that follow its rule's words from tick to tick.
_WORDS = ["severity", "summary", "evidence", "next_step", "affected", "since_ms"]


def tick(lease: leases.Lease, *, now_ms: int) -> int:
    """Judge one cluster once; return how many findings are open. Raises `leases.LeaseLost`."""
    snapshot, limits = read(lease.cluster), settings.FENCELINE.limits
    found = list(judge(snapshot, now_ms=now_ms, limits=limits))
    save(lease, found, blind=snapshot.is_blind(now_ms=now_ms, limits=limits), now_ms=now_ms)
    return len(found)


def read(cluster: str) -> Snapshot:
    """Return everything the rules may look at in one cluster."""
    rows = list(Collector.objects.filter(cluster__name=cluster).exclude(name__in=_NO_LOOKERS))
    seeing = {row.name for row in eyes(rows)}
    return Snapshot(
        transactions=tuple(_open_transactions(cluster)),
        collectors=tuple(_status(cluster, row, row.name in seeing) for row in rows),
        gaps=tuple(_gaps(cluster, seeing)),
    )


def save(lease: leases.Lease, found: Iterable[Finding], *, blind: bool, now_ms: int) -> None:
    """Open, update and close findings in one transaction, and ring when anything that is shown changed."""
    wanted = {_fingerprint(finding): finding for finding in found}
    with transaction.atomic():
        leases.renew(lease, seen_through_ms=now_ms)
        rows = {bytes(row.fingerprint): row for row in _open(lease)}
        news = [_row(lease, key, finding) for key, finding in wanted.items() if key not in rows]
        changed = [row for key, row in rows.items() if key in wanted and _reword(row, wanted[key])]
        unseen = [row for key, row in rows.items() if key not in wanted]
        ended = [row.pk for row in unseen if not (blind and _needs_sight(row))]
        FindingRecord.objects.bulk_create(news)
        FindingRecord.objects.bulk_update(changed, _WORDS)
        _open(lease).update(seen_at=Now(), complete=not blind)
        FindingRecord.objects.filter(pk__in=ended).update(closed_at=Now())
        if news or changed or ended:
            rev = store.next_rev(lease.cluster_id)
            transaction.on_commit(lambda: live.ring(lease.cluster, "findings", rev))


def _needs_sight(row: FindingRecord) -> bool:
    # What a collector says of itself is seen even when its cluster is not.
    return row.rule != "collector_behind"


def _open(lease: leases.Lease) -> QuerySet[FindingRecord]:
    return FindingRecord.objects.filter(cluster_id=lease.cluster_id, closed_at=None)


def _fingerprint(finding: Finding) -> bytes:
    return hashlib.sha256(json.dumps([finding.cluster, finding.rule, finding.subject]).encode()).digest()


def _row(lease: leases.Lease, key: bytes, finding: Finding) -> FindingRecord:
    row = FindingRecord(
        cluster_id=lease.cluster_id,
        rule=finding.rule,
        subject=finding.subject,
        fingerprint=key,
        seen_at=Now(),
    )
    _reword(row, finding)
    return row


def _reword(row: FindingRecord, finding: Finding) -> bool:
    """Give a row its rule's words of this tick; return whether any differs."""
    words = {name: getattr(finding, name) for name in _WORDS} | {"affected": list(finding.affected)}
    words["severity"] = finding.severity.value
    differs = any(getattr(row, name) != value for name, value in words.items())
    for name, value in words.items():
        setattr(row, name, value)
    return differs


def _open_transactions(cluster: str) -> Iterator[OpenTransaction]:
    for row in open_transactions(cluster).iterator():
        yield OpenTransaction(
            cluster=cluster,
            transactional_id=row.transactional_id,
            state=State(row.state),
            producer_id=row.producer_id,
            producer_epoch=row.producer_epoch,
            timeout_ms=row.timeout_ms,
            started_ms=row.started_ms,
            updated_ms=row.updated_ms,
            partitions=partitions_of(row),
        )


def _status(cluster: str, row: Collector, is_eye: bool) -> CollectorStatus:
    return CollectorStatus(
        cluster, row.name, row.seen_through_ms, row.behind, row.error, row.since_ms, is_eye
    )


def _gaps(cluster: str, seeing: Iterable[str]) -> Iterator[Gap]:
    for row in GapRecord.objects.filter(cluster__name=cluster, until_ms=None, source__in=seeing):
        yield Gap(cluster, row.source, row.scope, row.since_ms, row.until_ms, row.reason)
