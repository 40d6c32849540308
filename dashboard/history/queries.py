"""Transitions, each id's last ones, and figures per application. The reader beside `queries`.

Histories grow without limit while pages must not: every list continues after a key, never by an offset; every
search is limited to a number of candidates and reports how far it came; every figure is a sum of tallies.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import merge
from itertools import product

from django.db.models import CharField, Count, F, Func, Q, QuerySet

from dashboard.models import Tally, TransitionRecord
from dashboard.runtime import visibility
from dashboard.transactions import attributions
from dashboard.transactions.sql import recent_ring
from dashboard.transactions.sql import transition_of as transition_of
from fenceline.facts import Transition, TransitionKind
from fenceline.grouping import grouped
from fenceline.history.reports import ReportFigures, sum_figures
from fenceline.history.time_range import TimeRange
from fenceline.kafka.fold import transition_ring as recent
from fenceline.kafka.transactional_ids import keys_named
from fenceline.series import histograms
from fenceline.series.histograms import Histogram
from fenceline.text import explain_transition

#: Counts by kind; a missing kind counts as 0.
Counts = Mapping[TransitionKind, int]


@dataclass(frozen=True, slots=True)
class Bucket:
    """Counts of the `span_ms` from `start_ms` on."""

    start_ms: int
    span_ms: int
    counts: Counts

    def count_of(self, kinds: Iterable[TransitionKind]) -> int:
        """Return the sum of some kinds."""
        return sum(self.counts.get(kind, 0) for kind in kinds)


#: Maximum candidates of one search without an index for the whole filter.
MOST_SEARCHED = 10_000
MINUTE_S, HOUR_S = 60, 3_600
#: A sum over more minutes than this uses hours.
MOST_MINUTES = 360


@dataclass(frozen=True, slots=True)
class HistoryCriteria:
    """The filter of a list of transitions."""

    cluster: str = ""
    kinds: Sequence[TransitionKind] = ()
    confidence: str = ""
    application: str = ""
    #: A part of the transactional id.
    q: str = ""
    #: A whole transactional id, as escaped text.
    transactional_id: str = ""
    since_ms: int | None = None
    until_ms: int | None = None


#: Where a list continues: before this instant and row.
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TransitionPage:
    """Some transitions, newest first.

    `next` is the place where the list continues, None at its end. `searched_to_ms` is set if the search
    stopped there because of its length, though more may match before.
    """

    items: Sequence[TransitionRecord]
    next: Place | None
    searched_to_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ByApplication:
    """Counts by application and step; `searched_to_ms` is set if older ones were omitted."""

    #: The applications with the most transitions, by name.
    steps: Mapping[str, Sequence[Bucket]]
    #: The number of all applications, and their transitions by kind.
    number: int
    kinds: Mapping[TransitionKind, int]
    searched_to_ms: int | None


@dataclass(frozen=True, slots=True)
class TransactionHistory:
    """The history of an id, even one that its coordinator has forgotten."""

    key: bytes
    transactional_id: str
    application: str
    #: The stored transitions beside its newest state, newest first.
    recent: Sequence[Transition]
    #: When its coordinator removed it; None while it is known.
    expired_ms: int | None


def newest_transitions(wanted: HistoryCriteria, *, limit: int, before: Place | None) -> TransitionPage:
    """Return the newest matching transitions before a given place."""
    # Cluster by cluster, because the index has the order of instants only within a cluster.
    ways = product(visibility.cluster_keys(wanted.cluster), _parts(wanted))
    searches = [_places(*way, limit, before) for way in ways]
    # If one search stopped early, older rows of the others are omitted too.
    floor = max((floor_ms for _, floor_ms in searches if floor_ms is not None), default=None)
    merged = merge(*(newest for newest, _ in searches), reverse=True)
    places = [place for place in merged if floor is None or place[0] >= floor]
    # Few rows of many searches are shown: only their columns are read.
    keys = [pk for _, pk in places[:limit]]
    rows = TransitionRecord.objects.select_related("cluster", "action").in_bulk(keys)
    items = [rows[pk] for pk in keys if pk in rows]
    if len(places) > limit:
        return TransitionPage(items, places[limit - 1])
    return TransitionPage(items, None if floor is None else (floor, 0), floor)


def transitions_since(wanted: HistoryCriteria, *, since_rev: int, after: int, limit: int) -> TransitionPage:
    """Return transitions stored or revised after a revision of `wanted.cluster`, in their order.

    `after` is the last known row of revision `since_rev` itself, 0 for none. The place to continue from is
    (rev, row).
    """
    beyond = Q(rev__gt=since_rev) | Q(rev=since_rev, id__gt=after) if after else Q(rev__gt=since_rev)
    cluster = Q(cluster__name=wanted.cluster, cluster__configured=True)
    # The index is entered at the revision.
    rows = TransitionRecord.objects.filter(cluster, beyond, rev__gte=since_rev).order_by("rev", "id")
    ceiling = rows.values_list("rev", flat=True)[MOST_SEARCHED : MOST_SEARCHED + 1]
    searched_to = next(iter(ceiling), None)
    if searched_to is not None:
        rows = rows.filter(rev__lte=searched_to)
    rows = _since(rows, wanted.since_ms).filter(_matching(wanted))
    items = list(rows.select_related("cluster", "action")[: limit + 1])
    if len(items) > limit:
        return TransitionPage(items[:limit], (items[limit - 1].rev, items[limit - 1].pk))
    return TransitionPage(items, None if searched_to is None else (searched_to, _LAST_ROW))


def of_id(
    cluster: str, key: bytes, *, limit: int, time_range: TimeRange | None = None
) -> Sequence[TransitionRecord]:
    """Return the notable transitions of one id, newest first, by default of any time."""
    rows = TransitionRecord.objects.filter(cluster__name=cluster, cluster__configured=True, key=key)
    if time_range is not None:
        rows = rows.filter(at_ms__gte=time_range.from_ms, at_ms__lt=time_range.to_ms)
    return list(rows.select_related("cluster", "action").order_by("-at_ms", "-id")[:limit])


def recent_transitions(
    cluster_id: int, key: bytes, partition: int
) -> tuple[Sequence[Transition], int | None]:
    """Return the last transitions of an id, empty for an unknown one, and when its coordinator removed it."""
    ring = recent_ring(cluster_id, key)
    return (recent.unpack_ring(ring.packed, partition), ring.expired_ms) if ring else ((), None)


def verdict_evidence(row: TransitionRecord) -> str:
    """Return the evidence for a row's verdict, with the action that caused it."""
    return explain_transition(transition_of(row), attributions.action_words(row.action))


def transition_buckets(
    cluster: str, *, since_ms: int, until_ms: int, step_s: int, application: str = Tally.EVERY
) -> Sequence[Bucket]:
    """Return counts by kind in steps of `step_s`, of one application or of all together.

    Steps are whole minutes, or whole hours from an hour on; the first begins at `since_ms` rounded down.
    """
    starts = _starts(since_ms, until_ms, step_s)
    span_s = HOUR_S if step_s % HOUR_S == 0 else MINUTE_S
    rows = _tallies(cluster, span_s, starts[0], until_ms).filter(application=application)
    counted: dict[int, dict[TransitionKind, int]] = {}
    for start_ms, counts in rows.values_list("start_ms", "counts").iterator():
        _add(counted.setdefault(start_ms - start_ms % starts.step, {}), counts_by_kind(counts))
    return _row(starts, counted)


def duration_buckets(
    cluster: str, *, since_ms: int, until_ms: int, step_s: int, application: str
) -> Sequence[Histogram]:
    """Return the open times of an application's commits, in the steps of `transition_buckets`."""
    starts = _starts(since_ms, until_ms, step_s)
    span_s = HOUR_S if step_s % HOUR_S == 0 else MINUTE_S
    rows = _tallies(cluster, span_s, starts[0], until_ms).filter(application=application)
    opened: dict[int, list[Histogram]] = {start_ms: [] for start_ms in starts}
    for start_ms, open_times in rows.values_list("start_ms", "open_times").iterator():
        opened[start_ms - start_ms % starts.step].append(histograms.unpack_histogram(open_times))
    return [histograms.merge_histograms(step) for step in opened.values()]


def by_application(wanted: HistoryCriteria, *, until_ms: int, step_s: int, most: int) -> ByApplication:
    """Return the notable transitions of the applications with the most, before `until_ms`."""
    candidates, floors = [], []
    for cluster_id in visibility.cluster_keys(wanted.cluster):
        any_kind = replace(wanted, kinds=(), transactional_id="")
        rows, floor_ms = _newest(_of(cluster_id, any_kind).filter(at_ms__lt=until_ms), wanted.since_ms)
        candidates.append(rows.filter(_matching(any_kind)).order_by())
        floors += [] if floor_ms is None else [floor_ms]
    sums: Counter[str] = Counter()
    kinds: Counter[TransitionKind] = Counter()
    for rows in candidates:
        by_kind = rows.annotate(name=_NAME).values_list("name", "kind").annotate(n=Count("id"))
        for name, kind, number in by_kind:
            sums[name] += number
            kinds[TransitionKind(kind)] += number
    names = sorted(sums, key=lambda name: (-sums[name], name))[:most]
    starts = _starts(wanted.since_ms or 0, until_ms, step_s)
    counted: dict[str, dict[int, dict[TransitionKind, int]]] = {name: {} for name in names}
    for rows in candidates:
        steps = rows.filter(application__in=names).annotate(step=F("at_ms") / starts.step)
        for name, step, kind, n in steps.values_list("application", "step", "kind").annotate(n=Count("id")):
            _add(counted[name].setdefault(step * starts.step, {}), {TransitionKind(kind): n})
    steps_by_name = {name: _row(starts, steps) for name, steps in counted.items()}
    return ByApplication(steps_by_name, len(sums), kinds, max(floors, default=None))


def transition_counts(
    cluster: str, *, since_ms: int, until_ms: int, applications: Sequence[str]
) -> Mapping[str, Mapping[TransitionKind, int]]:
    """Return the counts by kind of some applications, in whole minutes, or hours for a long range."""
    rows = _tallies_since(cluster, since_ms, until_ms).filter(application__in=applications)
    counts_by_application: dict[str, dict[TransitionKind, int]] = {}
    for application, counted in rows.values_list("application", "counts").iterator():
        _add(counts_by_application.setdefault(application, {}), counts_by_kind(counted))
    return counts_by_application


def application_figures(
    cluster: str, *, since_ms: int, until_ms: int, applications: Sequence[str]
) -> Mapping[str, ReportFigures]:
    """Return counts and durations of some applications, in whole minutes, or hours for a long range."""
    rows = _tallies_since(cluster, since_ms, until_ms).filter(application__in=applications)
    fields = rows.values_list("application", "counts", "open_times", "marker_times")
    parts = (
        (application, ReportFigures(counts_by_kind(counted), 0, *map(histograms.unpack_histogram, times)))
        for application, counted, *times in fields.iterator()
    )
    return {application: sum_figures(own) for application, own in grouped(parts).items()}


def forgotten_transaction(cluster: str, name: str) -> TransactionHistory | None:
    """Return the history of an id that its coordinator has forgotten, None for an unknown one.

    `name` is its text, or `~` and its key in hexadecimal digits.
    """
    for key in keys_named(name):
        told = TransitionRecord.objects.filter(cluster__name=cluster, cluster__configured=True, key=key)
        last = told.order_by("-at_ms", "-id").first()
        if last is not None:
            kept = recent_transitions(last.cluster_id, key, last.log_partition)
            return TransactionHistory(key, last.transactional_id, last.application, *kept)
    return None


_LAST_ROW = 2**62
#: An application for grouping, as an expression, because along its index SQLite would read every stored row.
_NAME = Func(F("application"), template="%(expressions)s || ''", output_field=CharField())


def _parts(wanted: HistoryCriteria) -> Sequence[HistoryCriteria]:
    """Return filters with an index each: one per kind, if no other index is used."""
    if len(wanted.kinds) < 2 or wanted.application or wanted.transactional_id:
        return [wanted]
    return [replace(wanted, kinds=(kind,)) for kind in wanted.kinds]


def _places(
    cluster_id: int, wanted: HistoryCriteria, limit: int, before: Place | None
) -> tuple[Sequence[Place], int | None]:
    """Return the places of the newest rows of one search, and the instant where it stopped, or None."""
    rows = _of(cluster_id, wanted)
    if before is not None:
        at_ms, pk = before
        rows = rows.filter(Q(at_ms__lt=at_ms) | Q(at_ms=at_ms, id__lt=pk), at_ms__lte=at_ms)
    matching, floor_ms = _bounded(rows, wanted)
    newest = list(matching.order_by("-at_ms", "-id").values_list("at_ms", "id")[: limit + 1])
    return newest, None if len(newest) > limit else floor_ms


def _of(cluster_id: int, wanted: HistoryCriteria) -> QuerySet[TransitionRecord]:
    """Return the candidates of any time: the rows of one index, in the order of instants."""
    rows = TransitionRecord.objects.filter(cluster_id=cluster_id)
    if wanted.transactional_id:
        return rows.filter(key__in=list(keys_named(wanted.transactional_id)))
    if wanted.application:
        return rows.filter(application=wanted.application)
    return rows.filter(kind=wanted.kinds[0].value) if len(wanted.kinds) == 1 else rows


def _bounded(
    candidates: QuerySet[TransitionRecord], wanted: HistoryCriteria
) -> tuple[QuerySet[TransitionRecord], int | None]:
    """Return the matching rows among the newest MOST_SEARCHED candidates, and where the search stops."""
    one_kind = len(wanted.kinds) == 1 and not wanted.application
    answered = not (wanted.confidence or wanted.q) and (one_kind or not wanted.kinds)
    if answered or wanted.transactional_id:
        return _since(candidates, wanted.since_ms).filter(_matching(wanted)), None
    newest, floor_ms = _newest(candidates, wanted.since_ms)
    return newest.filter(_matching(wanted)), floor_ms


def _newest(
    candidates: QuerySet[TransitionRecord], since_ms: int | None
) -> tuple[QuerySet[TransitionRecord], int | None]:
    """Return the newest MOST_SEARCHED candidates, and the end of the search; None if these are all."""
    instants = _since(candidates, since_ms).order_by("-at_ms", "-id").values_list("at_ms", flat=True)
    floor_ms = next(iter(instants[MOST_SEARCHED : MOST_SEARCHED + 1]), None)
    return _since(candidates, since_ms if floor_ms is None else floor_ms), floor_ms


def _since(rows: QuerySet[TransitionRecord], since_ms: int | None) -> QuerySet[TransitionRecord]:
    # Only one bound, because with two SQLite uses the first for the index even if the second is nearer.
    return rows if since_ms is None else rows.filter(at_ms__gte=since_ms)


def _matching(wanted: HistoryCriteria) -> Q:
    condition = Q() if wanted.until_ms is None else Q(at_ms__lt=wanted.until_ms)
    if wanted.kinds:
        condition &= Q(kind__in=[kind.value for kind in wanted.kinds])
    if wanted.confidence:
        condition &= Q(confidence=wanted.confidence)
    if wanted.application:
        condition &= Q(application=wanted.application)
    if wanted.transactional_id:
        condition &= Q(key__in=list(keys_named(wanted.transactional_id)))
    if wanted.q:
        condition &= Q(transactional_id__icontains=wanted.q)
    return condition


def _tallies(cluster: str, span_s: int, since_ms: int, until_ms: int) -> QuerySet[Tally]:
    rows = Tally.objects.filter(cluster__in=visibility.cluster_keys(cluster), span_s=span_s)
    return rows.filter(start_ms__gte=since_ms, start_ms__lte=until_ms)


def _tallies_since(cluster: str, since_ms: int, until_ms: int) -> QuerySet[Tally]:
    span_s = MINUTE_S if until_ms - since_ms <= MOST_MINUTES * 60_000 else HOUR_S
    return _tallies(cluster, span_s, since_ms - since_ms % (span_s * 1_000), until_ms)


def _starts(since_ms: int, until_ms: int, step_s: int) -> range:
    step_ms = step_s * 1_000
    return range(since_ms - since_ms % step_ms, until_ms + 1, step_ms)


@lru_cache(maxsize=4_096)
def counts_by_kind(counts: str) -> Mapping[TransitionKind, int]:
    """Return {"commit": 12} as counts by kind; equal texts are parsed once."""
    return {TransitionKind(kind): n for kind, n in json.loads(counts or "{}").items()}


def _add(into: dict[TransitionKind, int], counts: Mapping[TransitionKind, int]) -> None:
    for kind, n in counts.items():
        into[kind] = into.get(kind, 0) + n


def _row(starts: range, counted: Mapping[int, Mapping[TransitionKind, int]]) -> Sequence[Bucket]:
    return [Bucket(start_ms, starts.step, counted.get(start_ms, {})) for start_ms in starts]
