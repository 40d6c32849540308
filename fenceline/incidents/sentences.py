"""Titles and explanations of incidents, in sentences for pages and files. Pure.

A title states the cause as a fact, never a limit: who blocks or loses what, since when. Names are readable;
partitions, groups and queries are those of the incident, not of others that share an effect.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from fenceline.formatting import count_noun, format_duration, is_are, list_names, upper_first
from fenceline.spark.drivers import Driver, DriverStatus
from fenceline.text import Age, Instant, Sentence, plain_text

_OPEN = ("open_too_long", "coordinator_overdue")
_OF_BATCHES = ("batch_prepared", "query_failed")
#: Rules, beside those of batches, whose subjects lose records at their deadline.
_LOSING = ("data_loss_risk", "flink_commit_pending")
#: Maximum names in a sentence; for more it gives their number.
_NAMED = 2


class DeadlineKind(StrEnum):
    """The consequence of an incident's deadline without an action."""

    LOSS = "loss"
    #: A coordinator aborts the open transaction: blocked readers continue.
    ENDS = "ends"


class StuckBatches(NamedTuple):
    """A query's prepared, uncommitted batches of its sink."""

    numbers: Sequence[int]
    #: Rows in uncommitted transactions.
    rows: int
    driver: Driver
    #: Whether the driver that prepared them has stopped.
    is_orphaned: bool

    def __str__(self) -> str:
        return list_names([f"batch {number:,}" for number in self.numbers])

    @property
    def verb(self) -> str:
        return is_are(len(self.numbers))


@dataclass(frozen=True, slots=True)
class IncidentFacts:
    """The facts for sentences about one incident: its last cause, and the affected subjects."""

    rule: str
    #: The readable name of the cause's subject.
    name: str
    #: The words of the cause's finding.
    summary: str
    evidence: str
    since_ms: int
    partitions: Sequence[str] = ()
    groups: Sequence[str] = ()
    #: Blocked streaming queries by name, except a query that is the cause.
    queries: Sequence[str] = ()
    #: Maximum records before which readers are blocked; None if unknown.
    backlog: int | None = None
    deadline_ms: int | None = None
    #: For an open transaction: the 99th percentile of its application's commits, and its producer's last
    #: write.
    usual_ms: int | None = None
    silent_since_ms: int | None = None
    batches: StuckBatches | None = None
    #: The end of the cause while effects are left, and the words of the worst effect.
    cause_over_ms: int | None = None
    left_summary: str = ""

    @property
    def deadline_kind(self) -> DeadlineKind | None:
        """Return the consequence of the deadline; None without one."""
        if self.deadline_ms is None:
            return None
        is_loss = (bool(self.batches) and self.cause_over_ms is None) or self.rule in _LOSING
        return DeadlineKind.LOSS if is_loss else DeadlineKind.ENDS

    @property
    def readers(self) -> str:
        """Return the blocked readers by name or number; "" without a known one."""
        names = [*self.groups, *self.queries]
        if len(names) <= _NAMED:
            return list_names(names)
        numbers = [(len(self.groups), "group"), (len(self.queries), "query")]
        return list_names([count_noun(number, noun) for number, noun in numbers if number])


def incident_title(facts: IncidentFacts) -> Sentence:
    """Return the title of an open incident: its cause in words, without a full stop."""
    if facts.cause_over_ms is not None:
        return (facts.left_summary.rstrip("."),)
    if facts.rule in _OF_BATCHES and facts.batches:
        return _batch_title(facts, facts.batches)
    if facts.rule == "open_too_long":
        return _open_title(facts)
    if facts.rule == "coordinator_overdue":
        return (f"{_blocks(facts)} for ", Age(facts.since_ms), ": its coordinator has not aborted it")
    if facts.rule == "hanging":
        whose = " by a transaction that no coordinator owns"
        return (f"{facts.name} has been blocked for ", Age(facts.since_ms), whose)
    if facts.rule == "lso_pinned":
        return (f"The last stable offset of {facts.name} has not moved for ", Age(facts.since_ms))
    if facts.rule in ("group_stalled", "query_blocked") and facts.partitions:
        return (f"{facts.name} has been blocked at {list_names(facts.partitions)} for ", Age(facts.since_ms))
    return (facts.summary.rstrip("."),)


def closed_headline(facts: IncidentFacts, outcome: str, *, lasted_ms: int) -> str:
    """Return a closed incident's cause, the duration since its damage began, and its outcome."""
    lasted = format_duration(lasted_ms // 1_000 * 1_000)
    return f"{_closed_title(facts, lasted)}. {outcome}".rstrip()


def _closed_title(facts: IncidentFacts, lasted: str) -> str:
    if facts.rule in _OF_BATCHES and facts.batches:
        if facts.batches.is_orphaned:
            return f"{plain_text(_batch_title(facts, facts.batches), now_ms=0)}, for {lasted}"
        were = "was" if len(facts.batches.numbers) == 1 else "were"
        what = f"{upper_first(str(facts.batches))} of {facts.name}"
        return f"{what} {were} prepared but not committed for {lasted}"
    if facts.rule in _OPEN:
        did = f"blocked {list_names(facts.partitions)}" if facts.partitions else "was open"
        return f"{facts.name} {did} for {lasted}"
    if facts.rule == "hanging":
        return f"{facts.name} was blocked for {lasted} by a transaction that no coordinator owned"
    if facts.rule == "lso_pinned":
        return f"The last stable offset of {facts.name} did not move for {lasted}"
    if facts.rule in ("group_stalled", "query_blocked") and facts.partitions:
        return f"{facts.name} was blocked at {list_names(facts.partitions)} for {lasted}"
    return f"{facts.summary.rstrip('.')}. It lasted {lasted}"


def incident_explanation(facts: IncidentFacts, *, now_ms: int) -> Sentence:
    """Return the effects of the cause and its end, in one to three sentences."""
    if facts.cause_over_ms is not None:
        return ("The cause ended at ", Instant(facts.cause_over_ms), _stop(f": {facts.summary}"))
    if facts.batches:
        return _batch_explanation(facts, facts.batches, now_ms)
    if facts.rule == "open_too_long":
        return (*_silence(facts), *_end(facts, now_ms), _blocked(facts))
    if facts.rule == "hanging":
        return (f"It does not end by itself. {_blocked(facts)}",)
    if facts.rule in ("coordinator_overdue", "stuck_in_prepare", "lso_pinned"):
        return (f"{_stop(facts.evidence)} {_blocked(facts)}",)
    return (_stop(facts.evidence),)


def incident_consequence(facts: IncidentFacts, *, now_ms: int) -> Sentence:
    """Return the consequence without an action, as a sentence; empty if unknown."""
    if facts.cause_over_ms is not None:
        return ("Its cause is over; effects are left.",)
    if facts.batches:
        return _batch_consequence(facts, facts.batches, now_ms)
    if facts.rule == "hanging":
        return ("It does not end by itself.",)
    if facts.rule in _OPEN and facts.deadline_ms is not None and facts.deadline_ms > now_ms:
        return ("Its coordinator aborts it at ", Instant(facts.deadline_ms), ".")
    return ()


def worst_fact(facts: IncidentFacts, *, now_ms: int) -> Sentence:
    """Return the first page's sentence: the worst loss or wait, and its end."""
    left = facts.deadline_ms is not None and facts.deadline_ms > now_ms
    if facts.cause_over_ms is None and facts.batches and facts.deadline_ms is not None and left:
        batches = facts.batches
        return (
            f"{facts.name} loses {count_noun(batches.rows, 'row')} at ",
            Instant(facts.deadline_ms),
            f" unless {batches} {batches.verb} finished.",
        )
    blocked = facts.readers or list_names(facts.partitions)
    if facts.cause_over_ms is None and facts.rule == "open_too_long" and blocked and left:
        return (f"{facts.name} blocks {blocked} until ", Instant(facts.deadline_ms or 0), ".")
    return (*incident_title(facts), ".")


def _batch_title(facts: IncidentFacts, batches: StuckBatches) -> Sentence:
    if batches.is_orphaned and batches.driver.status is DriverStatus.ENDED:
        verb = "failed" if batches.driver.failed else "was stopped"
        return (f"{facts.name} {verb} in the middle of {batches}",)
    if batches.is_orphaned:
        return (f"The driver of {facts.name} died in the middle of {batches}",)
    has = "has" if len(batches.numbers) == 1 else "have"
    return (
        f"{upper_first(str(batches))} of {facts.name} {has} been prepared but not committed for ",
        Age(facts.since_ms),
    )


def _batch_explanation(facts: IncidentFacts, batches: StuckBatches, now_ms: int) -> Sentence:
    it = "it" if len(batches.numbers) == 1 else "them"
    start = f"{upper_first(str(batches))} {batches.verb} prepared but not committed. "
    if facts.deadline_ms is not None and facts.deadline_ms <= now_ms:
        return (start, "The transactions timed out at ", Instant(facts.deadline_ms), " and may be lost.")
    ways = f"A restart of the query completes {it} without loss."
    if not batches.is_orphaned:
        ways = f"Its driver completes {it} if it goes on; so does a restart, without loss."
    after = (" After ", Instant(facts.deadline_ms), f" the brokers abort {it}.") if facts.deadline_ms else ()
    return (start + ways, *after)


def _batch_consequence(facts: IncidentFacts, batches: StuckBatches, now_ms: int) -> Sentence:
    rows, its = count_noun(batches.rows, "row"), "its" if len(batches.numbers) == 1 else "their"
    if facts.deadline_ms is None:
        return ("A restart completes it.",)
    if facts.deadline_ms <= now_ms:
        return (f"Its {rows} may be lost since ", Instant(facts.deadline_ms), ".")
    lost = f" {its} {rows} {is_are(batches.rows)} lost."
    return ("A restart completes it; after ", Instant(facts.deadline_ms), lost)


def _open_title(facts: IncidentFacts) -> Sentence:
    title = (f"{_blocks(facts)} for ", Age(facts.since_ms))
    if facts.usual_ms is None:
        return title
    return (*title, f"; its commits usually take up to {format_duration(facts.usual_ms)}")


def _blocks(facts: IncidentFacts) -> str:
    blocks = f"has blocked {list_names(facts.partitions)}" if facts.partitions else "has been open"
    return f"{facts.name} {blocks}"


def _silence(facts: IncidentFacts) -> Sentence:
    if facts.silent_since_ms is None:
        return ()
    return ("Its producer has sent nothing since ", Instant(facts.silent_since_ms), ". ")


def _end(facts: IncidentFacts, now_ms: int) -> Sentence:
    if facts.deadline_ms is None:
        return (f"{_stop(facts.evidence)} ",)
    if facts.deadline_ms <= now_ms:
        return ("Its timeout passed at ", Instant(facts.deadline_ms), ". ")
    return ("The coordinator aborts it at ", Instant(facts.deadline_ms), ". ")


def _blocked(facts: IncidentFacts) -> str:
    if not facts.readers:
        return "No consumer is blocked yet."
    verb = is_are(len(facts.groups) + len(facts.queries))
    before = f" before {count_noun(facts.backlog, 'record')}" if facts.backlog else ""
    return f"{facts.readers} {verb} blocked{before}."


def _stop(words: str) -> str:
    """Add a full stop to words without one; names keep their letters."""
    return words if words.endswith((".", "!", "?")) or not words else f"{words}."
