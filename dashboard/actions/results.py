"""Results of an action for each subject, and the state of the whole action."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from dashboard.models import Action
from dashboard.transactions.attributions import WrittenRecord


class SubjectOutcome(StrEnum):
    DONE = "done"
    #: The subject had changed since the plan, so no request was sent.
    STALE = "stale"
    #: The cluster refused or was unreachable, so nothing was done.
    FAILED = "failed"
    #: The action may have been done; its outcome could not be read.
    UNKNOWN = "unknown"
    #: The subject was not attempted.
    SKIPPED = "skipped"


class RequestResult(NamedTuple):
    """The result of one request, in the broker's words."""

    #: A transactional id, a partition or a file.
    where: str
    #: Kafka's error code, 0 for success; None without a request or an answer.
    code: int | None
    words: str


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome for one subject, as a sentence and by request."""

    fate: SubjectOutcome
    words: str
    parts: tuple[RequestResult, ...] = ()
    #: Records that join it with transitions (`fenceline.kafka.attributions`).
    records: tuple[WrittenRecord, ...] = ()

    def as_json(self, subject: str, started_ms: int | None, ended_ms: int | None) -> dict[str, Any]:
        """Return the result in the form of `Action.results`."""
        return {
            "subject": subject,
            "outcome": self.fate.value,
            "words": self.words,
            "parts": [part._asdict() for part in self.parts],
            "records": [record._asdict() for record in self.records],
            "started_ms": started_ms,
            "ended_ms": ended_ms,
        }


def stale_result(words: str) -> Result:
    """Return the result of a subject that changed since the plan."""
    return Result(SubjectOutcome.STALE, f"the plan is outdated: {words}; nothing was asked for it")


def failed_result(words: str, *parts: RequestResult) -> Result:
    """Return the result of a subject for which nothing was done."""
    return Result(SubjectOutcome.FAILED, words, parts)


def action_state(results: Iterable[Mapping[str, Any]]) -> Action.State:
    """Return the state of an action from the results of its subjects; skipped ones do not count."""
    fates = {result["outcome"] for result in results} - {SubjectOutcome.SKIPPED}
    if fates == {SubjectOutcome.DONE}:
        return Action.State.DONE
    if SubjectOutcome.DONE in fates:
        return Action.State.PARTLY
    if SubjectOutcome.UNKNOWN in fates:
        return Action.State.UNKNOWN
    return Action.State.STALE if fates == {SubjectOutcome.STALE} else Action.State.FAILED
