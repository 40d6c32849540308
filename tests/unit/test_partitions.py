"""Proves which open transactions of a partition are examined, and how its LSO is followed from poll to
poll."""

import pytest

from fenceline.kafka.partitions import (
    VERDICTS,
    KnownPartition,
    Offsets,
    PartitionVerdict,
    ProducerState,
    open_in_both,
    update_partition,
    worst_verdict,
)
from tests.unit.pins import HANGING, NOW_MS, PLACE, PRODUCER, UNKNOWN, WHERE, lso_blocker

BEFORE_AND_AFTER: dict[str, tuple[ProducerState | None, ProducerState | None, bool]] = {
    "1 the same": (PRODUCER, PRODUCER, True),
    "2 it goes on writing": (PRODUCER, PRODUCER._replace(last_sequence=12), True),
    "3 it ended": (PRODUCER, PRODUCER._replace(start_offset=None), False),
    "4 it ended, and the next one began": (PRODUCER, PRODUCER._replace(start_offset=140), False),
    "5 it has just begun": (PRODUCER._replace(start_offset=None), PRODUCER, False),
    "6 it has just come": (None, PRODUCER, False),
    "7 it expired": (PRODUCER, None, False),
    "8 its epoch was raised": (PRODUCER, PRODUCER._replace(producer_epoch=5), False),
    "9 writes without transactions": (*(PRODUCER._replace(start_offset=None),) * 2, False),
    "10 open from the first offset on": (*(PRODUCER._replace(start_offset=0),) * 2, True),
}


@pytest.mark.parametrize("case", BEFORE_AND_AFTER)
def test_a_producer_is_open_if_it_was_open_before_and_after_the_coordinators_answered(case: str) -> None:
    before, after, expected = BEFORE_AND_AFTER[case]
    other = ProducerState(8, 0, 0, 0, None, 90)
    found = list(open_in_both([p for p in (before, other) if p], [p for p in (other, after) if p]))
    assert [each.producer_id for each in found] == ([8, 7] if expected else [8])
    assert not expected or found[1] == after


def known_partition(
    lso: int, end: int, *, seen_ms: int = NOW_MS, pinned_ms: int | None = None
) -> KnownPartition:
    return KnownPartition(*WHERE, PLACE, 0, lso, end, seen_ms, pinned_ms, PartitionVerdict.CLEAR, "")


def blocked_since(
    prior: KnownPartition | None, lso: int, end: int, now_ms: int, *, held: bool = False
) -> int | None:
    return update_partition(prior, WHERE, PLACE, Offsets(0, lso, end, 1, 5), now_ms, held=held).pinned_ms


def test_an_lso_is_stuck_when_two_polls_find_it_at_the_same_offset_below_the_high_watermark() -> None:
    first, then = NOW_MS, NOW_MS + 1_000
    assert blocked_since(None, 5, 9, first) is None
    assert blocked_since(known_partition(5, 9), 5, 9, then) == first
    assert blocked_since(known_partition(5, 9), 5, 12, then) == first
    assert blocked_since(known_partition(5, 12, pinned_ms=first - 7), 5, 20, then) == first - 7
    # It moves: no transaction holds it for long.
    assert blocked_since(known_partition(5, 9), 6, 12, then) is None
    # There was nothing behind it before.
    assert blocked_since(known_partition(5, 5), 5, 9, then) is None
    assert blocked_since(known_partition(5, 9, pinned_ms=first), 9, 9, then) is None
    # The next transaction is known already: its clock goes on.
    assert blocked_since(known_partition(5, 9, pinned_ms=first), 7, 12, then, held=True) == then
    assert blocked_since(known_partition(5, 9, pinned_ms=first), 12, 12, then, held=True) is None


def test_an_unavailable_partition_keeps_its_last_offsets_and_gives_the_reason() -> None:
    away = PLACE._replace(leader=None)
    prior = known_partition(5, 9, pinned_ms=NOW_MS)
    blind = update_partition(prior, WHERE, away, "it has no leader", NOW_MS + 1, held=True)
    assert blind == prior._replace(place=away, verdict=UNKNOWN, error="it has no leader")
    never = update_partition(None, WHERE, away, "it has no leader", NOW_MS, held=False)
    assert (never.lso, never.seen_ms, never.verdict) == (None, None, UNKNOWN)
    again = update_partition(blind, WHERE, PLACE, Offsets(0, 5, 9, 2, 6), NOW_MS + 2, held=True)
    assert (again.pinned_ms, again.error, again.place.leader, again.place.leader_epoch) == (NOW_MS, "", 2, 6)


def test_a_partition_has_changed_only_when_its_facts_differ() -> None:
    prior = known_partition(5, 9)
    assert prior.has_changed(None)
    assert not known_partition(5, 9, seen_ms=NOW_MS + 1).has_changed(prior)
    assert known_partition(5, 10).has_changed(prior)
    assert prior._replace(verdict=HANGING).has_changed(prior)


def test_a_partition_has_the_worst_verdict_of_its_transactions() -> None:
    assert worst_verdict([]) is UNKNOWN
    for number, each in enumerate(VERDICTS):
        assert worst_verdict([lso_blocker(other) for other in VERDICTS[: number + 1]]) is each
