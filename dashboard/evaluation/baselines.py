"""Recent and usual rates, for the rules: sums of tallies, read at an interval of their own.

A tick reads what is open now; this covers minutes and hours, so it is read again each half minute. What is
kept between two reads is derived from rows alone and can be lost at any time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from django.db.models import QuerySet

from dashboard.history.queries import counts_by_kind
from dashboard.models import Recent, Tally, Transaction, TransitionRecord
from dashboard.transactions.epoch_usage import Epochs
from fenceline import baselines, histograms
from fenceline.baselines import HABITS, Habit, UsualCommit
from fenceline.facts import Confidence, TransitionKind
from fenceline.kafka import transition_ring
from fenceline.kafka.clock_skew import to_local_ms
from fenceline.limits import Limits
from fenceline.snapshot import ApplicationFigures, Repeated
from fenceline.streaks import in_a_row, latest_streak

#: How often all of this is read again.
PACE_MS = 30_000
_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000
#: Minutes that may still be added to.
_MOVING = 3
#: Transitions of a kind that one read covers, the newest first.
_MOST_TRANSITIONS = 2_000
#: A series is followed back for so many windows.
_SERIES_WINDOWS = 6
#: Applications whose past is read again in one go; one that is new is read at once.
_REFRESHED = 5
_HABIT_HOURS = 168

#: By partition of `__transaction_state`: how far our clock is ahead of its coordinator's.
Clocks = Mapping[int, int | None]
Counts = Mapping[TransitionKind, int]
Past = TypeVar("Past")


@dataclass(frozen=True, slots=True)
class RecentActivity:
    """What happened lately, as a snapshot takes it."""

    applications: tuple[ApplicationFigures, ...] = ()
    takeovers: tuple[Repeated, ...] = ()
    timeouts: tuple[Repeated, ...] = ()


class ClusterBaselines:
    """The figures of one cluster."""

    def __init__(self, cluster_id: int) -> None:
        self._cluster_id = cluster_id
        self._at: int | None = None
        self._lately = RecentActivity()
        self._minutes: dict[int, Mapping[str, Counts]] = {}
        self._epochs = Epochs(cluster_id)
        self._habits = _Pasts(partial(_habits, cluster_id))
        self._usual = _Pasts(partial(_usual, cluster_id))

    def recent_activity(self, *, now_ms: int, limits: Limits, clocks: Clocks) -> RecentActivity:
        """Return what happened lately, as it was read at most half a minute ago."""
        if self._at != now_ms // PACE_MS:
            self._lately = RecentActivity(
                tuple(self._applications(now_ms, limits)),
                tuple(self._takeovers(now_ms, limits, clocks)),
                tuple(self._timeouts(now_ms, limits, clocks)),
            )
            self._at = now_ms // PACE_MS
        return self._lately

    def usual_commits(self, applications: Collection[str], now_ms: int) -> Mapping[str, UsualCommit]:
        """Return how long the commits of some applications took in the last day, where there were any."""
        found = self._usual.pasts_of(applications, now_ms)
        return {name: usual for name, usual in found.items() if usual.commits}

    def _applications(self, now_ms: int, limits: Limits) -> Iterator[ApplicationFigures]:
        window = self._window(now_ms, limits)
        hour = self._hour(now_ms)
        burns = self._epochs.fastest_burns(now_ms, limits)
        restless = [name for name, counts in hour.items() if _is_restless(counts, limits)]
        known = self._habits.pasts_of(restless, now_ms)
        for name in sorted({*window, *hour, *burns}):
            made = hour.get(name, {}).get(TransitionKind.INIT, 0)
            yield ApplicationFigures(
                name,
                window.get(name, {}),
                hour.get(name, {}),
                known.get(name, {}),
                burns.get(name),
                self._sample_id(name) if made > limits.new_ids_per_hour else "",
            )

    def _sample_id(self, application: str) -> str:
        rows = Transaction.objects.filter(cluster_id=self._cluster_id, application=application)
        return next(iter(rows.values_list("transactional_id", flat=True)[:1]), "")

    def _window(self, now_ms: int, limits: Limits) -> Mapping[str, Counts]:
        """Return counts by application of the last minutes; those that cannot change any more are kept."""
        last = now_ms - now_ms % _MINUTE_MS
        first = last - int(limits.abort_window_s * 1_000)
        wanted = range(first - first % _MINUTE_MS, last + 1, _MINUTE_MS)
        moving = last - _MOVING * _MINUTE_MS
        asked = [start for start in wanted if start > moving or start not in self._minutes]
        self._minutes = {start: self._minutes.get(start, {}) for start in wanted}
        self._minutes |= self._read(60, asked)
        return _sums(self._minutes.values())

    def _hour(self, now_ms: int) -> Mapping[str, Mapping[TransitionKind, float]]:
        """Return counts by application of the last hour: of this one, and its share of the one before."""
        this = now_ms - now_ms % _HOUR_MS
        share = 1 - (now_ms - this) / _HOUR_MS
        found = self._read(3_600, [this, this - _HOUR_MS])
        sums: dict[str, dict[TransitionKind, float]] = defaultdict(lambda: defaultdict(float))
        for start, weight in ((this, 1.0), (this - _HOUR_MS, share)):
            for name, counts in found[start].items():
                for kind, n in counts.items():
                    sums[name][kind] += weight * n
        return sums

    def _read(self, span_s: int, starts: Sequence[int]) -> dict[int, Mapping[str, Counts]]:
        # Instants by name: of a range SQLite would read every hour there ever was.
        rows = self._tallies(span_s).filter(start_ms__in=starts).exclude(application=Tally.EVERY)
        found: dict[int, dict[str, Counts]] = {start: {} for start in starts}
        for start, name, counts in rows.values_list("start_ms", "application", "counts").iterator():
            known = found[start].get(name)
            found[start][name] = _added(known, counts_by_kind(counts)) if known else counts_by_kind(counts)
        return {**found}

    def _tallies(self, span_s: int) -> QuerySet[Tally]:
        return Tally.objects.filter(cluster_id=self._cluster_id, span_s=span_s)

    def _takeovers(self, now_ms: int, limits: Limits, clocks: Clocks) -> Iterator[Repeated]:
        window_ms = int(limits.fencing_storm_s * 1_000)
        since_ms = now_ms - _SERIES_WINDOWS * window_ms
        by_id: dict[str, list[TransitionRecord]] = defaultdict(list)
        for row in self._transitions(TransitionKind.TAKEOVER, since_ms, clocks):
            by_id[row.transactional_id].append(row)
        for name, rows in by_id.items():
            instants = _instants(rows, now_ms, clocks)
            lately = [row for at_ms, row in zip(instants, rows, strict=True) if at_ms > now_ms - window_ms]
            if lately:
                clear = _unambiguous(lately)
                first_ms = latest_streak(instants, within_ms=window_ms)[0]
                yield Repeated(f"transaction:{name}", len(lately), clear, first_ms, instants[-1])

    def _timeouts(self, now_ms: int, limits: Limits, clocks: Clocks) -> Iterator[Repeated]:
        since_ms = now_ms - int(limits.timeouts_in_a_row_s * 1_000)
        rows = list(self._transitions(TransitionKind.TIMEOUT, since_ms, clocks))
        reported = set()
        for name, each in _grouped(rows, limits, "application").items():
            uncommitted = self._since_last_commit(name, each)
            ids = {row.transactional_id for row in uncommitted}
            if len(ids) > 1 and len(uncommitted) >= limits.timeouts_in_a_row:
                reported.add(name)
                yield _timed_out(f"application:{name}", uncommitted, now_ms, clocks)
        for name, each in _grouped(rows, limits, "transactional_id").items():
            if each[0].application not in reported:
                uncommitted = self._in_a_row(each)
                if len(uncommitted) >= limits.timeouts_in_a_row:
                    yield _timed_out(f"transaction:{name}", uncommitted, now_ms, clocks)

    def _since_last_commit(
        self, application: str, rows: Sequence[TransitionRecord]
    ) -> Sequence[TransitionRecord]:
        """Return those of an application's timeouts that lie behind the last minute with a commit."""
        known = ((start, minute.get(application, {})) for start, minute in self._minutes.items())
        committed = _committed(known) or _committed(self._minutes_of(application, rows[0].at_ms))
        return [row for row in rows if row.at_ms >= committed]

    def _minutes_of(self, application: str, since_ms: int) -> Iterator[tuple[int, Counts]]:
        rows = self._tallies(60).filter(application=application)
        rows = rows.filter(start_ms__gte=since_ms - since_ms % _MINUTE_MS)
        for start, counts in rows.values_list("start_ms", "counts"):
            yield start, counts_by_kind(counts)

    def _in_a_row(self, rows: Sequence[TransitionRecord]) -> Sequence[TransitionRecord]:
        """Return those of an id's timeouts after which it has not committed."""
        kept = Recent.objects.filter(cluster_id=self._cluster_id, key=rows[0].key).first()
        if kept is None:
            return []
        offsets = {each.offset for each in in_a_row(transition_ring.unpack_ring(bytes(kept.packed), 0))}
        return [row for row in rows if row.log_offset in offsets]

    def _transitions(self, kind: TransitionKind, since_ms: int, clocks: Clocks) -> Iterable[TransitionRecord]:
        """Return the newest transitions of a kind since an instant of ours, oldest first."""
        ahead_ms = max((ahead for ahead in clocks.values() if ahead is not None), default=0)
        rows = TransitionRecord.objects.filter(
            cluster_id=self._cluster_id, kind=kind.value, at_ms__gte=since_ms - max(0, ahead_ms)
        )
        newest = rows.order_by("-at_ms", "-id")[:_MOST_TRANSITIONS]
        found = [row for row in newest if _ours_ms(row, since_ms, clocks) >= since_ms]
        return found[::-1]


class _Pasts(Generic[Past]):
    """What is learned of applications from their past: of new ones at once, of others an hour later or so."""

    def __init__(self, learn: Callable[[Sequence[str], int], Mapping[str, Past]]) -> None:
        self._learn = learn
        self._known: dict[str, tuple[int, Past]] = {}

    def pasts_of(self, applications: Collection[str], now_ms: int) -> Mapping[str, Past]:
        """Return what is known of some applications; whoever is not asked for any more is forgotten."""
        hour = now_ms // _HOUR_MS
        self._known = {
            name: past for name, past in self._known.items() if past[0] >= hour - 1 or name in applications
        }
        new = [name for name in applications if name not in self._known]
        old = [name for name in applications if name in self._known and self._known[name][0] != hour]
        if wanted := [*new, *old[:_REFRESHED]]:
            self._known |= {name: (hour, past) for name, past in self._learn(wanted, now_ms).items()}
        return {name: self._known[name][1] for name in applications}


def _habits(
    cluster_id: int, names: Sequence[str], now_ms: int
) -> Mapping[str, Mapping[TransitionKind, Habit]]:
    """Return the habits of applications: of the last week, without the hours that are compared with them."""
    before_ms = now_ms - now_ms % _HOUR_MS - _HOUR_MS
    rows = _hours(cluster_id, names, before_ms - _HABIT_HOURS * _HOUR_MS, before_ms)
    hours: dict[str, dict[int, Counts]] = {name: {} for name in names}
    for name, start, counts in rows.values_list("application", "start_ms", "counts").iterator():
        hours[name][start] = _added(hours[name].get(start, {}), counts_by_kind(counts))
    return {name: baselines.learn_habits(each.values()) for name, each in hours.items()}


def _usual(cluster_id: int, names: Sequence[str], now_ms: int) -> Mapping[str, UsualCommit]:
    rows = _hours(cluster_id, names, now_ms - _DAY_MS, now_ms + _HOUR_MS)
    times: dict[str, list[str]] = {name: [] for name in names}
    for name, packed in rows.values_list("application", "open_times").iterator():
        times[name].append(packed)
    return {
        name: _longest(histograms.merge_histograms(map(histograms.unpack_histogram, each)))
        for name, each in times.items()
    }


def _longest(times: histograms.Histogram) -> UsualCommit:
    return UsualCommit(sum(times.values()), int(histograms.quantile(times, 0.99) or 0))


def _hours(cluster_id: int, names: Sequence[str], since_ms: int, before_ms: int) -> QuerySet[Tally]:
    rows = Tally.objects.filter(cluster_id=cluster_id, span_s=3_600, application__in=names)
    return rows.filter(start_ms__gte=since_ms, start_ms__lt=before_ms)


def _is_restless(counts: Mapping[TransitionKind, float], limits: Limits) -> bool:
    return any(counts.get(kind, 0) >= limits.habit_events for kind in HABITS)


def _grouped(
    rows: Iterable[TransitionRecord], limits: Limits, by: str
) -> Mapping[str, Sequence[TransitionRecord]]:
    """Return transitions by application or id, of those that have enough of them for a row."""
    found: dict[str, list[TransitionRecord]] = defaultdict(list)
    for row in rows:
        found[getattr(row, by)].append(row)
    return {name: each for name, each in found.items() if len(each) >= limits.timeouts_in_a_row}


def _timed_out(subject: str, rows: Sequence[TransitionRecord], now_ms: int, clocks: Clocks) -> Repeated:
    instants = _instants(rows, now_ms, clocks)
    return Repeated(subject, len(rows), _unambiguous(rows), instants[0], instants[-1], rows[-1].timeout_ms)


def _unambiguous(rows: Iterable[TransitionRecord]) -> int:
    return sum(row.confidence != Confidence.AMBIGUOUS for row in rows)


def _instants(rows: Iterable[TransitionRecord], now_ms: int, clocks: Clocks) -> list[int]:
    return sorted(_ours_ms(row, now_ms, clocks) for row in rows)


def _ours_ms(row: TransitionRecord, now_ms: int, clocks: Clocks) -> int:
    return to_local_ms(row.at_ms, now_ms=now_ms, ahead_ms=clocks.get(row.log_partition))


def _committed(minutes: Iterable[tuple[int, Counts]]) -> int:
    """Return the end of the last minute with a commit, 0 without any."""
    return max(
        (start + _MINUTE_MS for start, counts in minutes if counts.get(TransitionKind.COMMIT)), default=0
    )


def _sums(minutes: Iterable[Mapping[str, Counts]]) -> Mapping[str, Counts]:
    sums: dict[str, Counts] = {}
    for minute in minutes:
        for name, counts in minute.items():
            sums[name] = _added(sums[name], counts) if name in sums else counts
    return sums


def _added(one: Counts, other: Counts) -> Counts:
    return {kind: one.get(kind, 0) + other.get(kind, 0) for kind in {**one, **other}}
