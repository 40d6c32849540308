"""The fields of findings for incidents, and the events of an incident's history."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol


class FindingKey(NamedTuple):
    """A finding of one cluster across all of its rows: at most one row of a key is open."""

    rule: str
    subject: str


class IncidentCause(NamedTuple):
    """The cause of an effect: the number of its incident, and the finding that is the cause."""

    incident: int
    finding: FindingKey


class OpenFinding(Protocol):
    """An open finding: `facts.Finding`, or its row."""

    @property
    def rule(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def severity(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def evidence(self) -> str: ...
    @property
    def next_step(self) -> str: ...
    @property
    def affected(self) -> Sequence[str]: ...
    @property
    def since_ms(self) -> int | None: ...
    @property
    def deadline_ms(self) -> int | None: ...
    @property
    def instance(self) -> str: ...


class IncidentEventKind(StrEnum):
    """An event in the history of an incident."""

    OPENED = "opened"
    REOPENED = "reopened"
    ESCALATED = "escalated"
    CAUSE_CHANGED = "cause_changed"
    EFFECT_ADDED = "effect_added"
    EFFECT_REMOVED = "effect_removed"
    ACKNOWLEDGED = "acknowledged"
    #: An acknowledged incident got worse: the acknowledgement no longer applies.
    UNACKNOWLEDGED = "unacknowledged"
    NOTE = "note"
    CLOSED = "closed"


def key_of(finding: OpenFinding) -> FindingKey:
    return FindingKey(finding.rule, finding.subject)


def is_same_instance(one: str, other: str) -> bool:
    """Whether two findings of one subject may be about one transaction, batch or start; "" is unknown."""
    return one == other or not one or not other
