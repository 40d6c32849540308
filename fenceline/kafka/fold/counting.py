"""Count applications' transitions by the minute, and the topics they write to by the quarter of an hour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

from fenceline.compat import SLOTS
from fenceline.facts import TopicPartitions, TransactionRecord, TransactionState, TransitionKind
from fenceline.series.histograms import Histogram, bucket_of, merge_histograms

#: The topic of committed offsets: its partition limits which groups a transaction commits for.
OFFSETS_TOPIC = "__consumer_offsets"
#: The partition of a link to any other topic, whichever of its partitions were written.
WHOLE_TOPIC = -1
#: The span for which an application's writes are counted.
LINK_SPAN_MS = 900_000
#: Maximum topics of an application in one fold; further topics count as `MORE_TOPICS`.
MOST_TOPICS = 500
MORE_TOPICS = ""

Partitions = tuple[TopicPartitions, ...]


@dataclass(**SLOTS)
class MinuteTally:
    """An application's transitions in one minute; a revised verdict may make counts negative."""

    counts: dict[TransitionKind, int] = field(default_factory=dict)
    #: Durations of commits: from begin to decision, and from decision to the last marker.
    open_times: Histogram = field(default_factory=dict)
    marker_times: Histogram = field(default_factory=dict)

    def count_transition(self, kind: TransitionKind, by: int = 1) -> None:
        """Count one transition, or take one back."""
        self.counts[kind] = self.counts.get(kind, 0) + by


@dataclass(**SLOTS)
class LinkTally:
    """An application's transactions that wrote to one set of partitions, by outcome.

    All counts are 0 while its first transaction is open. `unreadable_times`: from a committed transaction's
    begin to its last marker.
    """

    commits: int = 0
    aborts: int = 0
    unreadable_times: Histogram = field(default_factory=dict)
    last_ms: int = 0


class LinkKey(NamedTuple):
    """Application, start of the span, topic, and the partition of `__consumer_offsets` or WHOLE_TOPIC."""

    application: str
    start_ms: int
    topic: str
    partition: int


#: By application, start of the span, and the partitions as named by records.
LinkTallies = dict[tuple[str, int, Partitions], LinkTally]


def link_tally_at(links: LinkTallies, application: str, at_ms: int, partitions: Partitions) -> LinkTally:
    """Return the tally for an instant, created if missing, with its `last_ms` advanced to the instant."""
    key = application, at_ms - at_ms % LINK_SPAN_MS, partitions
    tally = links.get(key)
    if tally is None:
        tally = links[key] = LinkTally()
    tally.last_ms = max(tally.last_ms, at_ms)
    return tally


def count_end(
    links: LinkTallies, application: str, before: TransactionRecord | None, record: TransactionRecord
) -> None:
    """Count a transaction after its last marker; the record before names its partitions."""
    if before is None or not before.partitions:
        return
    if (before.state, record.state) == (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT):
        tally = link_tally_at(links, application, record.updated_ms, before.partitions)
        tally.commits += 1
        if before.started_ms is not None:
            add_duration(tally.unreadable_times, record.updated_ms - before.started_ms)
    elif (before.state, record.state) == (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT):
        link_tally_at(links, application, record.updated_ms, before.partitions).aborts += 1


#: The tally of a counted commit, with its key: the partitions and the start of the span.
LastLink = tuple[Optional[Partitions], int, LinkTally]
NO_LINK: LastLink = None, -LINK_SPAN_MS, LinkTally()


def count_commit(
    links: LinkTallies,
    application: str,
    at_ms: int,
    partitions: Partitions,
    unreadable_ms: int,
    last: LastLink,
) -> LastLink:
    """Count a commit as `count_end` does. `last` has the previous commit's tally; return this commit's.

    Consecutive commits mostly use one tally, so the tally is looked up only when it changes.
    """
    known, start_ms, tally = last
    if partitions is not known or not start_ms <= at_ms < start_ms + LINK_SPAN_MS:
        tally = link_tally_at(links, application, at_ms, partitions)
        last = partitions, at_ms - at_ms % LINK_SPAN_MS, tally
    tally.commits, tally.last_ms = tally.commits + 1, max(tally.last_ms, at_ms)
    add_duration(tally.unreadable_times, unreadable_ms)
    return last


def by_topic(links: LinkTallies) -> Mapping[LinkKey, LinkTally]:
    """Return the tallies summed by topic over all sets of partitions."""
    tallies: dict[LinkKey, LinkTally] = {}
    topics: dict[tuple[str, int], int] = {}
    for (application, start_ms, partitions), tally in links.items():
        for topic, partition in _touched(partitions):
            key = LinkKey(application, start_ms, topic, partition)
            if key not in tallies and topics.get(key[:2], 0) >= MOST_TOPICS:
                key = key._replace(topic=MORE_TOPICS, partition=WHOLE_TOPIC)
            if key not in tallies:
                topics[key[:2]] = topics.get(key[:2], 0) + 1
            tallies[key] = merge_link_tallies(tallies[key], tally) if key in tallies else tally
    return tallies


def merge_link_tallies(one: LinkTally, other: LinkTally) -> LinkTally:
    """Return the sum of two tallies."""
    return LinkTally(
        one.commits + other.commits,
        one.aborts + other.aborts,
        merge_histograms((one.unreadable_times, other.unreadable_times)),
        max(one.last_ms, other.last_ms),
    )


def add_duration(histogram: Histogram, ms: int) -> None:
    """Count a duration."""
    bucket = bucket_of(ms)
    histogram[bucket] = histogram.get(bucket, 0) + 1


def _touched(partitions: Partitions) -> Iterator[tuple[str, int]]:
    for topic, numbers in partitions:
        if topic == OFFSETS_TOPIC:
            yield from ((topic, number) for number in numbers)
        else:
            yield topic, WHOLE_TOPIC
