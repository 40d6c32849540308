"""Streaming queries as the rules see them: plain values of one moment, by our own clock where it is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil
from typing import NamedTuple

from fenceline.facts import Severity
from fenceline.spark.drivers import Driver
from fenceline.spark.records import Damage, QueryState

#: A query that nothing has moved for so long is abandoned: what it has not read is no loss any more.
ABANDONED_MS = 7 * 86_400_000
#: Fewer batches than these do not show how long one takes as a rule.
LEAST_BATCHES = 20


class Absence(NamedTuple):
    """A partition that does not exist."""

    #: When our polls found it gone; None where they never found it there.
    deleted_ms: int | None
    #: The offsets that its log had last; None where they are not known.
    log_start: int | None = None
    end: int | None = None
    #: Whether its topic has other partitions.
    topic_exists: bool = False


class SourcePosition(NamedTuple):
    """The position of a query in one partition, and the partition's offsets."""

    topic: str
    partition: int
    #: The next offset to read: what the last finished batch has read up to.
    position: int
    #: Since when it is there: when that batch was finished.
    stands_ms: int | None
    #: None where the partition was not seen.
    log_start: int | None = None
    high_watermark: int | None = None
    #: How many records a second the log start takes away; None where that is not known yet.
    pace: float | None = None
    #: None where the partition exists, or where that was not seen.
    absence: Absence | None = None

    @property
    def unread(self) -> int | None:
        """Return how many records of a partition that is gone were unread; None where that is not known."""
        if self.absence is None or self.absence.end is None:
            return None
        return max(0, self.absence.end - max(self.position, self.absence.log_start or 0))

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class SinkBatch(NamedTuple):
    """A batch that its exactly-once sink has decided to commit, and that is not committed to the end."""

    batch_id: int
    decided_ms: int
    #: When the first of its transactions times out, by its coordinator's clock; None without any.
    expires_ms: int | None
    records: int
    #: Its transactional ids, by what became of them at their coordinators.
    open: tuple[str, ...] = ()
    committed: tuple[str, ...] = ()
    aborted: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    #: What it has read: `source: from … to …`.
    input: str = ""
    #: Whether the ledger records the loss: somebody acknowledged it.
    recorded: bool = False
    #: For how long our own polls have found it open; None where they have not, then its decision counts.
    open_for_ms: int | None = None
    #: Records of the transactions that are not known to be committed; None where all of `records` are.
    uncommitted_records: int | None = None

    @property
    def instance(self) -> str:
        """Return what findings about it name as their instance."""
        return f"batch {self.batch_id}"

    def waited_ms(self, now_ms: int) -> int:
        """Return for how long it has been decided and not committed."""
        return now_ms - self.decided_ms if self.open_for_ms is None else self.open_for_ms

    @property
    def records_at_risk(self) -> int:
        """Return how many records are lost unless it is committed, or are lost already."""
        return self.records if self.uncommitted_records is None else self.uncommitted_records

    @property
    def uncommitted_ids(self) -> tuple[str, ...]:
        """Return every id that is not known to be committed."""
        return (*self.aborted, *self.open, *self.unknown)


class UnusableFile(NamedTuple):
    """A file of a checkpoint that cannot be used."""

    path: str
    damage: Damage
    detail: str


class Stall(NamedTuple):
    """A watermark that has not moved."""

    watermark_ms: int
    #: The number of finished batches with input, and the start of the first.
    batches: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class BatchPast:
    """One batch of a query's past, as far as it is known."""

    batch_id: int
    run_id: str
    finished_ms: int | None
    #: From its trigger to its end.
    took_ms: int | None
    had_input: bool
    #: The watermark after it; None where there is none.
    watermark_ms: int | None


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """One streaming query at one moment."""

    ident: str
    name: str
    query_id: str = ""
    checkpoint: str = ""
    state: QueryState = QueryState.UNHEARD
    #: Whether a driver runs it; None where that is unknown.
    alive: bool | None = None
    #: What is known of its driver, where more than `alive` is.
    driver: Driver | None = None
    #: The last heartbeat, plan, or poll that found a newer batch; None where there was none.
    moved_ms: int | None = None
    ended_ms: int | None = None
    exception: str = ""
    planned: int | None = None
    finished: int | None = None
    #: When `offsets/planned` was written.
    planned_ms: int | None = None
    #: What a restart would do, to follow "A restart"; how bad that is, None where it is harmless or not
    #: known; and what to do before it.
    restart: str = ""
    restart_severity: Severity | None = None
    remedy: str = ""
    #: Batches of its sink that are prepared or lost, oldest first.
    sink_batches: tuple[SinkBatch, ...] = ()
    #: Why its checkpoint cannot be read; "" where it can.
    error: str = ""
    #: Whether another query was begun in its folder: that was deleted on purpose.
    replaced: bool = False
    unusable: tuple[UnusableFile, ...] = ()
    positions: tuple[SourcePosition, ...] = ()
    #: Topics that its exactly-once sink wrote to last, and that were deleted.
    missing_outputs: tuple[str, ...] = ()
    #: How long 99 of 100 of its batches take; None where too few are known.
    usual_ms: int | None = None
    stall: Stall | None = None
    #: The evidence of two writers, in words; "" where nothing does.
    writers: str = ""
    writers_ms: int | None = None

    @property
    def subject(self) -> str:
        """Return what findings call it."""
        return f"query:{self.ident}"

    def is_abandoned(self, now_ms: int) -> bool:
        """Whether no driver runs it, and nothing has moved it for a week or its folder has another query."""
        moved = self.moved_ms is not None and now_ms - self.moved_ms <= ABANDONED_MS
        return self.alive is not True and (self.replaced or not moved)

    @property
    def under_way(self) -> int | None:
        """Return the batch that is planned and not finished, None between batches."""
        if self.planned is None or (self.finished is not None and self.finished >= self.planned):
            return None
        return self.planned


def usual_ms(past: Iterable[BatchPast]) -> int | None:
    """Return how long 99 of 100 batches take, None of fewer than 20."""
    took = sorted(batch.took_ms for batch in past if batch.took_ms is not None)
    if len(took) < LEAST_BATCHES:
        return None
    return took[ceil(0.99 * len(took)) - 1]


def watermark_stall(past: Sequence[BatchPast]) -> Stall | None:
    """Return over how many of the last finished batches with input the watermark has not moved, oldest first.

    None where there is no watermark, or where the last of them has moved it.
    """
    fed = [
        batch
        for batch in past
        if batch.had_input and batch.finished_ms is not None and batch.watermark_ms is not None
    ]
    if not fed or not fed[-1].watermark_ms:
        return None
    standing = [
        each for _, group in groupby(fed, key=lambda each: each.watermark_ms) for each in [list(group)]
    ]
    last = standing[-1]
    # The first of them has moved it there, unless nothing before it is known.
    stood = last[1:] if len(standing) > 1 else last
    if not stood or stood[0].finished_ms is None or stood[0].watermark_ms is None:
        return None
    return Stall(stood[0].watermark_ms, len(stood), stood[0].finished_ms)


def interleaved_runs(past: Iterable[BatchPast]) -> tuple[str, str] | None:
    """Return two runs of which the first continued after the second had reported batches, if any."""
    runs = [run for run, _ in groupby(batch.run_id for batch in past if batch.run_id)]
    for run, times in Counter(runs).items():
        if times > 1:
            between = runs[runs.index(run) + 1]
            return run, between
    return None


def late_generation(decisions: Iterable[tuple[int, int]]) -> tuple[int, int, int] | None:
    """Return an older generation of a sink that has decided about a later batch than a newer one had.

    Takes generations and instants of decisions in the order of their batches, since two drivers have two
    clocks; answers (older, newer, instant), None without any.
    """
    newest = 0
    for generation, at_ms in decisions:
        if generation < newest:
            return generation, newest, at_ms
        newest = generation
    return None
