"""Recoveries after the end of a transaction, for pages and API."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from django.db.models import Q, QuerySet

from dashboard.models import Beginning, Recovery
from dashboard.recoveries.evidence import written_records
from dashboard.runtime.criteria import Name, Ranged, Search, given_conditions, overlaps_range
from fenceline.history.time_range import TimeRange
from fenceline.losses.recoveries import LostRecords, RecoveryCause, RecoveryOutcome, Wait

#: Maximum recoveries that the headline sums.
_MOST_SUMMED = 10_000

#: Where a list continues: before this instant and row.
Place = tuple[int, int]


class RecoveryCriteria(Ranged):
    api_only: ClassVar = frozenset({"transactional_id"})

    cluster: Name = ""
    outcome: Literal["", "open", "resumed", "not_resumed", "unseen", "topic_deleted"] = ""
    cause: Literal["", RecoveryCause] = ""
    application: Name = ""
    #: A whole transactional id, as escaped text.
    transactional_id: Name = ""
    #: A part of the first 200 characters of a transactional id.
    q: Search = ""


@dataclass(frozen=True, slots=True)
class RecoverySummary:
    """Numbers of recoveries since an instant; medians cover those that were released and resumed."""

    number: int
    #: Still open, regardless of their opening.
    open: int
    not_resumed: int
    release_ms: int | None
    resume_ms: int | None


def newest_recoveries(
    wanted: RecoveryCriteria, *, before: Place | None, limit: int
) -> tuple[Sequence[Recovery], Place | None]:
    """Return the newest recoveries, and the place where the list continues, None at its end."""
    rows = _filtered(wanted)
    if before is not None:
        at_ms, row = before
        rows = rows.filter(Q(opened_ms__lt=at_ms) | Q(opened_ms=at_ms, pk__lt=row), opened_ms__lte=at_ms)
    recoveries = list(rows.select_related("cluster").order_by("-opened_ms", "-pk")[: limit + 1])
    last = recoveries[limit - 1] if len(recoveries) > limit else None
    return recoveries[:limit], None if last is None else (last.opened_ms, last.pk)


def find_recovery(cluster: str, number: int) -> Recovery | None:
    rows = Recovery.objects.filter(cluster__name=cluster, cluster__configured=True, pk=number)
    return rows.select_related("cluster").first()


def of_id(cluster: str, key: bytes, *, limit: int, time_range: TimeRange | None = None) -> Sequence[Recovery]:
    """Return the newest recoveries of one id, by default of any time."""
    rows = Recovery.objects.filter(cluster__name=cluster, key=key).select_related("cluster")
    if time_range is not None:
        wanted = Ranged.between(time_range.from_ms, time_range.to_ms)
        rows = rows.filter(overlaps_range(wanted, "opened_ms", "closed_ms"))
    return list(rows.order_by("-opened_ms", "-pk")[:limit])


def recovery_summary(cluster: str, *, since_ms: int) -> RecoverySummary:
    """Return the numbers of recoveries since an instant."""
    rows = _filtered(RecoveryCriteria(cluster=cluster))
    since = rows.filter(opened_ms__gte=since_ms).order_by("-opened_ms")
    recoveries = list(since.values_list("opened_ms", "released_ms", "resumed_ms", "outcome")[:_MOST_SUMMED])
    return RecoverySummary(
        number=len(recoveries),
        open=rows.filter(closed_ms=None).count(),
        not_resumed=sum(outcome == RecoveryOutcome.NOT_RESUMED for *_, outcome in recoveries),
        release_ms=_median(
            [released - opened for opened, released, _, _ in recoveries if released is not None]
        ),
        resume_ms=_median([resumed - opened for opened, _, resumed, _ in recoveries if resumed is not None]),
    )


def recovery_waits(row: Recovery) -> Sequence[Wait]:
    """Return the groups that waited during a recovery."""
    return [Wait(*packed) for packed in row.waited]


def lost_records(row: Recovery) -> tuple[int | None, str]:
    """Return the number of aborted records, None if unknown, with "at least", "at most" or "". Bounds of
    offsets count if nothing better is known: then it is "at most". If a partition is unknown, the sum of the
    others is "at least".
    """
    records = written_records(row)
    numbers = [at_most(written) for written in records]
    if not row.lost_complete or None in numbers:
        known = sum(written.records for written in records if written.records is not None)
        return (known, "at least") if known else (None, "")
    exact = all(written.records is not None for written in records)
    return sum(number or 0 for number in numbers), "" if exact else "at most"


def at_most(records: LostRecords) -> int | None:
    """Return the number of aborted records in a partition, at most if only bounds are known, else None."""
    if records.records is not None:
        return records.records
    return None if records.first is None or records.last is None else records.last - records.first + 1


def _filtered(wanted: RecoveryCriteria) -> QuerySet[Recovery]:
    rows = Recovery.objects.filter(
        overlaps_range(wanted, "opened_ms", "closed_ms"),
        cluster__configured=True,
        **given_conditions(
            cluster__name=wanted.cluster,
            outcome=wanted.outcome,
            cause=wanted.cause,
            transactional_id=wanted.transactional_id,
            application=wanted.application,
        ),
    )
    if not wanted.q:
        return rows
    return rows.alias(beginning=Beginning("transactional_id")).filter(beginning__icontains=wanted.q)


def _median(durations: Sequence[int]) -> int | None:
    ordered = sorted(durations)
    return ordered[len(ordered) // 2] if ordered else None
