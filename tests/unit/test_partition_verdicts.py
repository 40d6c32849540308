"""Proves the verdict on every kind of open transaction, by a numbered table of cases, and that nothing is
accused on a single poll or without visibility."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.facts import OPEN_STATES, TWO_PHASE_COMMIT_TIMEOUT_MS, TransactionState
from fenceline.kafka.partitions import (
    DEFAULT_CLEANUP_MS,
    PartitionVerdict,
    Pin,
    ProducerOwners,
    ProducerState,
    VerdictReason,
    evaluate_pin,
    grace_ms,
    still_accused,
)
from fenceline.kafka.reconcile import Described, NotDescribed, Obstacle
from tests.unit.pin_cases import (
    CASES,
    GATEWAY,
    GRACE,
    LONG_AGO,
    NOBODY,
    OTHERS,
    OURS,
    TIMEOUT_MS,
    described,
    not_described,
    owners,
)
from tests.unit.pins import HANGING, NOW_MS, PRODUCER, UNKNOWN, WHERE, lso_blocker


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


@pytest.mark.parametrize(
    ("cleanup_ms", "expected"), [(500, 15_000), (DEFAULT_CLEANUP_MS, 15_000), (60_000, 90_000)]
)
def test_the_grace_is_one_and_a_half_scans_and_15_seconds_at_least(cleanup_ms: int, expected: int) -> None:
    assert grace_ms(cleanup_ms) == expected


def test_the_end_of_a_prepare_clears_its_beginning() -> None:
    prepared = evaluate_again(described(TransactionState.PREPARE_COMMIT), lso_blocker(), NOW_MS)
    assert prepared.prepared_ms == NOW_MS
    assert (
        evaluate_again(described(TransactionState.PREPARE_COMMIT), prepared, NOW_MS + 9).prepared_ms == NOW_MS
    )
    assert evaluate_again(described(), prepared, NOW_MS + 9).prepared_ms is None
    assert evaluate_again(not_described(Obstacle.UNSEEN), prepared, NOW_MS + 9).prepared_ms is None


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
    hanging, once = (
        lso_blocker(HANGING, VerdictReason.NOT_ITS_PARTITION),
        lso_blocker(UNKNOWN, VerdictReason.SEEN_ONCE),
    )
    blind, owned = lso_blocker(UNKNOWN, VerdictReason.UNSEEN), lso_blocker()
    hidden = lso_blocker(UNKNOWN, VerdictReason.MAY_BE_HIDDEN)
    mine = {hanging.key}
    assert still_accused([hanging], ()) == still_accused([once], ()) == mine
    assert still_accused([blind], mine) == mine
    for each in (blind, owned, hidden):
        assert still_accused([each], ()) == set()
    for each in (owned, hidden):
        assert still_accused([each], mine) == set()
    assert still_accused([], mine) == set()
    assert still_accused([replace(blind, start_offset=101)], mine) == set()


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
    owners,
    st.sampled_from([NOBODY, GATEWAY]),
    st.none() | SAID,
    whole=st.booleans(),
    may_hide=st.booleans(),
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
