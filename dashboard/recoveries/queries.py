"""Episodes in which work went on after a transaction was ended: a reader beside `queries`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from django.db.models import Q, QuerySet

from dashboard.models import Beginning, Recovery
from dashboard.runtime.criteria import Name, Ranged, given_conditions, overlaps_range
from fenceline.recoveries import LostRecords, RecoveryCause, RecoveryOutcome, Wait
from fenceline.time_range import TimeRange

#: More episodes than these are not added up for the headline.
_MOST_SUMMED = 10_000

#: Where a list goes on: behind this instant and row, going back.
Place = tuple[int, int]


class RecoveryCriteria(Ranged):
    """Which episodes a list is asked for."""

    api_only: ClassVar = frozenset({"transactional_id"})

    cluster: Name = ""
    outcome: Literal["", "open", "resumed", "not_resumed", "unseen", "topic_deleted"] = ""
    cause: Literal["", RecoveryCause] = ""
    application: Name = ""
    #: A whole transactional id, as escaped text.
    transactional_id: Name = ""
    #: A part of the first 200 characters of a transactional id.
    q: Name = ""


@dataclass(frozen=True, slots=True)
class RecoverySummary:
    """How the episodes since an instant went; the median of those that were released and resumed."""

    number: int
    #: Still open, whenever they were opened.
    open: int
    not_resumed: int
    release_ms: int | None
    resume_ms: int | None


def newest_recoveries(
    wanted: RecoveryCriteria, *, before: Place | None, limit: int
) -> tuple[Sequence[Recovery], Place | None]:
    """Return the newest episodes, and where the list goes on, None at its end."""
    rows = _filtered(wanted)
    if before is not None:
        at_ms, row = before
        rows = rows.filter(Q(opened_ms__lt=at_ms) | Q(opened_ms=at_ms, pk__lt=row), opened_ms__lte=at_ms)
    found = list(rows.select_related("cluster").order_by("-opened_ms", "-pk")[: limit + 1])
    last = found[limit - 1] if len(found) > limit else None
    return found[:limit], None if last is None else (last.opened_ms, last.pk)


def find_recovery(cluster: str, number: int) -> Recovery | None:
    """Return one episode by its number, None where there is none."""
    return Recovery.objects.select_related("cluster").filter(cluster__name=cluster, pk=number).first()


def of_id(cluster: str, key: bytes, *, limit: int, time_range: TimeRange | None = None) -> Sequence[Recovery]:
    """Return the newest recoveries of one id: of any time unless a range is given."""
    rows = Recovery.objects.filter(cluster__name=cluster, key=key).select_related("cluster")
    if time_range is not None:
        wanted = Ranged.between(time_range.from_ms, time_range.to_ms)
        rows = rows.filter(overlaps_range(wanted, "opened_ms", "closed_ms"))
    return list(rows.order_by("-opened_ms", "-pk")[:limit])


def recovery_summary(cluster: str, *, since_ms: int) -> RecoverySummary:
    """Return how the episodes since an instant went."""
    rows = _filtered(RecoveryCriteria(cluster=cluster))
    since = rows.filter(opened_ms__gte=since_ms).order_by("-opened_ms")
    each = list(since.values_list("opened_ms", "released_ms", "resumed_ms", "outcome")[:_MOST_SUMMED])
    return RecoverySummary(
        number=len(each),
        open=rows.filter(closed_ms=None).count(),
        not_resumed=sum(outcome == RecoveryOutcome.NOT_RESUMED for *_, outcome in each),
        release_ms=_median([released - opened for opened, released, _, _ in each if released is not None]),
        resume_ms=_median([resumed - opened for opened, _, resumed, _ in each if resumed is not None]),
    )


def written_records(row: Recovery) -> Sequence[LostRecords]:
    """Return what an episode's transaction had written, for reprocessing."""
    return [LostRecords(*each) for each in row.lost]


def recovery_waits(row: Recovery) -> Sequence[Wait]:
    """Return who waited during an episode."""
    return [Wait(*each) for each in row.waited]


def lost_records(row: Recovery) -> tuple[int | None, str]:
    """How many records were aborted in all: None where that is not known, with "at least", "at most" or "".

    Where only bounds of offsets are known they count: then it is "at most". Where nothing is known of a
    partition, what is known for sure of the others is "at least".
    """
    found = written_records(row)
    numbers = [at_most(each) for each in found]
    if not row.lost_complete or None in numbers:
        known = sum(each.records for each in found if each.records is not None)
        return (known, "at least") if known else (None, "")
    exact = all(each.records is not None for each in found)
    return sum(number or 0 for number in numbers), "" if exact else "at most"


def at_most(each: LostRecords) -> int | None:
    """How many records were aborted in a partition, at most where only bounds are known; None without any."""
    if each.records is not None:
        return each.records
    return None if each.first is None or each.last is None else each.last - each.first + 1


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
