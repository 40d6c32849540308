"""Save the topics that applications write to. Call it in the database transaction of a tail's save."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import product
from operator import itemgetter
from typing import Any

from dashboard.models import TopicTally
from dashboard.runtime.sql import portions, read_rows, write_rows
from fenceline.decode.typed import fields_of
from fenceline.kafka.fold.counting import (
    LINK_SPAN_MS,
    MORE_TOPICS,
    MOST_TOPICS,
    WHOLE_TOPIC,
    LinkTallies,
    LinkTally,
    by_topic,
    merge_link_tallies,
)
from fenceline.series import histograms

#: The stored spans in seconds: quarter hours for ranges of hours, six hours for ranges of days.
SHORT_S, LONG_S = LINK_SPAN_MS // 1_000, 21_600
_READ = (
    "span_s", "application", "start_ms", "topic", "partition", "commits", "aborts", "unreadable_times",
    "last_ms",
)  # fmt: skip
_KEY = ("cluster_id", "span_s", "application", "start_ms", "topic", "partition", "shard")

#: Span, application, start, topic, partition: the order of the key.
_Place = tuple[int, str, int, str, int]


def add_topic_tallies(cluster_id: int, shard: int, links: LinkTallies) -> None:
    """Add a fold's counts to the rows of its spans, in key order.

    A span has at most MOST_TOPICS topics of an application; one row without a name sums up the others.
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
    rows = (_row(cluster_id, shard, place, tally) for place, tally in merged.items())
    write_rows(TopicTally, rows, _KEY)


def _add(into: dict[_Place, LinkTally], place: _Place, tally: LinkTally) -> None:
    into[place] = merge_link_tallies(into[place], tally) if place in into else tally


def _stored(
    cluster_id: int, shard: int, wanted: Mapping[_Place, LinkTally]
) -> Iterator[tuple[_Place, LinkTally]]:
    """Yield the stored rows of the wanted applications and spans."""
    places = {place[:3] for place in wanted}
    spans, names, starts = map(set, zip(*places, strict=True))
    of_spans = {"cluster_id": cluster_id, "shard": shard, "span_s": list(spans)}
    for some_starts, some_names in product(portions(sorted(starts)), portions(sorted(names))):
        asked = {**of_spans, "start_ms": some_starts, "application": some_names}
        for *place, commits, aborts, unreadable_times, last_ms in read_rows(TopicTally, _READ, **asked):
            span_s, application, start_ms, topic, partition = place
            if (span_s, application, start_ms) in places:
                times = histograms.unpack_histogram(unreadable_times)
                tally = LinkTally(commits, aborts, times, last_ms)
                yield (span_s, application, start_ms, topic, partition), tally


def _within_bounds(
    wanted: Mapping[_Place, LinkTally], stored: Mapping[_Place, LinkTally]
) -> dict[_Place, LinkTally]:
    """Return the tallies to save; new topics beyond the bound are summed up as one."""
    known = Counter(place[:3] for place in stored)
    tallies: dict[_Place, LinkTally] = {}
    for place, tally in sorted(wanted.items(), key=itemgetter(0)):
        if place not in stored:
            if known[place[:3]] >= MOST_TOPICS:
                _add(tallies, (*place[:3], MORE_TOPICS, WHOLE_TOPIC), tally)
                continue
            known[place[:3]] += 1
        tallies[place] = tally
    return tallies


def _row(cluster_id: int, shard: int, place: _Place, tally: LinkTally) -> Mapping[str, Any]:
    span_s, application, start_ms, topic, partition = place
    key = cluster_id, span_s, application, start_ms, topic, partition, shard
    return {
        **dict(zip(_KEY, key, strict=True)),
        **fields_of(tally),
        "unreadable_times": histograms.pack_histogram(tally.unreadable_times),
    }
