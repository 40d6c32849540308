"""What came of an act on each subject, and of the whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from dashboard.models import Action
from dashboard.transactions.attributions import WrittenRecord


class SubjectOutcome(StrEnum):
    """What came of it for one subject."""

    DONE = "done"
    #: It was not as it was seen: nothing was asked.
    STALE = "stale"
    #: The cluster refused, or was away: nothing was done.
    FAILED = "failed"
    #: It may have been done; nobody could see.
    UNKNOWN = "unknown"
    #: It was never come to.
    SKIPPED = "skipped"


class RequestResult(NamedTuple):
    """What one request came to, by the broker's own word."""

    #: A transactional id, a partition or a file.
    where: str
    #: Kafka's error code, 0 where there is none; None where nobody answered, or nobody was asked.
    code: int | None
    words: str


@dataclass(frozen=True, slots=True)
class Result:
    """What came of it for one subject, as a sentence and by its parts."""

    fate: SubjectOutcome
    words: str
    parts: tuple[RequestResult, ...] = ()
    #: What it is joined with the transitions by (`fenceline.kafka.attributions`).
    records: tuple[WrittenRecord, ...] = ()

    def as_json(self, subject: str, started_ms: int | None, ended_ms: int | None) -> dict[str, Any]:
        """Return it as it is kept in `Action.results`."""
        return {
            "subject": subject,
            "outcome": self.fate.value,
            "words": self.words,
            "parts": [each._asdict() for each in self.parts],
            "records": [each._asdict() for each in self.records],
            "started_ms": started_ms,
            "ended_ms": ended_ms,
        }


def stale_result(words: str) -> Result:
    """Return that it is not as it was seen."""
    return Result(SubjectOutcome.STALE, f"plan is stale: {words}; nothing was asked for it")


def failed_result(words: str, *parts: RequestResult) -> Result:
    """Return that nothing was done."""
    return Result(SubjectOutcome.FAILED, words, parts)


def action_state(results: Iterable[Mapping[str, Any]]) -> Action.State:
    """Return the state of an action by the results of its subjects; what was never to be done counts not."""
    fates = {each["outcome"] for each in results} - {SubjectOutcome.SKIPPED}
    if fates == {SubjectOutcome.DONE}:
        return Action.State.DONE
    if SubjectOutcome.DONE in fates:
        return Action.State.PARTLY
    if SubjectOutcome.UNKNOWN in fates:
        return Action.State.UNKNOWN
    return Action.State.STALE if fates == {SubjectOutcome.STALE} else Action.State.FAILED
