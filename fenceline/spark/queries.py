"""Streaming queries for the rules: plain values of one moment, by our own clock if known; and the deleted
topics that a query reads, in words.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil
from typing import NamedTuple

from fenceline.facts import Severity
from fenceline.formatting import count_noun, list_names
from fenceline.spark.drivers import Driver
from fenceline.spark.records import Broken, QueryState

#: A query without any movement for this long is abandoned: its unread records are no loss any more.
ABANDONED_MS = 7 * 86_400_000
#: The minimum number of batches for a usual duration.
LEAST_BATCHES = 20
#: Maximum named topics; further missing ones are counted.
_MOST_CLAUSES = 3


class Absence(NamedTuple):
    #: When our polls first missed it; None if they never found it there.
    deleted_ms: int | None
    #: The last offsets of its log; None if unknown.
    log_start: int | None = None
    end: int | None = None
    #: Whether its topic has other partitions.
    topic_exists: bool = False


class SourcePosition(NamedTuple):
    """A query's position in one partition, and the partition's offsets."""

    topic: str
    partition: int
    #: The next offset to read, after the last finished batch.
    position: int
    #: The start at this position: the end of that batch.
    stands_ms: int | None
    #: None if the partition was not read.
    log_start: int | None = None
    high_watermark: int | None = None
    #: Records per second that the log start removes; None if unknown yet.
    pace: float | None = None
    #: None if the partition exists, or could not be read.
    absence: Absence | None = None

    @property
    def unread(self) -> int | None:
        """Return the number of unread records in a missing partition; None if unknown."""
        if self.absence is None or self.absence.end is None:
            return None
        return max(0, self.absence.end - max(self.position, self.absence.log_start or 0))

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class SinkBatch(NamedTuple):
    """A batch that its exactly-once sink decided to commit, and that is not completely committed."""

    batch_id: int
    decided_ms: int
    #: The first timeout among its transactions, by its coordinator's clock; None without any.
    expires_ms: int | None
    records: int
    #: Its transactional ids, by their fate at their coordinators.
    open: tuple[str, ...] = ()
    aborted: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    #: Its input: `source: from … to …`.
    input: str = ""
    #: Whether the ledger records the loss as accepted.
    recorded: bool = False
    #: How long our own polls have found it open; None without such polls: then the age of its decision
    #: counts.
    open_for_ms: int | None = None
    #: Records of transactions that are not known to be committed; None means all of `records`.
    uncommitted_records: int | None = None

    @property
    def instance(self) -> str:
        return f"batch {self.batch_id}"

    def waited_ms(self, now_ms: int) -> int:
        """Return how long it has been decided and not committed."""
        return now_ms - self.decided_ms if self.open_for_ms is None else self.open_for_ms

    @property
    def records_at_risk(self) -> int:
        """Return the number of records that will be lost without its commit, or are lost already."""
        return self.records if self.uncommitted_records is None else self.uncommitted_records

    @property
    def uncommitted_ids(self) -> tuple[str, ...]:
        """Return every id that is not known to be committed."""
        return (*self.aborted, *self.open, *self.unknown)


class Stall(NamedTuple):
    """A watermark that has not moved."""

    watermark_ms: int
    #: The number of finished batches with input, and the start of the first.
    batches: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class BatchPast:
    """One past batch of a query, as far as known."""

    run_id: str
    finished_ms: int | None
    #: From its trigger to its end.
    took_ms: int | None
    had_input: bool
    #: The watermark after it; None without one.
    watermark_ms: int | None


@dataclass(frozen=True, slots=True)
class QueryStatus:
    ident: str
    name: str
    checkpoint: str = ""
    state: QueryState = QueryState.UNHEARD
    #: Whether a driver runs it; None if unknown.
    alive: bool | None = None
    #: Further facts about its driver, beyond `alive`.
    driver: Driver | None = None
    #: The last heartbeat, plan, or poll with a newer batch; None without any.
    moved_ms: int | None = None
    ended_ms: int | None = None
    exception: str = ""
    planned: int | None = None
    finished: int | None = None
    #: The write time of `offsets/planned`.
    planned_ms: int | None = None
    #: The effect of a restart, to follow "A restart"; its severity, None if it is harmless or unknown; and
    #: the remedy before it.
    restart: str = ""
    restart_severity: Severity | None = None
    remedy: str = ""
    #: Its sink's prepared or lost batches, oldest first.
    sink_batches: tuple[SinkBatch, ...] = ()
    #: Why its checkpoint cannot be read; "" if it can.
    error: str = ""
    #: Whether another query was begun in its folder: then it was deleted on purpose.
    replaced: bool = False
    unusable: tuple[Broken, ...] = ()
    positions: tuple[SourcePosition, ...] = ()
    #: Deleted topics of its exactly-once sink's last batches.
    missing_outputs: tuple[str, ...] = ()
    #: The 99th percentile of its batches' durations; None if too few are known.
    usual_ms: int | None = None
    stall: Stall | None = None
    #: The evidence of two writers, in words; "" without any.
    writers: str = ""
    writers_ms: int | None = None

    @property
    def subject(self) -> str:
        return f"query:{self.ident}"

    def is_abandoned(self, now_ms: int) -> bool:
        """Return whether no driver runs it, and it is idle for a week or its folder has another query."""
        moved = self.moved_ms is not None and now_ms - self.moved_ms <= ABANDONED_MS
        return self.alive is not True and (self.replaced or not moved)

    @property
    def under_way(self) -> int | None:
        """Return the planned, unfinished batch, None between batches."""
        if self.planned is None or (self.finished is not None and self.finished >= self.planned):
            return None
        return self.planned


def usual_ms(past: Iterable[BatchPast]) -> int | None:
    """Return the 99th percentile of the batches' durations, None for fewer than 20."""
    took = sorted(batch.took_ms for batch in past if batch.took_ms is not None)
    if len(took) < LEAST_BATCHES:
        return None
    return took[ceil(0.99 * len(took)) - 1]


def watermark_stall(past: Sequence[BatchPast]) -> Stall | None:
    """Return the last finished batches with input over which the watermark has not moved, oldest first.

    None without a watermark, or if the last of them has moved it.
    """
    fed = [
        batch
        for batch in past
        if batch.had_input and batch.finished_ms is not None and batch.watermark_ms is not None
    ]
    if not fed or not fed[-1].watermark_ms:
        return None
    standing = [list(group) for _, group in groupby(fed, key=lambda batch: batch.watermark_ms)]
    last = standing[-1]
    # The first batch of the group moved the watermark there, unless no batch before it is known.
    stood = last[1:] if len(standing) > 1 else last
    if not stood or stood[0].finished_ms is None or stood[0].watermark_ms is None:
        return None
    return Stall(stood[0].watermark_ms, len(stood), stood[0].finished_ms)


def interleaved_runs(past: Iterable[BatchPast]) -> tuple[str, str] | None:
    """Return a run that continued after another run had reported batches, and that other run, if any."""
    runs = [run for run, _ in groupby(batch.run_id for batch in past if batch.run_id)]
    for run, times in Counter(runs).items():
        if times > 1:
            between = runs[runs.index(run) + 1]
            return run, between
    return None


def late_generation(decisions: Iterable[tuple[int, int]]) -> tuple[int, int, int] | None:
    """Return an older generation of a sink that decided about a later batch than a newer one had.

    It takes generations and instants of decisions in the order of their batches, since two drivers have two
    clocks; it returns (older, newer, instant), None without any.
    """
    newest = 0
    for generation, at_ms in decisions:
        if generation < newest:
            return generation, newest, at_ms
        newest = generation
    return None


class MissingTopic(NamedTuple):
    """A missing topic, or missing partitions of one, that a query reads."""

    #: The topic; if it has other partitions, the missing ones.
    name: str
    #: When our polls first missed it; None if they never found it there.
    deleted_ms: int | None
    #: Records that the query had not read; None if unknown.
    unread: int | None
    #: Whether `name` lists several partitions.
    is_plural: bool = False

    def __str__(self) -> str:
        was, is_ = ("were", "are") if self.is_plural else ("was", "is")
        if self.deleted_ms is None:
            return f"{self.name} {is_} not in the cluster's list of topics: deleted, or no right to DESCRIBE"
        if self.unread is None:
            return f"{self.name} {was} deleted, and how many records were unread is not known"
        if not self.unread:
            return f"{self.name} {was} deleted; all of it was read"
        return f"{self.name} {was} deleted with {count_noun(self.unread, 'unread record')}"


def missing_topics(positions: Iterable[SourcePosition]) -> Sequence[MissingTopic]:
    """Return the missing sources of a query: deleted topics first, then those that never existed."""
    absent = sorted(position for position in positions if position.absence is not None)
    missing = [
        _missing(topic, list(group)) for topic, group in groupby(absent, key=lambda position: position.topic)
    ]
    return sorted(missing, key=lambda topic: topic.deleted_ms is None)


def missing_clauses(missing: Sequence[MissingTopic], outputs: Sequence[str]) -> str:
    """Return the missing sources and the missing sink topic in words; "" without any."""
    clauses = [*map(str, missing), *(f"its output topic {name} was deleted" for name in outputs)]
    more = len(clauses) - _MOST_CLAUSES
    return "; ".join([*clauses[:_MOST_CLAUSES], *([f"{more} more"] if more > 0 else [])])


def _missing(topic: str, positions: Sequence[SourcePosition]) -> MissingTopic:
    absences = [position.absence for position in positions if position.absence is not None]
    known = [absence.deleted_ms for absence in absences if absence.deleted_ms is not None]
    unread = [position.unread for position in positions]
    is_partial = any(absence.topic_exists for absence in absences)
    return MissingTopic(
        list_names([str(position) for position in positions]) if is_partial else topic,
        min(known, default=None),
        None if None in unread else sum(number for number in unread if number is not None),
        is_partial and len(positions) > 1,
    )
