"""What incidents need of a finding, and the events of an incident's history."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol


class FindingKey(NamedTuple):
    """A finding of one cluster, over all the rows that it has had: at most one of a key is open."""

    rule: str
    subject: str


class IncidentCause(NamedTuple):
    """What an effect follows from: an incident by its number, and the finding that is its cause."""

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
    def affected(self) -> Sequence[str]: ...
    @property
    def since_ms(self) -> int | None: ...
    @property
    def deadline_ms(self) -> int | None: ...
    @property
    def instance(self) -> str: ...


class IncidentEventKind(StrEnum):
    """What happened to an incident; the history of each is a list of these."""

    OPENED = "opened"
    REOPENED = "reopened"
    ESCALATED = "escalated"
    CAUSE_CHANGED = "cause_changed"
    EFFECT_ADDED = "effect_added"
    EFFECT_REMOVED = "effect_removed"
    ACKNOWLEDGED = "acknowledged"
    #: What was acknowledged got worse: the acknowledgement does not cover that.
    UNACKNOWLEDGED = "unacknowledged"
    NOTE = "note"
    CLOSED = "closed"


def key_of(finding: OpenFinding) -> FindingKey:
    """Return the key of a finding."""
    return FindingKey(finding.rule, finding.subject)


def is_same_instance(one: str, other: str) -> bool:
    """Whether two findings of one subject may be about one transaction, batch or start; "" is unknown."""
    return one == other or not one or not other
