"""Routine transitions, counted by minute in the database, because an application may have thousands."""

from collections.abc import Sequence

from django.db.models import Count, F, QuerySet

from dashboard.history.event_streams import EventWindow
from dashboard.models import TransitionRecord
from fenceline.facts import TransitionKind
from fenceline.history.timeline import RoutineCount, minute_of

MINUTE_MS = 60_000
#: Maximum transitions that one search counts; it completes its last minute.
_MOST_COUNTED = 2_000


def routine_counts(
    window: EventWindow, kinds: Sequence[TransitionKind], confidence: str, *, until_ms: int
) -> tuple[Sequence[RoutineCount], int | None]:
    """Return the counts of a range's last minutes before `until_ms`, and their start, None if all counted.

    A confidence of "" means any.
    """
    rows = TransitionRecord.objects.filter(
        cluster__in=[cluster.pk for cluster in window.clusters],
        kind__in=[kind.value for kind in kinds],
        at_ms__gte=window.range.from_ms,
        at_ms__lt=until_ms,
    )
    if window.application:
        rows = rows.filter(application=window.application)
    if confidence:
        rows = rows.filter(confidence=confidence)
    instants = rows.order_by("-at_ms").values_list("at_ms", flat=True)
    cut = next(iter(instants[_MOST_COUNTED : _MOST_COUNTED + 1]), None)
    if cut is None:
        return _counts(rows), None
    floor_ms = max(minute_of(cut), window.range.from_ms)
    return _counts(rows.filter(at_ms__gte=floor_ms)), floor_ms


def _counts(rows: QuerySet[TransitionRecord]) -> Sequence[RoutineCount]:
    minutes = rows.order_by().annotate(minute=F("at_ms") / MINUTE_MS)
    groups = minutes.values_list("minute", "cluster__name", "application", "kind").annotate(n=Count("id"))
    return [
        RoutineCount(minute * MINUTE_MS, cluster, application, TransitionKind(kind), n)
        for minute, cluster, application, kind, n in groups
    ]
