"""Proves the verdict on every kind of open transaction, and that none is accused on a single poll or without
visibility; how a partition's LSO is followed from poll to poll, and the history of its ends."""

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.facts import OPEN_STATES, TWO_PHASE_COMMIT_TIMEOUT_MS, TransactionState
from fenceline.kafka.offset_histories import (
    STEPS,
    EndOffset,
    add_end,
    newest_end,
    pack_ends,
    passed_ms,
    thin_ends,
    unpack_ends,
)
from fenceline.kafka.partitions import (
    DEFAULT_CLEANUP_MS,
    VERDICTS,
    KnownPartition,
    Offsets,
    PartitionVerdict,
    Pin,
    ProducerOwners,
    ProducerState,
    VerdictReason,
    evaluate_pin,
    grace_ms,
    open_in_both,
    still_accused,
    update_partition,
    worst_verdict,
)
from fenceline.kafka.reconcile import Described, NotDescribed, Obstacle
from tests.cases import cases
from tests.unit.pin_cases import (
    CASES,
    GATEWAY,
    GRACE,
    HANGING,
    LONG_AGO,
    NOBODY,
    NOW_MS,
    OTHERS,
    OURS,
    PLACE,
    PRODUCER,
    TIMEOUT_MS,
    UNKNOWN,
    WHERE,
    described,
    lso_blocker,
    not_described,
    owners,
)


def verdict(
    seen: ProducerOwners,
    known: Pin | None = None,
    *,
    accused: bool = True,
    producer: ProducerState = PRODUCER,
) -> tuple[PartitionVerdict, VerdictReason]:
    """The verdict, by default on one that no coordinator owned in the previous poll either."""
    found = evaluate_pin(
        WHERE, producer, seen, known=known, since_ms=NOW_MS, accused=accused, now_ms=NOW_MS, grace=GRACE
    )
    return found.verdict, found.ground


@pytest.mark.parametrize("case", CASES)
def test_case(case: str) -> None:
    seen, known, expected, ground = CASES[case]
    assert verdict(seen, known) == (expected, ground)


@pytest.mark.parametrize("case", [each for each, (*_, expected, _) in CASES.items() if expected is HANGING])
def test_a_single_poll_accuses_no_transaction(case: str) -> None:
    seen, known, _, _ = CASES[case]
    assert verdict(seen, known, accused=False) == (UNKNOWN, VerdictReason.SEEN_ONCE)


@cases((500, 15_000), (DEFAULT_CLEANUP_MS, 15_000), (60_000, 90_000))
def test_the_grace_is_one_and_a_half_scans_and_15_seconds_at_least(cleanup_ms: int, expected: int) -> None:
    assert grace_ms(cleanup_ms) == expected


def test_the_end_of_a_prepare_clears_its_beginning() -> None:
    committing = described(TransactionState.PREPARE_COMMIT)
    prepared = evaluate_again(committing, lso_blocker(), NOW_MS)
    assert prepared.prepared_ms == NOW_MS
    assert evaluate_again(committing, prepared, NOW_MS + 9).prepared_ms == NOW_MS
    for says in described(), not_described(Obstacle.UNSEEN):
        assert evaluate_again(says, prepared, NOW_MS + 9).prepared_ms is None


def evaluate_again(says: Described | NotDescribed, known: Pin, now_ms: int) -> Pin:
    return evaluate_pin(
        WHERE, PRODUCER, owners(says=says), known=known, since_ms=NOW_MS, accused=True, now_ms=now_ms,
        grace=GRACE,
    )  # fmt: skip


def test_an_age_is_measured_by_the_local_clock_from_the_first_poll() -> None:
    """The producer's own timestamps do not count: an hour ahead or behind changes nothing."""
    for stamp in NOW_MS - 3_600_000, NOW_MS + 3_600_000, -1:
        backdated = PRODUCER._replace(last_timestamp_ms=stamp)
        for known, expected in ((None, VerdictReason.OWNED), (LONG_AGO, VerdictReason.PAST_TIMEOUT)):
            assert verdict(owners(says=described()), known, producer=backdated)[1] is expected


def test_an_accusation_lasts_only_through_polls_without_visibility() -> None:
    hanging = lso_blocker(HANGING, VerdictReason.NOT_ITS_PARTITION)
    once = lso_blocker(UNKNOWN, VerdictReason.SEEN_ONCE)
    blind, owned = lso_blocker(UNKNOWN, VerdictReason.UNSEEN), lso_blocker()
    hidden = lso_blocker(UNKNOWN, VerdictReason.MAY_BE_HIDDEN)
    mine = {hanging.key}
    assert still_accused([hanging], ()) == still_accused([once], ()) == mine
    assert still_accused([blind], mine) == mine
    for pin in (blind, owned, hidden):
        assert still_accused([pin], ()) == set()
    for pins in ([owned], [hidden], [], [replace(blind, start_offset=101)]):
        assert still_accused(pins, mine) == set()


SAID: st.SearchStrategy[Described | NotDescribed] = st.one_of(
    st.builds(
        described,
        st.sampled_from(TransactionState),
        st.sampled_from([OURS, OTHERS, ()]),
        producer_id=st.sampled_from([7, 8]),
        epoch=st.integers(0, 6),
        timeout_ms=st.sampled_from([1, TIMEOUT_MS, TWO_PHASE_COMMIT_TIMEOUT_MS]),
    ),
    st.builds(not_described, st.sampled_from(Obstacle)),
)
OWNERS = st.builds(
    owners, st.sampled_from([NOBODY, GATEWAY]), st.none() | SAID, whole=st.booleans(), may_hide=st.booleans()
)


@given(looks=st.lists(OWNERS, min_size=1, max_size=6))
def test_hanging_takes_two_polls_without_an_owner_and_none_between_with_one(
    looks: list[ProducerOwners],
) -> None:
    accused: frozenset[Any] = frozenset()
    known: Pin | None = None
    telling = 0
    for number, seen in enumerate(looks):
        key = lso_blocker().key
        known = evaluate_pin(
            WHERE, PRODUCER, seen, known=known, since_ms=NOW_MS, accused=key in accused,
            now_ms=NOW_MS + number, grace=GRACE,
        )  # fmt: skip
        accused = still_accused([known], accused)
        kind = expected_ownership(seen)
        telling = telling + 1 if kind == "ownerless" else telling if kind == "blind" else 0
        assert (known.verdict is HANGING) == (kind == "ownerless" and telling >= 2)
        assert known.first_seen_ms == NOW_MS


def expected_ownership(seen: ProducerOwners) -> str:
    """What a poll proves, derived in another way than the code does."""
    name = seen.ids.get(7)
    says = seen.descriptions.get(name or "")
    if name and isinstance(says, Described) and says.producer_id == 7:
        owned = says.state in OPEN_STATES and any(
            topic == "orders" and 3 in numbers for topic, numbers in says.partitions
        )
        return "owned" if owned else "ownerless"
    if name:
        forbidden = isinstance(says, NotDescribed) and says.obstacle is Obstacle.FORBIDDEN
        return "hidden" if forbidden else "blind"
    if not seen.whole:
        return "blind"
    return "hidden" if seen.may_hide else "ownerless"


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


def known_partition(lso: int, end: int, pinned_ms: int | None = None) -> KnownPartition:
    return KnownPartition(*WHERE, PLACE, 0, lso, end, NOW_MS, pinned_ms, PartitionVerdict.CLEAR, "")


def test_an_lso_is_stuck_when_two_polls_find_it_at_the_same_offset_below_the_high_watermark() -> None:
    first, then = NOW_MS, NOW_MS + 1_000
    for prior, lso, end, since_ms in (
        (None, 5, 9, None),
        (known_partition(5, 9), 5, 9, first),
        (known_partition(5, 9), 5, 12, first),
        (known_partition(5, 12, first - 7), 5, 20, first - 7),
        # It moves: no transaction holds it for long.
        (known_partition(5, 9), 6, 12, None),
        # There was nothing behind it before.
        (known_partition(5, 5), 5, 9, None),
        (known_partition(5, 9, first), 9, 9, None),
    ):
        offsets = Offsets(0, lso, end, 1, 5)
        assert update_partition(prior, WHERE, PLACE, offsets, then, held=False).pinned_ms == since_ms
    # The next transaction is known already: its clock goes on.
    for lso, since_ms in ((7, then), (12, None)):
        offsets, prior = Offsets(0, lso, 12, 1, 5), known_partition(5, 9, first)
        assert update_partition(prior, WHERE, PLACE, offsets, then, held=True).pinned_ms == since_ms


def test_an_unavailable_partition_keeps_its_last_offsets_and_gives_the_reason() -> None:
    away = PLACE._replace(leader=None)
    prior = known_partition(5, 9, NOW_MS)
    blind = update_partition(prior, WHERE, away, "it has no leader", NOW_MS + 1, held=True)
    assert blind == prior._replace(place=away, verdict=UNKNOWN, error="it has no leader")
    never = update_partition(None, WHERE, away, "it has no leader", NOW_MS, held=False)
    assert (never.lso, never.seen_ms, never.verdict) == (None, None, UNKNOWN)
    again = update_partition(blind, WHERE, PLACE, Offsets(0, 5, 9, 2, 6), NOW_MS + 2, held=True)
    assert (again.pinned_ms, again.error, again.place.leader, again.place.leader_epoch) == (NOW_MS, "", 2, 6)
    # It has changed only when its facts differ.
    assert prior.has_changed(None)
    assert not prior._replace(seen_ms=NOW_MS + 1).has_changed(prior)
    assert prior._replace(high_watermark=10).has_changed(prior)
    assert prior._replace(verdict=HANGING).has_changed(prior)


def test_a_partition_has_the_worst_verdict_of_its_transactions() -> None:
    assert worst_verdict([]) is UNKNOWN
    for number, each in enumerate(VERDICTS):
        assert worst_verdict([lso_blocker(other) for other in VERDICTS[: number + 1]]) is each


SECOND = 1_000


def history_of(points: list[tuple[int, int]]) -> str:
    """The history of a partition that was polled at these instants, with these ends."""
    text, before = "", None
    for at_ms, end in points:
        text = add_end(text, EndOffset(NOW_MS + at_ms, end, end + 5), before)
        before = NOW_MS + at_ms
    return text


def test_it_is_plain_json_oldest_first() -> None:
    text = history_of([(0, 10), (6 * SECOND, 20)])
    assert json.loads(text) == [[NOW_MS, 10, 15], [NOW_MS + 6_000, 20, 25]]
    assert unpack_ends(text) == (EndOffset(NOW_MS, 10, 15), EndOffset(NOW_MS + 6_000, 20, 25))
    assert newest_end(text) == EndOffset(NOW_MS + 6_000, 20, 25)
    assert (unpack_ends(""), newest_end(""), pack_ends([])) == ((), None, "")


def test_a_point_comes_five_seconds_after_the_other_for_another_end_or_where_one_has_stayed() -> None:
    for looks in [(0, 10), (SECOND, 11), (4_999, 12)], [(0, 10), (9 * SECOND, 10)]:
        assert unpack_ends(history_of(looks)) == (EndOffset(NOW_MS, 10, 15),)
    looks = [(second * SECOND, 10) for second in range(600)]
    ends = unpack_ends(history_of([*looks, (600 * SECOND, 90)]))
    assert [(end.at_ms - NOW_MS, end.lso) for end in ends][-2:] == [(599_000, 10), (600_000, 90)]
    # All of the records came within the last second.
    assert passed_ms(ends, 10, committed=True) == NOW_MS + 599_012


def test_when_an_end_passed_an_offset() -> None:
    ends = [
        EndOffset(NOW_MS + at_ms, *end)
        for at_ms, *end in ((0, 100, 150), (10_000, 200, 150), (20_000, 200, 350))
    ]
    # Offset 100 is the first that the end at 100 has not passed.
    for offset, after_ms in ((149, 5_000), (199, 10_000)):
        assert passed_ms(ends, offset, committed=True) == NOW_MS + after_ms
    assert passed_ms(ends, 99, committed=True) is passed_ms(ends, 200, committed=True) is None
    assert passed_ms(ends, 249, committed=False) == NOW_MS + 15_000
    assert passed_ms([], 1, committed=True) is None


def test_an_hour_of_a_busy_partition_is_a_hundred_points() -> None:
    text = history_of([(second * SECOND, second) for second in range(2 * 3_600)])
    ends = unpack_ends(text)
    last = NOW_MS + 7_199_000
    assert len(ends) <= 130
    assert last - ends[-1].at_ms < 5_000
    recent = [each for each in ends if last - each.at_ms <= 270_000]
    assert max(b.at_ms - a.at_ms for a, b in pairwise(recent)) <= 10_000
    assert 3_600_000 <= last - ends[0].at_ms <= 3_600_000 + 2 * 120_000 + 60_000


GROWTH = st.lists(st.tuples(st.integers(100, 400_000), st.integers(0, 50)), min_size=1, max_size=200)


@given(growth=GROWTH)
def test_an_offset_was_passed_within_the_bounds(growth: list[tuple[int, int]]) -> None:
    at_ms, end, looks = 0, 0, []
    for after_ms, more in growth:
        at_ms, end = at_ms + after_ms, end + more
        looks.append((at_ms, end))
    ends = unpack_ends(history_of(looks))
    assert list(ends) == sorted(ends)
    assert len(ends) < 400
    for offset in range(0, end, max(1, end // 20)):
        found = passed_ms(ends, offset, committed=True)
        first = next(at for at, reached in looks if reached > offset)
        earliest_ms = max((each.at_ms for each in ends if each.lso <= offset), default=None)
        latest_ms = min((each.at_ms for each in ends if each.lso > offset), default=None)
        if latest_ms is None:
            # It came within the last five seconds that have a point.
            assert first > ends[-1].at_ms - NOW_MS
            assert found is None
            continue
        # The truth is when a look saw it, and that the look before did not.
        assert first <= latest_ms - NOW_MS
        if earliest_ms is None:
            assert found is None
            continue
        assert earliest_ms - NOW_MS <= first
        assert found is not None
        assert earliest_ms <= found <= latest_ms


@given(times=st.lists(st.integers(0, 8_000_000), min_size=1, max_size=300, unique=True).map(sorted))
def test_thin_keeps_order_the_newest_and_one_that_is_older_than_all(times: list[int]) -> None:
    ends = [EndOffset(at, at, at) for at in times]
    kept = thin_ends(ends, times[-1])
    assert kept == sorted(kept)
    assert kept[-1] == ends[-1]
    oldest = times[-1] - STEPS[-1][0]
    older = [end for end in ends if end.at_ms < oldest]
    assert [end for end in kept if end.at_ms < oldest] == older[-1:]
    assert thin_ends(kept, times[-1]) == kept
