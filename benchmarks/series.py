"""What figures over time cost: bytes of a change, of a minute and of an hour, and the time of a save and a
reading.

On SQLite and on a PostgreSQL of our own, without a broker: polls are made up. First three days of busy
subjects; then saves of 20,000 partitions and 1,000 groups that have all changed, with their series and
without; then readings of 24 h at that size, with seven days of minutes and 30 of hours of each group.
As a process, in the environment of one database: `python -m benchmarks.series`; it prints its figures.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any
from unittest import mock

from benchmarks.databases import measure_on_both, signed_in_client, time_ms
from benchmarks.reader import NAME

if TYPE_CHECKING:
    from dashboard.models import Cluster
    from fenceline.series.points import SeriesKind
    from fenceline.series.rollup import ClosedChunk

SUBJECTS, DAYS, EVERY_MS, AT_ONCE = 8, 4, 60_000, 100
PARTITIONS, GROUPS, OF_GROUP, ROUNDS = 20_000, 1_000, 4, 7
DAY_MS, MINUTE_MS = 86_400_000, 60_000
#: Long ago for what is measured by bytes, and now for what is read.
_LONG_AGO_MS = 1_700_000_000_000
_RESOLUTIONS = ("change", "minute", "hour")


def run() -> dict[str, object]:
    """Measure on both databases."""
    return measure_on_both("benchmarks.series")


def main() -> None:
    """Measure in one database."""
    import django

    django.setup()
    figures: dict[str, object] = {}
    for measure in (_sizes, _saves, _readings):
        figures |= measure()
        print(f"{measure.__name__.strip('_')} measured", file=sys.stderr, flush=True)
    print(json.dumps(figures))


def _sizes() -> dict[str, object]:
    """Write days of busy subjects, and return what each change, minute and hour of them takes."""
    from fenceline.series.points import GROUP, PARTITION

    figures: dict[str, object] = {}
    for kind, values in ((PARTITION, _offsets), (GROUP, _lags)):
        empty_series()
        before = _bytes_of("dashboard_serieschunk"), _bytes_of("dashboard_series")
        _write_days(kind, values, _LONG_AGO_MS)
        chunks, rows = (
            _bytes_of(table) - size
            for table, size in zip(("dashboard_serieschunk", "dashboard_series"), before, strict=True)
        )
        for what, size in _by_resolution(kind, chunks).items():
            figures[f"{kind.name}: bytes of a {what}"] = round(size, 1)
        figures[f"{kind.name}: bytes of what is open"] = round(rows / SUBJECTS)
    return figures


def _by_resolution(kind: SeriesKind, size: int) -> dict[str, float]:
    """Return the bytes of a change, a minute and an hour, with their share of rows and indexes."""
    from dashboard.models import SeriesChunk
    from fenceline.series import packing
    from fenceline.series.points import Resolution

    chunks = list(SeriesChunk.objects.values_list("resolution", "packed"))
    overhead = (size - sum(len(packed) for _, packed in chunks)) / len(chunks)
    found = {}
    for resolution in Resolution:
        some = [bytes(packed) for number, packed in chunks if number == resolution.value]
        each = sum(len(packed) + overhead for packed in some)
        found[_RESOLUTIONS[resolution]] = each / sum(map(packing.count_rows, some))
    return found


def _write_days(kind: SeriesKind, values: Callable[..., tuple[int, ...]], begin_ms: int) -> None:
    from django.db import transaction

    from dashboard.models import Cluster
    from dashboard.series.store import SeriesSample, save_samples

    dice, cluster = random.Random(1), Cluster.objects.get(name=NAME)
    state = [values(dice, None) for _ in range(SUBJECTS)]
    polls = range(begin_ms, begin_ms + DAYS * DAY_MS, EVERY_MS)
    for first in range(0, len(polls), AT_ONCE):
        with transaction.atomic():
            for at_ms in polls[first : first + AT_ONCE]:
                state = [values(dice, each) for each in state]
                samples = [SeriesSample(f"t-{n}", each) for n, each in enumerate(state)]
                save_samples(cluster.pk, kind, samples, at_ms=at_ms)


def _offsets(dice: random.Random, before: Sequence[int] | None) -> tuple[int, ...]:
    lso = 48_000_000 if before is None else before[0] + dice.randrange(1, 8_000)
    return lso, dice.choice((0, 0, dice.randrange(400)))


def _lags(dice: random.Random, before: Sequence[int] | None) -> tuple[int, ...]:
    lag = dice.randrange(4_000)
    return lag, lag + dice.randrange(1, 300), dice.randrange(9_000), 0


def _bytes_of(table: str) -> int:
    """Return the bytes of a table and its indexes."""
    from django.db import connection

    own = "SELECT name FROM sqlite_schema WHERE tbl_name = %s"
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT pg_total_relation_size(%s)", [table])
        else:
            cursor.execute(f"SELECT sum(pgsize) FROM dbstat WHERE name IN ({own})", [table])
        return int(cursor.fetchone()[0])


def empty_series() -> None:
    from django.db import connection

    from dashboard.models import Series, SeriesChunk

    SeriesChunk.objects.all().delete()
    Series.objects.all().delete()
    with connection.cursor() as cursor:
        for table in ("dashboard_serieschunk", "dashboard_series"):
            cursor.execute(f"VACUUM FULL {table}" if connection.vendor == "postgresql" else "VACUUM")


@dataclass(frozen=True, slots=True)
class _Saver:
    """A save that is all news: of its number-th poll."""

    name: str
    module: Any
    save: Callable[[int], None]

    def seconds(self, number: int, *, series: bool) -> float:
        """Return how long one takes, with series or without."""
        began = time.monotonic()
        if series:
            self.save(number)
        else:
            with (
                mock.patch.object(self.module, "save_samples"),
                mock.patch.object(self.module, "extend_span"),
            ):
                self.save(number)
        return time.monotonic() - began


def _saves() -> dict[str, object]:
    """Save polls in which everything has changed, in turn with and without series."""
    empty_series()
    figures: dict[str, object] = {}
    for saver in (partition_saver(), group_saver()):
        saver.save(0)
        _fill_points()
        took: dict[bool, list[float]] = {True: [], False: []}
        for number in range(1, 2 * ROUNDS + 1):
            took[number % 2 == 0].append(saver.seconds(number, series=number % 2 == 0))
        plain, with_series = median(took[False]), median(took[True])
        figures[f"a save of {saver.name}, s"] = round(with_series, 2)
        figures[f"a save of {saver.name} / the same without series"] = round(with_series / plain, 2)
    return figures


def _fill_points() -> None:
    """Give each series as many open points as come by chance, so that as many close at a time as ever."""
    from dashboard.models import Series
    from fenceline.series import packing
    from fenceline.series.points import KINDS, SeriesPoint
    from fenceline.series.rollup import most_points

    dice = random.Random(2)
    rows = list(Series.objects.filter(minutes=b""))
    columns = {kind.code: len(kind.columns) for kind in KINDS}
    for row in rows:
        number = dice.randrange(1, most_points(bytes(row.key)))
        values = [tuple(dice.randrange(9_000) for _ in range(columns[row.kind])) for _ in range(number)]
        row.open_ms = row.since_ms - number * MINUTE_MS
        row.points = packing.pack_points(
            [SeriesPoint(row.open_ms + n * MINUTE_MS, each) for n, each in enumerate(values)]
        )
    Series.objects.bulk_update(rows, ["open_ms", "points"], batch_size=1_000)


def partition_saver() -> _Saver:
    from collectors.kafka.partitions import ObservedPartitions
    from dashboard.partitions import store
    from dashboard.runtime import leases, loop
    from fenceline.facts import TopicPartition
    from fenceline.kafka.end_offset_history import EndOffset, pack_ends
    from fenceline.kafka.partitions import KnownPartition, PartitionPlace, PartitionVerdict

    lease = leases.acquire(NAME, store.NAME, holder="bench", now_ms=loop.now_ms())
    assert lease is not None
    place = PartitionPlace("id", 1, 1, (1,))
    wheres = [TopicPartition(f"t{n // 100}", n % 100) for n in range(PARTITIONS)]

    def save(number: int) -> None:
        at_ms = loop.now_ms()
        rows = {
            where: KnownPartition(
                *where, place, 0, number * 5, number * 6, at_ms, None, PartitionVerdict.CLEAR, ""
            )
            for where in wheres
        }
        ends = pack_ends([EndOffset(at_ms - n * MINUTE_MS, n, n) for n in range(60)])
        observation = ObservedPartitions(at_ms, full=True, rows=rows, ends=dict.fromkeys(wheres, ends))
        store.save_partitions(lease, observation, now_ms=at_ms)

    return _Saver(f"{PARTITIONS:,} partitions", store, save)


def group_saver() -> _Saver:
    from dashboard.groups import store
    from dashboard.runtime import leases, loop
    from fenceline.facts import TopicPartition
    from fenceline.kafka.group_observation import ObservedGroups, SeenGroup
    from fenceline.kafka.groups import Committed
    from fenceline.kafka.partitions import Offsets

    lease = leases.acquire(NAME, store.NAME, holder="bench", now_ms=loop.now_ms())
    assert lease is not None
    parts = {f"g{n}": [TopicPartition(f"g{n}", m) for m in range(OF_GROUP)] for n in range(GROUPS)}

    def save(number: int) -> None:
        at_ms = loop.now_ms()
        groups = {
            name: SeenGroup("Stable", "Classic", 1, 3, dict.fromkeys(wheres, Committed(number)))
            for name, wheres in parts.items()
        }
        ends = {where: Offsets(0, 3 * number, 4 * number, 1) for each in parts.values() for where in each}
        rows = store.GroupRows(lease, at_ms)
        store.save_groups(lease, ObservedGroups(at_ms, groups, ends), rows, now_ms=at_ms)

    return _Saver(f"{GROUPS:,} groups", store, save)


def _readings() -> dict[str, object]:
    """Read the last 24 h of pages and series, and find the worst of all groups, at full size."""
    from dashboard.runtime import loop

    empty_series()
    now_ms = loop.now_ms()
    fill_series(now_ms)
    client = signed_in_client("viewer")
    took = {
        path: [time_ms(client, path) for _ in range(ROUNDS * 2)]
        for path in (
            "/events?last=24h",
            f"/partitions/{NAME}/t7/7?last=24h",
            f"/groups/{NAME}/g7?last=24h",
            f"/api/v1/clusters/{NAME}/series/groups?last=24h",
            f"/api/v1/partitions/{NAME}/t7/7/series?last=30d",
        )
    }
    return {f"{path}, p95, ms": round(sorted(each)[-2]) for path, each in took.items()}


def fill_series(now_ms: int) -> None:
    """A day of minutes of all partitions; of groups, and of one partition, all that is kept of 30 days."""
    from dashboard.models import Cluster, ObservedSpan
    from dashboard.series.store import SOURCES
    from fenceline.series.points import APPLICATION, GROUP, PARTITION

    cluster = Cluster.objects.get(name=NAME)
    for source in SOURCES.values():
        ObservedSpan.objects.create(
            cluster=cluster, source=source, from_ms=now_ms - 30 * DAY_MS, to_ms=now_ms + DAY_MS
        )
    names = [f"t{n // 100}-{n % 100}" for n in range(PARTITIONS)]
    _copy(cluster, PARTITION, ["t7-7"], _template(PARTITION, _offsets, now_ms, 30), now_ms)
    day = _template(PARTITION, _offsets, now_ms, 1)
    _copy(cluster, PARTITION, [each for each in names if each != "t7-7"], day, now_ms, minutes_alone=True)
    groups = [f"g{n}" for n in range(GROUPS)]
    _copy(cluster, GROUP, groups, _template(GROUP, _lags, now_ms, 30), now_ms)
    _copy(cluster, APPLICATION, ["", "payments"], _template(APPLICATION, _opened, now_ms, 30), now_ms)


def _opened(dice: random.Random, before: Sequence[int] | None) -> tuple[int, ...]:
    return dice.randrange(40), dice.randrange(90_000), dice.choice((0, 0, dice.randrange(9_000)))


def _template(
    kind: SeriesKind, values: Callable[..., tuple[int, ...]], now_ms: int, days: int
) -> tuple[dict[str, Any], list[ClosedChunk]]:
    """Return the columns of a subject that changed each minute for so long, and its closed chunks."""
    from fenceline.series.points import SeriesPoint
    from fenceline.series.rollup import add_point, roll_up

    dice, state = random.Random(3), None
    row: dict[str, Any] = {"points": b"", "minutes": b"", "hours": b"", "since_ms": now_ms - days * DAY_MS}
    chunks: list[ClosedChunk] = []
    for at_ms in range(row["since_ms"], now_ms, MINUTE_MS):
        state = values(dice, state)
        point = SeriesPoint(at_ms, state)
        added = add_point(kind, row["points"], point, most=128)
        if added is None:
            continue
        if added.closed is not None:
            rolled = roll_up(
                kind, added.closed, row["minutes"], row["hours"], start_ms=row["open_ms"], following=point
            )
            row |= {"minutes": rolled.minutes, "hours": rolled.hours, "minutes_ms": rolled.minutes_ms}
            row |= {"peak": rolled.minutes_peak, "hours_peak": rolled.hours_peak}
            chunks += rolled.chunks
        if added.closed is not None or not row["points"]:
            row["open_ms"] = at_ms
        row["points"] = added.points
    return row, chunks


def _copy(
    cluster: Cluster,
    kind: SeriesKind,
    names: Sequence[str],
    template: tuple[dict[str, Any], list[ClosedChunk]],
    now_ms: int,
    *,
    minutes_alone: bool = False,
) -> None:
    """Give subjects what a template has, as far as it is still kept."""
    from dashboard.models import Series, SeriesChunk
    from dashboard.series.store import series_key
    from fenceline.series.points import Resolution

    row, chunks = template
    kept_ms = {Resolution.DETAIL: DAY_MS, Resolution.MINUTE: 7 * DAY_MS}
    kept = [
        each
        for each in chunks
        if now_ms - each.until_ms <= kept_ms.get(each.resolution, 400 * DAY_MS)
        and (not minutes_alone or each.resolution is Resolution.MINUTE)
    ]
    made = Series.objects.bulk_create(
        [Series(cluster=cluster, kind=kind.code, key=series_key(name), name=name, **row) for name in names],
        batch_size=2_000,
    )
    for first in range(0, len(made), 200):
        SeriesChunk.objects.bulk_create(
            [
                SeriesChunk(cluster=cluster, kind=kind.code, series=one, **each._asdict())
                for one in made[first : first + 200]
                for each in kept
            ],
            batch_size=5_000,
        )


if __name__ == "__main__":
    main()
