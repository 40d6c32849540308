"""What applications write to, as rows. Call it inside the database transaction of a tail's save."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from django.db import connection

from dashboard.models import TopicTally
from dashboard.runtime.sql import Row, overwrite_changes, upsert_statement
from fenceline import histograms
from fenceline.kafka.counting import (
    LINK_SPAN_MS,
    MORE_TOPICS,
    MOST_TOPICS,
    WHOLE_TOPIC,
    LinkTallies,
    LinkTally,
    by_topic,
    merge_link_tallies,
)

#: Spans that are kept, in seconds: quarters for ranges of hours, six hours for ranges of days.
SHORT_S, LONG_S = LINK_SPAN_MS // 1_000, 21_600
_KEY = ("cluster_id", "span_s", "application", "start_ms", "topic", "partition", "shard")
_COLUMNS = (*_KEY, "commits", "aborts", "unreadable_times", "last_ms")
_UPSERT = upsert_statement(
    TopicTally._meta.db_table, _COLUMNS, _KEY, overwrite_changes(_COLUMNS[len(_KEY) :])
)
#: Applications asked for at a time: SQLite takes 32,766 parameters.
_ASK_AT_ONCE = 5_000

#: Span, application, begin, topic, partition: the order of the key.
_Place = tuple[int, str, int, str, int]


def add_topic_tallies(cluster_id: int, shard: int, links: LinkTallies) -> None:
    """Add what a fold counted to the rows of its spans, in the order of their keys.

    Of an application at most MOST_TOPICS topics are kept in a span; what is beyond is one row without a name.
    """
    wanted: dict[_Place, LinkTally] = {}
    for (application, start_ms, topic, partition), tally in by_topic(links).items():
        for span_s in (SHORT_S, LONG_S):
            start = start_ms - start_ms % (span_s * 1_000)
            _add(wanted, (span_s, application, start, topic, partition), tally)
    if not wanted:
        return
    stored = dict(_stored(cluster_id, shard, wanted))
    merged = _within_bounds(wanted, stored)
    for place in merged.keys() & stored.keys():
        merged[place] = merge_link_tallies(stored[place], merged[place])
    rows = [_row(cluster_id, shard, place, tally) for place, tally in sorted(merged.items(), key=_by_place)]
    with connection.cursor() as cursor:
        cursor.executemany(_UPSERT, rows)


def _add(into: dict[_Place, LinkTally], place: _Place, tally: LinkTally) -> None:
    into[place] = merge_link_tallies(into[place], tally) if place in into else tally


def _by_place(item: tuple[_Place, LinkTally]) -> _Place:
    return item[0]


def _stored(
    cluster_id: int, shard: int, wanted: Mapping[_Place, LinkTally]
) -> Iterator[tuple[_Place, LinkTally]]:
    """Yield the rows there are of these applications in these spans."""
    names: dict[tuple[int, int], set[str]] = defaultdict(set)
    for span_s, application, start_ms, *_ in wanted:
        names[span_s, start_ms].add(application)
    for (span_s, start_ms), applications in names.items():
        ordered = sorted(applications)
        for at in range(0, len(ordered), _ASK_AT_ONCE):
            rows = TopicTally.objects.filter(
                cluster_id=cluster_id, span_s=span_s, start_ms=start_ms, shard=shard,
                application__in=ordered[at : at + _ASK_AT_ONCE],
            )  # fmt: skip
            columns = (
                "application",
                "topic",
                "partition",
                "commits",
                "aborts",
                "unreadable_times",
                "last_ms",
            )
            for application, topic, partition, commits, aborts, times, last_ms in rows.values_list(*columns):
                tally = LinkTally(commits, aborts, histograms.unpack_histogram(times), last_ms)
                yield (span_s, application, start_ms, topic, partition), tally


def _within_bounds(
    wanted: Mapping[_Place, LinkTally], stored: Mapping[_Place, LinkTally]
) -> dict[_Place, LinkTally]:
    """Return what is wanted, with topics that are new and beyond the bound as one."""
    known = Counter(place[:3] for place in stored)
    found: dict[_Place, LinkTally] = {}
    for place, tally in sorted(wanted.items(), key=_by_place):
        if place not in stored:
            if known[place[:3]] >= MOST_TOPICS:
                _add(found, (*place[:3], MORE_TOPICS, WHOLE_TOPIC), tally)
                continue
            known[place[:3]] += 1
        found[place] = tally
    return found


def _row(cluster_id: int, shard: int, place: _Place, tally: LinkTally) -> Row:
    span_s, application, start_ms, topic, partition = place
    times = histograms.pack_histogram(tally.unreadable_times)
    key = cluster_id, span_s, application, start_ms, topic, partition, shard
    return (*key, tally.commits, tally.aborts, times, tally.last_ms)
