"""Proves that verdicts follow from the records: on random histories (tests/unit/random_histories.py), whose
events and no others must be found unless a verdict is *ambiguous*, and case by case; and what is a series."""

import random
from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.facts import (
    Confidence,
    Tombstone,
    TopicPartitions,
    TransactionRecord,
    TransactionState,
    Transition,
    TransitionKind,
    TransitionReason,
)
from fenceline.history.timeline import in_a_row, latest_streak
from fenceline.kafka.transitions import IdHistory, derive_transition, next_history
from fenceline.text import explain_transition
from tests.cases import cases
from tests.unit.random_histories import START_MS, RandomHistory

SOME = (TopicPartitions("orders", (0,)),)
AMBIGUOUS = Confidence.AMBIGUOUS


def derived_transitions(records: list[TransactionRecord | Tombstone], whole: bool = True) -> list[Transition]:
    """Return all transitions as they read in the end, oldest first; offsets are indices."""
    life, found = IdHistory(), dict[int, Transition]()
    for offset, record in enumerate(records):
        step = derive_transition(life, record, 4, offset, whole=whole)
        for told in (step.revised, step.made):
            if told is not None:
                found[told.offset] = told
        life = next_history(life, record, step)
    return [found[offset] for offset in sorted(found)]


def random_history(seed: int, steps: int) -> RandomHistory:
    walk = RandomHistory("app-1", random.Random(seed))
    while len(walk.events) < steps:
        walk.step()
    return walk


def verdict_errors(walk: RandomHistory) -> list[str]:
    """Return what is wrong with the verdicts on a walk, in words."""
    true: dict[int, set[TransitionKind]] = defaultdict(set)
    for event in walk.events:
        true[event.index].add(event.kind)
    if isinstance(walk.written[0], TransactionRecord) and walk.written[0].state is not TransactionState.EMPTY:
        true[0] = {TransitionKind.BASELINE}
    faults, unsure = [], False
    found = {told.offset: told for told in derived_transitions(walk.written)}
    for index in range(len(walk.written)):
        told = found.get(index)
        if told is None:
            if true[index] and not unsure:
                faults.append(f"{index}: {true[index]} was not found")
            continue
        if told.confidence is not AMBIGUOUS and told.kind not in true[index] and not unsure:
            faults.append(f"{index}: found {told}, true {true[index]}")
        unsure = told.confidence is AMBIGUOUS
    return faults


@given(st.integers(0, 10**9))
def test_a_random_history_gives_its_events_or_is_ambiguous(seed: int) -> None:
    assert verdict_errors(random_history(seed, 60)) == []


ADMINS = {
    TransitionReason.DEFAULT_TIMEOUT, TransitionReason.ADMIN_TIMEOUT, TransitionReason.ADMIN_TIMEOUT_SOON
}  # fmt: skip


def test_only_events_that_the_log_does_not_distinguish_are_ambiguous() -> None:
    """With old clients only an Admin and a client with the Admin's timeout are ambiguous."""
    unsure: Counter[tuple[int, TransitionKind]] = Counter()
    for seed in range(300):
        walk = random_history(seed, 40)
        unsure.update(
            (walk.client, told.kind)
            for told in derived_transitions(walk.written)
            if told.confidence is AMBIGUOUS and told.reason not in ADMINS
        )
    assert {kind for client, kind in unsure if client == 0} == set()
    assert {kind for client, kind in unsure if client == 2} <= {
        TransitionKind.ABORT, TransitionKind.TAKEOVER, TransitionKind.REINIT, TransitionKind.ADMIN_FENCE,
    }  # fmt: skip


def record(state: TransactionState, epoch: int, at_ms: int, **changes: object) -> TransactionRecord:
    """Return a record of an id that began at 0 ms; instants count from the walk's start."""
    partitions = {
        TransactionState.EMPTY: None,
        TransactionState.ONGOING: SOME,
        TransactionState.PREPARE_ABORT: SOME,
        TransactionState.PREPARE_COMMIT: SOME,
    }
    started = None if state is TransactionState.EMPTY else START_MS
    made = TransactionRecord(
        "a-1", state, 7, epoch, 60_000, partitions.get(state, ()), START_MS + at_ms, started
    )
    return made._replace(**changes)


def only_verdict(*records: TransactionRecord) -> tuple[TransitionKind, Confidence, TransitionReason]:
    """Return the verdict on how the transaction that the first record begins ended."""
    told = next(
        each
        for each in derived_transitions(list(records))
        if each.kind not in (TransitionKind.BASELINE, TransitionKind.BEGIN)
    )
    return told.kind, told.confidence, told.reason


ONGOING, PREPARED = TransactionState.ONGOING, TransactionState.PREPARE_ABORT
ABORTED, EMPTY = TransactionState.COMPLETE_ABORT, TransactionState.EMPTY


def test_the_bug_of_kafka_4_0_0_is_the_coordinators_abort() -> None:
    """KAFKA-19367: its own aborts raised the epoch by two."""
    begun = record(ONGOING, 3, 0, client_version=2)
    for at_ms, kind in ((900, TransitionKind.TAKEOVER), (61_000, TransitionKind.TIMEOUT)):
        ended = record(PREPARED, 5, at_ms, client_version=2)
        assert only_verdict(begun, ended)[0] is kind


def test_a_clock_that_went_forward_an_hour_is_a_late_timeout_but_two_phase_commit_never_times_out() -> None:
    begun, ended = record(ONGOING, 3, 0), record(PREPARED, 4, 3_600_000)
    expected = (TransitionKind.TIMEOUT, Confidence.PROBABLE, TransitionReason.BROKER_LATE)
    assert only_verdict(begun, ended) == expected
    begun = record(ONGOING, 3, 0, timeout_ms=2**31 - 1)
    ended = record(PREPARED, 4, 9 * 10**9, timeout_ms=2**31 - 1)
    assert only_verdict(begun, ended)[0] is TransitionKind.TAKEOVER


@pytest.mark.parametrize("hours", [-1, -24])
def test_a_clock_that_went_back_gives_an_ambiguous_verdict(hours: int) -> None:
    """The coordinator moved to a broker whose clock is an hour behind."""
    begun, ended = record(ONGOING, 3, 0), record(PREPARED, 4, hours * 3_600_000)
    assert only_verdict(begun, ended) == (TransitionKind.ABORT, AMBIGUOUS, TransitionReason.CLOCK_WENT_BACK)
    (_, told) = derived_transitions([begun, ended])
    assert "before its start" in explain_transition(told)


@cases(record(ONGOING, 4, 70_000), record(PREPARED, 5, 70_000)._replace(partitions=()))
def test_a_late_abort_after_which_the_client_continues_stays_a_timeout(gone_on: TransactionRecord) -> None:
    """The coordinator answers an abort after its own with success and the new epoch, and writes nothing."""
    told = only_verdict(
        record(ONGOING, 3, 0, client_version=2),
        record(PREPARED, 4, 61_000, client_version=2),
        record(ABORTED, 4, 61_005, client_version=2),
        gone_on._replace(client_version=2, started_ms=START_MS + 70_000),
    )
    assert told == (TransitionKind.TIMEOUT, Confidence.PROBABLE, TransitionReason.EITHER_LATE)


def test_a_client_that_continues_after_an_abort_in_time_probably_aborted() -> None:
    """An InitProducerId of another producer, and then the client's abort, leave the same records."""
    records = [
        record(ONGOING, 3, 0, client_version=2),
        record(PREPARED, 4, 900, client_version=2),
        record(ABORTED, 4, 905, client_version=2),
        record(ONGOING, 4, 1_000, client_version=2, started_ms=START_MS + 1_000),
    ]
    expected = (TransitionKind.CLIENT_ABORT, Confidence.PROBABLE, TransitionReason.CLIENT_WENT_ON)
    assert only_verdict(*records) == expected
    assert "foreign InitProducerId" in explain_transition(derived_transitions(records)[1])


#: When an initialisation follows an abort whose markers took 5 ms, and how that reads under version 2.
@cases(
    ("at once", 5, TransitionKind.ABORT, TransitionReason.CAME_BACK),
    ("franz-go", 22, TransitionKind.TAKEOVER, TransitionReason.CAME_BACK_SOON),
    ("Java", 95, TransitionKind.TAKEOVER, TransitionReason.CAME_BACK_SOON),
    ("Java, loaded host", 403, TransitionKind.TAKEOVER, TransitionReason.CAME_BACK_SOON),
    ("librdkafka, loaded host", 1_400, TransitionKind.TAKEOVER, TransitionReason.CAME_BACK_SOON),
    ("a restart", 4_000, TransitionKind.ABORT, TransitionReason.CAME_BACK),
)
def test_an_initialisation_within_the_time_of_any_clients_retry_reads_as_a_takeover(
    who: str, after_ms: int, kind: TransitionKind, reason: TransitionReason
) -> None:
    records = [
        record(ONGOING, 3, 0, client_version=2),
        record(PREPARED, 4, 900, client_version=2),
        record(ABORTED, 4, 905, client_version=2),
        record(EMPTY, 5, 905 + after_ms, client_version=2, timeout_ms=45_000),
    ]
    assert only_verdict(*records) == (kind, AMBIGUOUS, reason), who
    ended = next(told for told in derived_transitions(records) if told.open_ms is not None)
    words = explain_transition(ended)
    assert "takeover whose client retried after CONCURRENT_TRANSACTIONS" in words
    assert "the client's own abort followed by a new initialisation" in words


NEXT_ID = {"producer_id": 8, "producer_epoch": 0}


@cases(
    (900, NEXT_ID, TransitionKind.CLIENT_ABORT, Confidence.CERTAIN),
    (61_000, NEXT_ID, TransitionKind.CLIENT_ABORT, Confidence.CERTAIN),
    (900, {}, TransitionKind.TAKEOVER, Confidence.PROBABLE),
    (61_000, {}, TransitionKind.TIMEOUT, Confidence.PROBABLE),
)
def test_at_the_last_epoch_the_producer_id_distinguishes_a_clients_abort_from_the_coordinators(
    at_ms: int, changes: dict[str, int], kind: TransitionKind, confidence: Confidence
) -> None:
    begun = record(ONGOING, 32_766, 0, client_version=2)
    ended = record(PREPARED, 32_767, at_ms, client_version=2)
    done = record(ABORTED, 32_767, at_ms + 5, client_version=2)._replace(**changes)
    assert only_verdict(begun, ended, done)[:2] == (kind, confidence)
    # The abort itself may name the next producer id: then it is the client's.
    expected = (TransitionKind.CLIENT_ABORT, Confidence.CERTAIN, TransitionReason.CLIENT_AT_LAST_EPOCH)
    assert only_verdict(begun, ended._replace(next_producer_id=8)) == expected


def test_a_verdict_is_revised_at_its_own_offset() -> None:
    life, begun = IdHistory(), record(ONGOING, 3, 0, client_version=2)
    steps = []
    for offset, each in enumerate(
        [begun, record(PREPARED, 4, 50, client_version=2), record(ABORTED, 4, 55, client_version=2)]
    ):
        step = derive_transition(life, each, 4, offset)
        life = next_history(life, each, step)
        steps.append(step)
    assert steps[1].made is not None
    assert (steps[1].made.kind, steps[1].made.confidence) == (TransitionKind.ABORT, AMBIGUOUS)
    assert steps[2].revised == steps[1].made._replace(completed_ms=START_MS + 55)
    step = derive_transition(life, record(EMPTY, 5, 60_000, client_version=2), 4, 3)
    assert step.revised is not None
    assert step.revised.offset == 1
    assert (step.revised.kind, step.revised.confidence) == (TransitionKind.CLIENT_ABORT, Confidence.PROBABLE)


def test_transitions_that_kafka_does_not_have_are_ambiguous_and_raise_nothing() -> None:
    """Every pair of states, epochs that jump, producer ids that change."""
    for before in TransactionState:
        for after in TransactionState:
            for epoch, producer_id in ((3, 7), (9, 7), (0, 8), (5, 8)):
                first = record(before, 3, 0)
                second = record(after, epoch, 10, producer_id=producer_id)
                for told in derived_transitions([first, second]):
                    assert explain_transition(told)


def test_the_first_record_of_an_id_is_its_birth_only_where_nothing_is_missing() -> None:
    born = record(EMPTY, 0, 0)
    assert [told.kind for told in derived_transitions([born])] == [TransitionKind.INIT]
    assert [told.kind for told in derived_transitions([born], whole=False)] == [TransitionKind.BASELINE]
    assert [told.kind for told in derived_transitions([record(EMPTY, 3, 0)])] == [TransitionKind.BASELINE]


def test_every_reason_has_a_text_with_real_durations() -> None:
    said = {
        explain_transition(told)
        for seed in range(60)
        for told in derived_transitions(random_history(seed, 60).written)
    }
    assert all("None" not in words and "{" not in words and "unknown time" not in words for words in said)


def test_a_series_ends_where_it_paused() -> None:
    for times, series in (
        ([0, 100, 500, 590, 600], [500, 590, 600]),
        ([0, 100, 200], [0, 100, 200]),
        ([7], [7]),
        ([], []),
    ):
        assert latest_streak(times, within_ms=100) == series


def test_a_commit_ends_the_series_and_other_transitions_do_not() -> None:
    timeout, commit = TransitionKind.TIMEOUT, TransitionKind.COMMIT
    others = TransitionKind.REINIT, TransitionKind.BEGIN
    steps = timeout, commit, timeout, *others, timeout, TransitionKind.EMPTY_ABORT
    assert [each.offset for each in in_a_row(transitions_of(*steps))] == [2, 5]
    assert in_a_row(transitions_of(timeout, timeout, commit)) == []


def transitions_of(*kinds: TransitionKind) -> list[Transition]:
    return [
        Transition(kind, Confidence.CERTAIN, TransitionReason.BROKER_LATE, n, 1, 2, 2, 3, 4, None, None, 0, n)
        for n, kind in enumerate(kinds)
    ][::-1]
