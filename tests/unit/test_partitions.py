"""Proves the verdict on every kind of open transaction, by a numbered table of cases; that nothing is accused
on a single poll or without visibility; and how a partition's LSO is followed from poll to poll."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.facts import (
    OPEN_STATES,
    TWO_PHASE_COMMIT_TIMEOUT_MS,
    TopicPartition,
    TopicPartitions,
    TransactionState,
)
from fenceline.kafka.partitions import (
    DEFAULT_CLEANUP_MS,
    VERDICTS,
    KnownPartition,
    Offsets,
    PartitionPlace,
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

NOW_MS = 1_795_000_000_000
WHERE = TopicPartition("orders", 3)
GRACE = grace_ms()
TIMEOUT_MS = 60_000
PRODUCER = ProducerState(7, 4, 11, NOW_MS - 5_000, 2, start_offset=100)
PLACE = PartitionPlace("topic-1", 1, 5, (1, 2))

OURS = (TopicPartitions("orders", (0, 3)), TopicPartitions("payments", (3,)))
OTHERS = (TopicPartitions("orders", (0, 30)), TopicPartitions("payments", (3,)))


def described(
    state: TransactionState = TransactionState.ONGOING,
    partitions: tuple[TopicPartitions, ...] = OURS,
    *,
    producer_id: int = 7,
    epoch: int = 4,
    timeout_ms: int = TIMEOUT_MS,
) -> Described:
    return Described("gateway", state, producer_id, epoch, timeout_ms, NOW_MS - 9_000_000, partitions)


def not_described(obstacle: Obstacle) -> NotDescribed:
    return NotDescribed(obstacle, "for a reason")


NOBODY: dict[int, str] = {}
GATEWAY = {7: "gateway"}


def owners(
    ids: dict[int, str] = GATEWAY,
    says: Described | NotDescribed | None = None,
    *,
    whole: bool = True,
    may_hide: bool = False,
) -> ProducerOwners:
    return ProducerOwners(ids, {} if says is None else {"gateway": says}, whole, may_hide)


def lso_blocker(
    verdict: PartitionVerdict = PartitionVerdict.OPEN,
    ground: VerdictReason = VerdictReason.OWNED,
    *,
    first_seen_ms: int = NOW_MS - 1_000,
    prepared_ms: int | None = None,
) -> Pin:
    return Pin(
        *WHERE, 7, 4, 100, 11, NOW_MS - 5_000, 2, first_seen_ms, "gateway", verdict, ground, prepared_ms
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


HANGING, LATE, OPEN, UNKNOWN = (
    PartitionVerdict.HANGING,
    PartitionVerdict.LATE,
    PartitionVerdict.OPEN,
    PartitionVerdict.UNKNOWN,
)
LONG_AGO = lso_blocker(first_seen_ms=NOW_MS - TIMEOUT_MS - GRACE - 1)
JUST_IN_TIME = lso_blocker(first_seen_ms=NOW_MS - TIMEOUT_MS - GRACE)
STUCK = lso_blocker(prepared_ms=NOW_MS - GRACE - 1)
FOR_EVER = TWO_PHASE_COMMIT_TIMEOUT_MS

CASES: dict[str, tuple[ProducerOwners, Pin | None, PartitionVerdict, VerdictReason]] = {
    # Owned.
    "1 its coordinator names the partition": (owners(says=described()), None, OPEN, VerdictReason.OWNED),
    "2 it is being committed": (
        owners(says=described(TransactionState.PREPARE_COMMIT)),
        None,
        OPEN,
        VerdictReason.OWNED,
    ),
    "3 it is being aborted": (
        owners(says=described(TransactionState.PREPARE_ABORT)),
        None,
        OPEN,
        VerdictReason.OWNED,
    ),
    "4 its epoch was raised for the abort of a timeout": (
        owners(says=described(TransactionState.PREPARE_ABORT, epoch=5)),
        None,
        OPEN,
        VerdictReason.OWNED,
    ),
    "5 protocol 2 raised its epoch since the last end here": (
        owners(says=described(epoch=900)),
        None,
        OPEN,
        VerdictReason.OWNED,
    ),
    "6 the partition is a later epoch ahead of its coordinator": (
        owners(says=described(epoch=3)),
        None,
        OPEN,
        VerdictReason.OWNED,
    ),
    "7 hidden ids do not matter where the owner is seen": (
        owners(says=described(), may_hide=True),
        None,
        OPEN,
        VerdictReason.OWNED,
    ),
    "8 nor does a broker that did not answer": (
        owners(says=described(), whole=False),
        None,
        OPEN,
        VerdictReason.OWNED,
    ),
    # Late.
    "9 past its timeout and the coordinator's scan": (
        owners(says=described()),
        LONG_AGO,
        LATE,
        VerdictReason.PAST_TIMEOUT,
    ),
    "10 to the last millisecond of it": (owners(says=described()), JUST_IN_TIME, OPEN, VerdictReason.OWNED),
    "11 long open by its coordinator's clock, not yet by ours": (
        owners(says=described(timeout_ms=1)),
        lso_blocker(first_seen_ms=NOW_MS - GRACE),
        OPEN,
        VerdictReason.OWNED,
    ),
    "12 two-phase commit never times out": (
        owners(says=described(timeout_ms=FOR_EVER)),
        lso_blocker(first_seen_ms=0),
        OPEN,
        VerdictReason.TWO_PHASE,
    ),
    "13 stuck in PrepareCommit": (
        owners(says=described(TransactionState.PREPARE_COMMIT)),
        STUCK,
        LATE,
        VerdictReason.STUCK_IN_PREPARE,
    ),
    "14 stuck in PrepareAbort": (
        owners(says=described(TransactionState.PREPARE_ABORT)),
        STUCK,
        LATE,
        VerdictReason.STUCK_IN_PREPARE,
    ),
    "15 past its timeout, but decided a moment ago": (
        owners(says=described(TransactionState.PREPARE_ABORT)),
        LONG_AGO,
        OPEN,
        VerdictReason.OWNED,
    ),
    "16 decided for as long as the grace": (
        owners(says=described(TransactionState.PREPARE_ABORT)),
        lso_blocker(prepared_ms=NOW_MS - GRACE),
        OPEN,
        VerdictReason.OWNED,
    ),
    "17 two-phase commit is never late, also when it was decided long ago": (
        owners(says=described(TransactionState.PREPARE_COMMIT, timeout_ms=FOR_EVER)),
        STUCK,
        OPEN,
        VerdictReason.TWO_PHASE,
    ),
    # Hanging: its coordinator is seen.
    "18 its coordinator says Empty": (
        owners(says=described(TransactionState.EMPTY, ())),
        None,
        HANGING,
        VerdictReason.NOT_ITS_PARTITION,
    ),
    "19 its coordinator has committed it": (
        owners(says=described(TransactionState.COMPLETE_COMMIT, ())),
        None,
        HANGING,
        VerdictReason.NOT_ITS_PARTITION,
    ),
    "20 its coordinator has aborted it": (
        owners(says=described(TransactionState.COMPLETE_ABORT, ())),
        None,
        HANGING,
        VerdictReason.NOT_ITS_PARTITION,
    ),
    "21 its coordinator has another transaction open, elsewhere": (
        owners(says=described(partitions=OTHERS)),
        None,
        HANGING,
        VerdictReason.NOT_ITS_PARTITION,
    ),
    "22 its coordinator has written the marker here, or so it thinks": (
        owners(says=described(TransactionState.PREPARE_COMMIT, OTHERS)),
        None,
        HANGING,
        VerdictReason.NOT_ITS_PARTITION,
    ),
    "23 hidden ids do not matter where the producer id's own id is seen": (
        owners(says=described(TransactionState.EMPTY, ()), may_hide=True),
        None,
        HANGING,
        VerdictReason.NOT_ITS_PARTITION,
    ),
    "24 a completed transaction that still names it (Kafka 3.9) is over": (
        owners(says=described(TransactionState.COMPLETE_COMMIT)),
        None,
        HANGING,
        VerdictReason.NOT_ITS_PARTITION,
    ),
    "25 two-phase commit hangs as well where nobody owns it": (
        owners(says=described(TransactionState.EMPTY, (), timeout_ms=FOR_EVER)),
        None,
        HANGING,
        VerdictReason.NOT_ITS_PARTITION,
    ),
    # Hanging: nobody has the producer id.
    "26 no id has the producer id, and none can be hidden": (
        owners(NOBODY),
        None,
        HANGING,
        VerdictReason.NO_SUCH_PRODUCER,
    ),
    # Unknown.
    "27 no id has it, but ids may be hidden": (
        owners(NOBODY, may_hide=True),
        None,
        UNKNOWN,
        VerdictReason.MAY_BE_HIDDEN,
    ),
    "28 no id has it, but a broker did not answer": (
        owners(NOBODY, whole=False),
        None,
        UNKNOWN,
        VerdictReason.UNSEEN,
    ),
    "29 a broker that did not answer comes before ids that may be hidden": (
        owners(NOBODY, whole=False, may_hide=True),
        None,
        UNKNOWN,
        VerdictReason.UNSEEN,
    ),
    "30 its coordinator did not answer": (
        owners(says=not_described(Obstacle.UNSEEN)),
        None,
        UNKNOWN,
        VerdictReason.UNSEEN,
    ),
    "31 no answer about it at all": (owners(), None, UNKNOWN, VerdictReason.UNSEEN),
    "32 it may not be described": (
        owners(says=not_described(Obstacle.FORBIDDEN)),
        None,
        UNKNOWN,
        VerdictReason.MAY_BE_HIDDEN,
    ),
    "33 the id expired between list and description": (
        owners(says=not_described(Obstacle.UNKNOWN)),
        None,
        UNKNOWN,
        VerdictReason.UNSEEN,
    ),
    "34 the id went on under another producer id in between": (
        owners(says=described(producer_id=8)),
        None,
        UNKNOWN,
        VerdictReason.UNSEEN,
    ),
    "35 known for long, and its coordinator cannot be asked now": (
        owners(says=not_described(Obstacle.UNSEEN)),
        LONG_AGO,
        UNKNOWN,
        VerdictReason.UNSEEN,
    ),
}


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


# Which transactions are looked at: those that were open at the same offset before and after.

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


# Two looks running.


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


# The partition.


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
