"""Recent and usual rates for the rules: sums of tallies, read at their own interval. A tick reads the open
transactions. Rates cover minutes and hours, so they are read again each half minute. The cached values are
derived from rows alone and can be lost at any time.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from dashboard.history.queries import counts_by_kind
from dashboard.models import Tally, Transaction, TransitionRecord
from dashboard.transactions.sql import recent_ring
from fenceline.facts import Confidence, TransitionKind
from fenceline.grouping import grouped
from fenceline.history.timeline import in_a_row, latest_streak
from fenceline.kafka.coordinator import to_local_ms
from fenceline.kafka.fold import transition_ring
from fenceline.limits import Limits
from fenceline.series import histograms
from fenceline.snapshot import ApplicationFigures, Repeated, UsualCommit

#: The interval of these reads.
PACE_MS = 30_000
_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000
#: The newest minutes, whose counts may still grow.
_MOVING = 3
#: Maximum transitions of a kind in one read, newest first.
_MOST_TRANSITIONS = 2_000
#: Maximum windows to follow a series back.
_SERIES_WINDOWS = 6
#: The most applications whose last day is read again in one tick; new ones are read at once.
_REFRESHED = 5

#: The difference of our clock to the coordinator's, by partition of `__transaction_state`.
Clocks = Mapping[int, int | None]
Counts = Mapping[TransitionKind, int]


@dataclass(frozen=True, slots=True)
class RecentActivity:
    applications: tuple[ApplicationFigures, ...] = ()
    takeovers: tuple[Repeated, ...] = ()
    timeouts: tuple[Repeated, ...] = ()


class ClusterBaselines:
    def __init__(self, cluster_id: int) -> None:
        self._cluster_id = cluster_id
        self._at: int | None = None
        self._lately = RecentActivity()
        self._minutes: dict[int, Mapping[str, Counts]] = {}
        self._usual = _Usual(cluster_id)

    def recent_activity(self, *, now_ms: int, limits: Limits, clocks: Clocks) -> RecentActivity:
        """Return the recent activity, read at most half a minute ago."""
        if self._at != now_ms // PACE_MS:
            self._lately = RecentActivity(
                tuple(self._applications(now_ms, limits)),
                tuple(self._takeovers(now_ms, limits, clocks)),
                tuple(self._timeouts(now_ms, limits, clocks)),
            )
            self._at = now_ms // PACE_MS
        return self._lately

    def usual_commits(self, applications: Collection[str], now_ms: int) -> Mapping[str, UsualCommit]:
        """Return the durations of applications' commits in the last day, if there were any."""
        usual_by_name = self._usual.read(applications, now_ms)
        return {name: usual for name, usual in usual_by_name.items() if usual.commits}

    def _applications(self, now_ms: int, limits: Limits) -> Iterator[ApplicationFigures]:
        window = self._window(now_ms, limits)
        hour = self._hour(now_ms)
        for name in sorted({*window, *hour}):
            made = hour.get(name, {}).get(TransitionKind.INIT, 0)
            yield ApplicationFigures(
                name,
                window.get(name, {}),
                hour.get(name, {}),
                self._sample_id(name) if made > limits.new_ids_per_hour else "",
            )

    def _sample_id(self, application: str) -> str:
        rows = Transaction.objects.filter(cluster_id=self._cluster_id, application=application)
        return next(iter(rows.values_list("transactional_id", flat=True)[:1]), "")

    def _window(self, now_ms: int, limits: Limits) -> Mapping[str, Counts]:
        """Return counts by application of the last minutes; final minutes are cached."""
        last = now_ms - now_ms % _MINUTE_MS
        first = last - int(limits.abort_window_s * 1_000)
        wanted = range(first - first % _MINUTE_MS, last + 1, _MINUTE_MS)
        moving = last - _MOVING * _MINUTE_MS
        asked = [start for start in wanted if start > moving or start not in self._minutes]
        self._minutes = {start: self._minutes.get(start, {}) for start in wanted}
        self._minutes |= self._read(60, asked)
        return _sums(self._minutes.values())

    def _hour(self, now_ms: int) -> Mapping[str, Mapping[TransitionKind, float]]:
        """Return counts by application of the last hour: this clock hour, and a share of the previous one."""
        this = now_ms - now_ms % _HOUR_MS
        share = 1 - (now_ms - this) / _HOUR_MS
        tallies = self._read(3_600, [this, this - _HOUR_MS])
        sums: dict[str, dict[TransitionKind, float]] = defaultdict(lambda: defaultdict(float))
        for start, weight in ((this, 1.0), (this - _HOUR_MS, share)):
            for name, counts in tallies[start].items():
                for kind, n in counts.items():
                    sums[name][kind] += weight * n
        return sums

    def _read(self, span_s: int, starts: Sequence[int]) -> dict[int, Mapping[str, Counts]]:
        # Single instants, because for a range SQLite would read every stored hour.
        rows = self._tallies(span_s).filter(start_ms__in=starts).exclude(application=Tally.EVERY)
        tallies: dict[int, Mapping[str, Counter[TransitionKind]]] = {
            start: defaultdict(Counter) for start in starts
        }
        for start, name, counts in rows.values_list("start_ms", "application", "counts").iterator():
            tallies[start][name].update(counts_by_kind(counts))
        return {**tallies}

    def _tallies(self, span_s: int) -> QuerySet[Tally]:
        return Tally.objects.filter(cluster_id=self._cluster_id, span_s=span_s)

    def _takeovers(self, now_ms: int, limits: Limits, clocks: Clocks) -> Iterator[Repeated]:
        window_ms = int(limits.fencing_storm_s * 1_000)
        since_ms = now_ms - _SERIES_WINDOWS * window_ms
        by_id = grouped(
            (row.transactional_id, row)
            for row in self._transitions(TransitionKind.TAKEOVER, since_ms, clocks)
        )
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
        for name, timeouts in _grouped(rows, limits, "application").items():
            uncommitted = self._since_last_commit(name, timeouts)
            ids = {row.transactional_id for row in uncommitted}
            if len(ids) > 1 and len(uncommitted) >= limits.timeouts_in_a_row:
                reported.add(name)
                yield _timed_out(f"application:{name}", uncommitted, now_ms, clocks)
        for name, timeouts in _grouped(rows, limits, "transactional_id").items():
            if timeouts[0].application not in reported:
                uncommitted = self._in_a_row(timeouts)
                if len(uncommitted) >= limits.timeouts_in_a_row:
                    yield _timed_out(f"transaction:{name}", uncommitted, now_ms, clocks)

    def _since_last_commit(
        self, application: str, rows: Sequence[TransitionRecord]
    ) -> Sequence[TransitionRecord]:
        """Return an application's timeouts after its last minute with a commit."""
        known = ((start, minute.get(application, {})) for start, minute in self._minutes.items())
        committed = _committed(known) or _committed(self._minutes_of(application, rows[0].at_ms))
        return [row for row in rows if row.at_ms >= committed]

    def _minutes_of(self, application: str, since_ms: int) -> Iterator[tuple[int, Counts]]:
        rows = self._tallies(60).filter(application=application)
        rows = rows.filter(start_ms__gte=since_ms - since_ms % _MINUTE_MS)
        for start, counts in rows.values_list("start_ms", "counts"):
            yield start, counts_by_kind(counts)

    def _in_a_row(self, rows: Sequence[TransitionRecord]) -> Sequence[TransitionRecord]:
        """Return an id's timeouts since its last commit."""
        ring = recent_ring(self._cluster_id, bytes(rows[0].key))
        if ring is None:
            return []
        offsets = {transition.offset for transition in in_a_row(transition_ring.unpack_ring(ring.packed, 0))}
        return [row for row in rows if row.log_offset in offsets]

    def _transitions(self, kind: TransitionKind, since_ms: int, clocks: Clocks) -> Iterable[TransitionRecord]:
        """Return the newest transitions of a kind since an instant by our clock, oldest first."""
        ahead_ms = max((ahead for ahead in clocks.values() if ahead is not None), default=0)
        rows = TransitionRecord.objects.filter(
            cluster_id=self._cluster_id, kind=kind.value, at_ms__gte=since_ms - max(0, ahead_ms)
        )
        newest = rows.order_by("-at_ms", "-id")[:_MOST_TRANSITIONS]
        recent = [row for row in newest if _ours_ms(row, since_ms, clocks) >= since_ms]
        return recent[::-1]


class _Usual:
    """Times of commits in the last day: new applications are read at once, others about once an hour."""

    def __init__(self, cluster_id: int) -> None:
        self._cluster_id = cluster_id
        #: The hour of the read and its result, by application.
        self._known: dict[str, tuple[int, UsualCommit]] = {}

    def read(self, applications: Collection[str], now_ms: int) -> Mapping[str, UsualCommit]:
        """Return the times of the applications; other applications are forgotten."""
        hour = now_ms // _HOUR_MS
        self._known = {
            name: known for name, known in self._known.items() if known[0] >= hour - 1 or name in applications
        }
        new = [name for name in applications if name not in self._known]
        old = [name for name in applications if name in self._known and self._known[name][0] != hour]
        if wanted := [*new, *old[:_REFRESHED]]:
            self._known |= {name: (hour, usual) for name, usual in self._last_day(wanted, now_ms).items()}
        return {name: self._known[name][1] for name in applications}

    def _last_day(self, names: Sequence[str], now_ms: int) -> Mapping[str, UsualCommit]:
        rows = Tally.objects.filter(cluster_id=self._cluster_id, span_s=3_600, application__in=names)
        rows = rows.filter(start_ms__gte=now_ms - _DAY_MS, start_ms__lt=now_ms + _HOUR_MS)
        times: dict[str, list[str]] = {name: [] for name in names}
        for name, packed in rows.values_list("application", "open_times").iterator():
            times[name].append(packed)
        days = {
            name: histograms.merge_histograms(map(histograms.unpack_histogram, hours))
            for name, hours in times.items()
        }
        return {
            name: UsualCommit(sum(day.values()), int(histograms.quantile(day, 0.99) or 0))
            for name, day in days.items()
        }


def _grouped(
    rows: Iterable[TransitionRecord], limits: Limits, by: str
) -> Mapping[str, Sequence[TransitionRecord]]:
    """Return transitions by application or id, if they are enough for a series of timeouts."""
    by_name = grouped((getattr(row, by), row) for row in rows)
    return {name: timeouts for name, timeouts in by_name.items() if len(timeouts) >= limits.timeouts_in_a_row}


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
    sums: dict[str, Counter[TransitionKind]] = defaultdict(Counter)
    for minute in minutes:
        for name, counts in minute.items():
            sums[name].update(counts)
    return sums
