"""The known outcomes of random transactions, compared with the transitions derived from the log."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import NamedTuple

from fenceline.decode.transaction_state import decode_record
from fenceline.facts import (
    ABORTS,
    Confidence,
    TransactionRecord,
    TransactionState,
    Transition,
    TransitionKind,
)
from fenceline.kafka.transitions import IdHistory as Folded
from fenceline.kafka.transitions import derive_transition, next_history
from tests.kafka.scripted_transactions import ExpectedRecord
from tests.kafka.topic_records import RawRecord

#: Takeovers whose client never asks again: nothing in the log could show them.
UNANSWERED = frozenset({"takeover_and_gone", "foreign_init"})
#: Outcomes in which an Admin's timeout is a producer's or the other way round.
SAME_TIMEOUT = frozenset({"fence_with_own_timeout", "waits_with_30_s"})


class Verdict(NamedTuple):
    """What was derived of one marked record."""

    mark: ExpectedRecord
    derived: Transition | None
    #: "certain" or "probable" where it is right, "ambiguous" whatever it is, else "wrong".
    confidence: str
    #: Whether the log can tell, by docs/design/kafka.md §0.
    can_tell: bool
    where: str

    def __str__(self) -> str:
        derived = (
            f"{self.derived.confidence} {self.derived.kind} ({self.derived.reason})"
            if self.derived
            else "nothing"
        )
        return (
            f"{self.where}: {self.mark.kind} of {self.mark.outcome}, protocol {self.mark.protocol}: {derived}"
        )


class DerivedTransition(NamedTuple):
    """A record, and what is derived of it in the end, after every revision."""

    record: TransactionRecord
    derived: Transition | None


def compare(logs: Mapping[str, list[ExpectedRecord]], records: Iterable[RawRecord]) -> list[Verdict]:
    """Compare the logs with the transitions that the records of `__transaction_state` give.

    Raises AssertionError where the records are not those of the log.
    """
    by_id: dict[str, list[DerivedTransition]] = defaultdict(list)
    for transitions in _derived(sorted(records), set(logs)):
        by_id[transitions.record.transactional_id].append(transitions)
    return [verdict for name, marks in logs.items() for verdict in _verdicts(name, marks, by_id[name])]


def _derived(records: Iterable[RawRecord], names: set[str]) -> Iterator[DerivedTransition]:
    histories: dict[str, Folded] = defaultdict(Folded)
    found: dict[tuple[int, int], TransactionRecord] = {}
    derived: dict[tuple[int, int], Transition] = {}
    for raw in records:
        record = decode_record(raw.key, raw.value)
        if isinstance(record, TransactionRecord) and record.transactional_id in names:
            history = histories[record.transactional_id]
            step = derive_transition(history, record, raw.partition, raw.offset, whole=True)
            histories[record.transactional_id] = next_history(history, record, step)
            found[raw.partition, raw.offset] = record
            derived |= {(each.partition, each.offset): each for each in step if each is not None}
    for at, record in found.items():
        yield DerivedTransition(record, derived.get(at))


def _verdicts(
    name: str, marks: list[ExpectedRecord], transitions: list[DerivedTransition]
) -> Iterator[Verdict]:
    """Compare one id's log with its records."""
    marked = [
        each for last, each in zip([None, *transitions], transitions, strict=False) if _is_marked(last, each)
    ]
    states = [each.record.state for each in marked]
    common = list(takewhile(lambda pair: pair[0].state == pair[1], zip(marks, states, strict=False)))
    context = slice(max(0, len(common) - 5), len(common) + 5)
    assert len(common) == len(marks) == len(states), (
        f"{name}, record {len(common)}: the log knows of {[tuple(mark) for mark in marks[context]]}, "
        f"the coordinator wrote {[each.record for each in marked[context]]}"
    )
    before = None
    for number, (mark, each) in enumerate(zip(marks, marked, strict=True)):
        after = marks[number + 1] if number + 1 < len(marks) else None
        confidence, can = (
            _confidence(mark, each.derived, before),
            _is_distinguishable(mark, each.derived, before, after),
        )
        # Where nothing was derived, all was said of the abort before.
        derived = each.derived or (before and before.derived)
        before = Verdict(mark, derived, confidence, can, f"{name} at {each.record.updated_ms}")
        yield before


def _is_marked(last: DerivedTransition | None, each: DerivedTransition) -> bool:
    further = last is not None and last.record.state is each.record.state is TransactionState.ONGOING
    return (
        each.record.state not in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
        and not further
    )


def _confidence(mark: ExpectedRecord, derived: Transition | None, before: Verdict | None) -> str:
    """Compare what was derived with a mark, given the verdict on the mark before it."""
    if derived is not None:
        right = str(derived.confidence) if derived.kind is mark.kind else "wrong"
        return "ambiguous" if derived.confidence is Confidence.AMBIGUOUS else right
    if mark.kind is None and before is not None:
        return before.confidence
    # An initialisation that was taken for the end of the abort before it.
    merged = before is not None and (
        before.confidence == "ambiguous" or before.mark.kind is TransitionKind.TAKEOVER
    )
    return "ambiguous" if mark.kind is TransitionKind.REINIT and merged else "wrong"


def _is_distinguishable(
    mark: ExpectedRecord, derived: Transition | None, before: Verdict | None, after: ExpectedRecord | None
) -> bool:
    """Whether the log distinguishes a mark from every other.

    It does not where another client initialises an id and it is unknown whether that had to wait: after
    a protocol 2 client's end (unless that client continues), and after a takeover by a client that never
    came back. Nor does it where an Admin fences: a producer may be configured with its timeout.
    """
    if mark.outcome in SAME_TIMEOUT:
        return False
    if mark.kind is None or (mark.kind is TransitionKind.REINIT and before and before.mark.kind in ABORTS):
        return before is not None and before.can_tell and before.mark.outcome not in UNANSWERED
    if mark.kind is TransitionKind.ADMIN_FENCE:
        return False
    if mark.kind not in ABORTS:
        return True
    if mark.kind is TransitionKind.TIMEOUT:
        return True
    goes_on = (
        mark.kind is TransitionKind.CLIENT_ABORT
        and after is not None
        and after.state is not TransactionState.EMPTY
    )
    return mark.protocol != "2" or goes_on or mark.kind is TransitionKind.SELF_RECOVERY


def recognised(verdicts: Iterable[Verdict]) -> str:
    """Return how many takeovers of each outcome and protocol are called takeovers, at any confidence."""
    counts: dict[tuple[str, str], Counter[bool]] = defaultdict(Counter)
    for mark, derived, _, _, _ in verdicts:
        if mark.kind is TransitionKind.TAKEOVER and mark.outcome not in UNANSWERED:
            counts[mark.outcome, mark.protocol][
                derived is not None and derived.kind is TransitionKind.TAKEOVER
            ] += 1
    shares = [
        f"{outcome} under {protocol}: {found[True]} of {found.total()}"
        for (outcome, protocol), found in sorted(counts.items())
    ]
    every = sum(counts.values(), Counter())
    return f"takeovers recognised: {every[True]} of {every.total()} ({'; '.join(shares)})"


def table(verdicts: Iterable[Verdict]) -> str:
    """Return the shares per outcome, kind and protocol as text, but for the begins."""
    counts: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for mark, _, confidence, _, _ in verdicts:
        if mark.kind not in (None, TransitionKind.BEGIN):
            counts[mark.outcome, str(mark.kind), mark.protocol][confidence] += 1
    words = "certain", "probable", "ambiguous", "wrong"
    heads = f"{'outcome':<18}{'kind':<15}{'protocol':<9}{'records':>8}"
    lines = [heads + "".join(f"{word:>11}" for word in words)]
    for (outcome, kind, protocol), found in sorted(counts.items()):
        shares = "".join(f"{found[word] / found.total():>11.1%}" for word in words)
        lines.append(f"{outcome:<18}{kind:<15}{protocol:<9}{found.total():>8}{shares}")
    return "\n".join(lines)
