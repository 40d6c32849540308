"""A transaction's way from its id to its end (KIP-98), with the evidence for each step. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dashboard.models import Transaction
from fenceline.coordinator import java_hash
from fenceline.decode import text
from fenceline.facts import OPEN_STATES, TWO_PHASE_COMMIT_TIMEOUT_MS, State, TopicPartitions
from fenceline.words import count, duration

#: Partitions of this topic in a transaction are consumer positions: read, process, write.
OFFSETS = "__consumer_offsets"
_PREPARED = {State.PREPARE_COMMIT: "commit", State.PREPARE_ABORT: "abort"}
_COMPLETE = {State.COMPLETE_COMMIT: "committed", State.COMPLETE_ABORT: "aborted"}


@dataclass(frozen=True, slots=True)
class Step:
    """One step: done at `at_ms`, waiting since `since_ms`, or still ahead."""

    state: str
    words: str
    evidence: str = ""
    at_ms: int | None = None
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Deadline:
    """When the coordinator ends an open transaction by itself."""

    at_ms: int
    passed: bool
    never: bool


def deadline(row: Transaction, now_ms: int) -> Deadline | None:
    """Return when an Ongoing transaction times out, None for one that cannot."""
    if row.state != State.ONGOING or row.started_ms is None:
        return None
    at_ms = row.started_ms + row.timeout_ms
    return Deadline(at_ms, at_ms < now_ms, row.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS)


def steps(row: Transaction, partitions: Sequence[TopicPartitions], log_partitions: int) -> Sequence[Step]:
    """Return the way as far as the newest record tells it; `log_partitions` 0 means not known."""
    found = Step("done", "Coordinator found by the id", _place(row, log_partitions))
    producer = Step("done", f"Producer id {row.producer_id}, epoch {row.producer_epoch}", _session(row))
    return [found, producer, *_begun(row, partitions), *_ended(row)]


def _place(row: Transaction, log_partitions: int) -> str:
    where = f"__transaction_state-{row.log_partition}, offset {row.log_offset:,}"
    if not log_partitions:
        return where
    hashed = abs(java_hash(text.unescape(row.transactional_id)))
    return f"hash {hashed:,} mod {log_partitions} → {where}"


def _session(row: Transaction) -> str:
    if row.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS:
        return "two-phase commit: its transactions never time out"
    return f"each of its transactions may be open for {duration(row.timeout_ms)}"


def _begun(row: Transaction, partitions: Sequence[TopicPartitions]) -> Iterator[Step]:
    if row.state == State.EMPTY:
        yield Step(
            "waiting",
            "Waiting for the first record",
            "initialised, nothing sent yet",
            since_ms=row.updated_ms,
        )
        yield Step("ahead", "Partitions added")
        return
    yield Step("done", "Begun", at_ms=row.started_ms)
    data = [part for part in partitions if part.topic != OFFSETS]
    if data:
        number = sum(len(part.partitions) for part in data)
        yield Step("done", f"{count(number, 'partition')} added", _topics(data))
    if len(data) < len(partitions):
        yield Step("done", "Offsets added", "a read-process-write transaction")
    if not partitions and row.state in OPEN_STATES:
        yield Step("ahead", "Partitions added")


def _topics(data: Sequence[TopicPartitions]) -> str:
    shown = ", ".join(part.topic for part in data[:4])
    return shown if len(data) <= 4 else f"{shown} and {len(data) - 4:,} more topics"


def _ended(row: Transaction) -> Iterator[Step]:
    state = State(row.state)
    if state in _COMPLETE:
        yield Step(
            "done", f"Ended: {_COMPLETE[state]}", "the newest record holds the end, not when it was asked for"
        )
        yield Step("done", "Markers written, complete", at_ms=row.updated_ms)
    elif state in _PREPARED:
        yield Step(
            "done",
            f"Decided: {_PREPARED[state]}",
            "only the coordinator can finish it now",
            at_ms=row.updated_ms,
        )
        yield Step("waiting", "Markers being written to its partitions", since_ms=row.updated_ms)
        yield Step("ahead", "Complete")
    else:
        if state is State.ONGOING:
            yield Step("waiting", "Waiting for the producer to end it", since_ms=row.started_ms)
        yield Step("ahead", "End transaction")
        yield Step("ahead", "Markers written")
        yield Step("ahead", "Complete")
