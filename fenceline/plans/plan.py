"""A plan: for each subject the requests with their effects, or the refusals.

The same plan is shown as a preview, confirmed by typing its `confirm`, stored in the audit row and passed to
`execute`, which checks again and skips every subject that differs from `seen` (docs/acting.md).
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from fenceline.decode.typed import read_json

#: How long a plan may be executed.
LIVES_MS = 300_000
#: Maximum subjects of one plan.
MOST_SUBJECTS = 50

#: The state that re-verification compares, and the request's parameters: JSON scalars and lists of them, by
#: name.
Seen = Mapping[str, Any]


class Act(StrEnum):
    """The actions (docs/acting.md)."""

    #: InitProducerId on an id with an open transaction: aborts the transaction, fences its producer.
    FENCE = "fence"
    #: WriteTxnMarkers(ABORT) for a transaction in a partition without a coordinator.
    ABORT_MARKER = "abort_marker"
    #: EndTxn(commit) for the open transactions of a prepared batch of our sink.
    FINISH_BATCH = "finish_batch"
    #: The decision "aborted", then EndTxn(abort), for an unprepared batch of our sink.
    ROLL_BACK_BATCH = "roll_back_batch"
    #: EndTxn(commit) for a transaction that a Flink checkpoint decided to commit.
    COMMIT_FLINK = "commit_flink"


class RefusalReason(StrEnum):
    """The reason of a refusal, as one word for the API; `Refusal.words` is the sentence for a person."""

    UNKNOWN_ID = "unknown_id"
    NOT_SEEN = "not_seen"
    FORBIDDEN = "forbidden"
    NOTHING_OPEN = "nothing_open"
    PREPARE = "prepare"
    HEALTHY = "healthy"
    #: Only in older plans: the shape of an id refuses nothing any more.
    FOREIGN_COMMIT = "foreign_commit"
    TWO_PHASE = "two_phase"
    OWN_SINK = "own_sink"
    NOT_HANGING = "not_hanging"
    IDS_HIDDEN = "ids_hidden"
    NOT_PREPARED = "not_prepared"
    PREPARED = "prepared"
    DRIVER_LIVES = "driver_lives"
    ALREADY_ENDED = "already_ended"
    LEDGER_UNREADABLE = "ledger_unreadable"
    CHECKPOINTED = "checkpointed"
    NOT_CHECKPOINTED = "not_checkpointed"
    CHECKPOINT_UNREADABLE = "checkpoint_unreadable"
    BEGAN_LATER = "began_later"
    SAVEPOINT = "savepoint"
    NEWER_JOB = "newer_job"
    READ_ONLY = "read_only"


@dataclass(frozen=True, slots=True)
class Refusal:
    ground: RefusalReason
    #: The fact, and the alternative, as a sentence.
    words: str
    #: Whether an admin may override it, with a reason.
    forceable: bool = False


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One request to send, or one file to create, in order."""

    #: Kafka's name (InitProducerId, WriteTxnMarkers, EndTxn), or "ledger".
    request: str
    #: Its receiver and its parameters, as a sentence.
    words: str


class HeldOffsets(NamedTuple):
    """A partition whose LSO moves; None if the offsets were not read."""

    topic: str
    partition: int
    lso: int | None
    high_watermark: int | None
    #: The least new LSO; older stored plans have none.
    lso_at_least: int | None = None


class Bound(StrEnum):
    """The kind of an amount, as producers may continue to write until the execution."""

    EXACT = ""
    AT_LEAST = "at_least"
    AT_MOST = "at_most"


@dataclass(frozen=True, slots=True)
class Effect:
    #: records_released, offsets_released, groups_released, queries_released, records_lost, records_committed,
    #: producer_fenced …
    name: str
    #: None without a number.
    amount: int | None
    #: As a sentence; with "at least" or "at most" if the amount is a bound.
    words: str
    bound: Bound = Bound.EXACT


@dataclass(frozen=True, slots=True)
class SubjectPlan:
    #: `transaction:ID`, `partition:TOPIC-N` or `query:IDENT`, names as escaped text.
    subject: str
    #: A heading: "payments-7", "payments-0 at offset 1,204", "orders_enrich, batch 41".
    title: str
    seen: Seen
    steps: tuple[PlanStep, ...] = ()
    effects: tuple[Effect, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    #: Partitions whose LSO it blocks, as far as they could be read.
    held: tuple[HeldOffsets, ...] = ()
    #: Groups and queries that wait for it, by name.
    waiting: tuple[str, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Whether a refusal remains that was not overridden."""
        return bool(self.refusals)


@dataclass(frozen=True, slots=True)
class Plan:
    """One action on subjects of one cluster."""

    act: Act
    cluster: str
    made_ms: int
    #: The text to type: a transactional id, `topic-partition`, a batch, or cluster and count.
    confirm: str
    subjects: tuple[SubjectPlan, ...]
    #: An admin requested it despite refusals; the overridden ones are in `overridden`.
    forced: bool = False
    overridden: tuple[Refusal, ...] = ()
    #: Facts about the whole plan, as sentences: "It fences a producer that may still be running: …".
    warnings: tuple[str, ...] = ()

    @property
    def expires_ms(self) -> int:
        """The end of the time in which it may be executed."""
        return self.made_ms + LIVES_MS

    @property
    def doable_subjects(self) -> tuple[SubjectPlan, ...]:
        return tuple(subject for subject in self.subjects if not subject.is_refused)

    def as_json(self) -> dict[str, Any]:
        """Convert the plan to JSON values, for the audit row and the API."""
        document: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return document

    @property
    def digest(self) -> str:
        """SHA-256 of its JSON, in hexadecimal: the executing request names the previewed plan by it."""
        text = json.dumps(self.as_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()


def from_json(document: Mapping[str, Any]) -> Plan:
    """Return the plan from `as_json`'s result; raises KeyError, TypeError or ValueError for any other
    value.
    """
    return read_json(Plan, document)
