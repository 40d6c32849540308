"""A plan: what would be done to each subject, with what effects, or why not.

The same plan is shown as a preview, confirmed by typing its `confirm`, kept in the audit row and handed to
`execute`, which checks again and skips every subject that is not as it was `seen` (docs/acting.md).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from fenceline.decode.typed import read_json

#: How long a plan may be executed.
LIVES_MS = 300_000
#: How many subjects one plan has at most.
MOST_SUBJECTS = 50

#: What re-verification compares and what the request needs: JSON scalars and lists of them, by name.
Seen = Mapping[str, Any]


class Act(StrEnum):
    """What can be done (docs/acting.md)."""

    #: InitProducerId on an id that its coordinator has open: aborts what is open, fences its producer.
    FENCE = "fence"
    #: WriteTxnMarkers(ABORT) for a transaction in a partition that no coordinator owns.
    ABORT_MARKER = "abort_marker"
    #: EndTxn(commit) for what is left of a prepared batch of our sink.
    FINISH_BATCH = "finish_batch"
    #: The decision "aborted", then EndTxn(abort), for a batch of our sink that is not prepared.
    ROLL_BACK_BATCH = "roll_back_batch"
    #: EndTxn(commit) for a transaction that a Flink checkpoint decided to commit.
    COMMIT_FLINK = "commit_flink"


class RefusalReason(StrEnum):
    """Why an action is refused, as one word for the API; `Refusal.words` is the sentence for a person."""

    UNKNOWN_ID = "unknown_id"
    NOT_SEEN = "not_seen"
    FORBIDDEN = "forbidden"
    NOTHING_OPEN = "nothing_open"
    PREPARE = "prepare"
    HEALTHY = "healthy"
    #: In older plans only: the shape of an id refuses nothing any more.
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
    """A reason not to do it."""

    ground: RefusalReason
    #: What is so, and what to do instead, as a sentence.
    words: str
    #: Whether an admin may do it all the same, with a reason.
    forceable: bool = False


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One request that will be sent, or one file that will be created, in order."""

    #: Kafka's word (InitProducerId, WriteTxnMarkers, EndTxn), or "ledger".
    request: str
    #: Its receiver and its parameters, as a sentence.
    words: str


class HeldOffsets(NamedTuple):
    """A partition whose LSO moves; None where the offsets were not seen."""

    topic: str
    partition: int
    lso: int | None
    high_watermark: int | None
    #: What its LSO reaches at least; plans that are kept from before have no bound.
    lso_at_least: int | None = None


class Bound(StrEnum):
    """What an amount is, where producers may go on writing until the plan is carried out."""

    EXACT = ""
    AT_LEAST = "at_least"
    AT_MOST = "at_most"


@dataclass(frozen=True, slots=True)
class Effect:
    """One change that the action causes."""

    #: records_released, offsets_released, groups_released, queries_released, records_lost, records_committed,
    #: producer_fenced …
    name: str
    #: None where it has no number.
    amount: int | None
    #: As a sentence; contains "at least" or "at most" where the amount is a bound.
    words: str
    bound: Bound = Bound.EXACT


@dataclass(frozen=True, slots=True)
class SubjectPlan:
    """What would be done to one subject."""

    #: `transaction:ID`, `partition:TOPIC-N` or `query:IDENT`, names as escaped text.
    subject: str
    #: For a heading: "payments-7", "payments-0 at offset 1,204", "orders_enrich, batch 41".
    title: str
    seen: Seen
    steps: tuple[PlanStep, ...] = ()
    effects: tuple[Effect, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    #: Partitions whose LSO it blocks, as far as they could be seen.
    held: tuple[HeldOffsets, ...] = ()
    #: Groups and queries that wait behind it, by name.
    waiting: tuple[str, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Whether a refusal remains that was not overridden."""
        return bool(self.refusals)


@dataclass(frozen=True, slots=True)
class Plan:
    """One act on some subjects of one cluster."""

    act: Act
    cluster: str
    made_ms: int
    #: What is to be typed: a transactional id, `topic-partition`, a batch, or cluster and count.
    confirm: str
    subjects: tuple[SubjectPlan, ...]
    #: An admin asked for it although it is refused; the forced refusals are in `overridden`.
    forced: bool = False
    overridden: tuple[Refusal, ...] = ()
    #: What holds for all of it, as sentences: "It fences a producer that may still be running: …".
    warnings: tuple[str, ...] = ()

    @property
    def expires_ms(self) -> int:
        """Until when it may be executed."""
        return self.made_ms + LIVES_MS

    @property
    def doable_subjects(self) -> tuple[SubjectPlan, ...]:
        """Return the subjects that are not refused."""
        return tuple(subject for subject in self.subjects if not subject.is_refused)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values, for the audit row and the API."""
        document: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return document

    @property
    def digest(self) -> str:
        """SHA-256 of its JSON, in hexadecimal: who executes it names what was previewed."""
        text = json.dumps(self.as_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()


def from_json(document: Mapping[str, Any]) -> Plan:
    """Return the plan that `as_json` made; raises KeyError, TypeError or ValueError for anything else."""
    return read_json(Plan, document)
