"""The known fates of random transactions, compared with the transitions derived from the log."""

from __future__ import annotations

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
from tests.kafka.fates import Mark
from tests.kafka.observe import RawRecord

#: Takeovers whose client never asks again: nothing in the log could show them.
UNANSWERED = frozenset({"takeover_and_gone", "foreign_init"})


class Verdict(NamedTuple):
    """What was derived of one marked record."""

    mark: Mark
    told: Transition | None
    #: "certain" or "probable" where it is right, "ambiguous" whatever it is, else "wrong".
    is_: str
    #: Whether the log can tell, by docs/design/kafka.md §0.
    can_tell: bool
    where: str

    def __str__(self) -> str:
        told = f"{self.told.confidence} {self.told.kind} ({self.told.reason})" if self.told else "nothing"
        return f"{self.where}: {self.mark.kind} of {self.mark.fate}, protocol {self.mark.protocol}: {told}"


class Seen(NamedTuple):
    """A record, and what is derived of it in the end, after every revision."""

    record: TransactionRecord
    told: Transition | None


def judge(logs: Mapping[str, list[Mark]], records: Iterable[RawRecord]) -> list[Verdict]:
    """Compare the logs with the transitions that the records of `__transaction_state` give.

    Raises AssertionError where the records are not those that the log knows of.
    """
    by_id: dict[str, list[Seen]] = defaultdict(list)
    for seen in _derived(sorted(records), set(logs)):
        by_id[seen.record.transactional_id].append(seen)
    return [verdict for name, marks in logs.items() for verdict in _judged(name, marks, by_id[name])]


def _derived(records: Iterable[RawRecord], names: set[str]) -> Iterator[Seen]:
    lives: dict[str, Folded] = defaultdict(Folded)
    found: dict[tuple[int, int], TransactionRecord] = {}
    told: dict[tuple[int, int], Transition] = {}
    for raw in records:
        record = decode_record(raw.key, raw.value)
        if isinstance(record, TransactionRecord) and record.transactional_id in names:
            life = lives[record.transactional_id]
            step = derive_transition(life, record, raw.partition, raw.offset, whole=True)
            lives[record.transactional_id] = next_history(life, record, step)
            found[raw.partition, raw.offset] = record
            told |= {(each.partition, each.offset): each for each in step if each is not None}
    for at, record in found.items():
        yield Seen(record, told.get(at))


def _judged(name: str, marks: list[Mark], seen: list[Seen]) -> Iterator[Verdict]:
    """Compare one id's log with its records."""
    telling = [each for last, each in zip([None, *seen], seen, strict=False) if _is_marked(last, each)]
    states = [each.record.state for each in telling]
    common = list(takewhile(lambda pair: pair[0].state == pair[1], zip(marks, states, strict=False)))
    context = slice(max(0, len(common) - 5), len(common) + 5)
    assert len(common) == len(marks) == len(states), (
        f"{name}, record {len(common)}: the log knows of {[tuple(mark) for mark in marks[context]]}, "
        f"the coordinator wrote {[each.record for each in telling[context]]}"
    )
    before = None
    for number, (mark, each) in enumerate(zip(marks, telling, strict=True)):
        after = marks[number + 1] if number + 1 < len(marks) else None
        is_, can = _right(mark, each.told, before), _can_tell(mark, each.told, before, after)
        # Where nothing was told, all was said of the abort before.
        told = each.told or (before and before.told)
        before = Verdict(mark, told, is_, can, f"{name} at {each.record.updated_ms}")
        yield before


def _is_marked(last: Seen | None, each: Seen) -> bool:
    further = last is not None and last.record.state is each.record.state is TransactionState.ONGOING
    return (
        each.record.state not in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
        and not further
    )


def _right(mark: Mark, told: Transition | None, before: Verdict | None) -> str:
    """Judge what was told of a mark, given the verdict on the mark before it."""
    if told is not None:
        right = str(told.confidence) if told.kind is mark.kind else "wrong"
        return "ambiguous" if told.confidence is Confidence.AMBIGUOUS else right
    if mark.kind is None and before is not None:
        return before.is_
    # An initialisation that was taken for the end of the abort before it.
    merged = before is not None and (before.is_ == "ambiguous" or before.mark.kind is TransitionKind.TAKEOVER)
    return "ambiguous" if mark.kind is TransitionKind.REINIT and merged else "wrong"


def _can_tell(mark: Mark, told: Transition | None, before: Verdict | None, after: Mark | None) -> bool:
    """Whether the log can tell a mark from every other.

    It cannot where somebody initialises an id and what goes before may or may not have made it wait: after
    a protocol 2 client's end (unless that client goes on), and after a takeover by somebody who never came
    back.
    """
    if mark.kind is None or (mark.kind is TransitionKind.REINIT and before and before.mark.kind in ABORTS):
        return before is not None and before.can_tell and before.mark.fate not in UNANSWERED
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
    """Return how many takeovers of each fate and protocol are called takeovers, at any confidence."""
    counts: dict[tuple[str, str], Counter[bool]] = defaultdict(Counter)
    for mark, told, _, _, _ in verdicts:
        if mark.kind is TransitionKind.TAKEOVER and mark.fate not in UNANSWERED:
            counts[mark.fate, mark.protocol][told is not None and told.kind is TransitionKind.TAKEOVER] += 1
    shares = [
        f"{fate} under {protocol}: {found[True]} of {found.total()}"
        for (fate, protocol), found in sorted(counts.items())
    ]
    every = sum(counts.values(), Counter())
    return f"takeovers recognised: {every[True]} of {every.total()} ({'; '.join(shares)})"


def table(verdicts: Iterable[Verdict]) -> str:
    """Return the shares per fate, kind and protocol as text, but for the begins."""
    counts: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for mark, _, is_, _, _ in verdicts:
        if mark.kind not in (None, TransitionKind.BEGIN):
            counts[mark.fate, str(mark.kind), mark.protocol][is_] += 1
    words = "certain", "probable", "ambiguous", "wrong"
    heads = f"{'fate':<18}{'kind':<15}{'protocol':<9}{'records':>8}"
    lines = [heads + "".join(f"{word:>11}" for word in words)]
    for (fate, kind, protocol), found in sorted(counts.items()):
        shares = "".join(f"{found[word] / found.total():>11.1%}" for word in words)
        lines.append(f"{fate:<18}{kind:<15}{protocol:<9}{found.total():>8}{shares}")
    return "\n".join(lines)
