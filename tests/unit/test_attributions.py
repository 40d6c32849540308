"""Proves, for every way in which a fence by an action can read without that action, that attributing its
records as they are folded and attributing what was folded before come to the same, wherever the stream was
cut."""

from itertools import product

import pytest

from fenceline.facts import (
    Confidence,
    RawRecord,
    TopicPartitions,
    TransactionRecord,
    TransactionState,
    Transition,
    TransitionKind,
    TransitionReason,
)
from fenceline.kafka.attributions import ActionCause, RecordIdentity, action_of, attribute_past
from fenceline.kafka.fold import transition_ring
from fenceline.kafka.fold.aggregate import fold_records
from fenceline.kafka.fold.folded import Folded, Prior
from tests.transaction_state_records import encode_key, encode_value

NAME, PRODUCER, EPOCH, NOW_MS, ACTION = "payments-7", 4_000, 3, 1_700_000_000_000, 12
KEY = encode_key(NAME)
OPEN = (TopicPartitions("orders", (0,)),)
#: Both sides of each window in which an initialisation is taken for one that waited for the abort.
GAPS_MS = (0, 5, 69, 70, 140, 141, 449, 450, 1_100, 1_101, 10_000, 10_001, 60_000)
#: Java's Admin writes 30 s; 50 s is shorter than the transaction was open.
TIMEOUTS_MS = (777_000, 50_000, 30_000)
CAUSES = {
    RecordIdentity(PRODUCER, EPOCH + 1, TransactionState.PREPARE_ABORT): ActionCause(ACTION, fence=True),
    RecordIdentity(PRODUCER, EPOCH + 2, TransactionState.EMPTY): ActionCause(ACTION, fence=True),
}


def records(gap_ms: int, version: int, timeout_ms: int) -> list[TransactionRecord]:
    """A producer, its transaction, the fence by an action, and a producer that comes back."""
    done = NOW_MS + 10
    steps = [
        (TransactionState.EMPTY, EPOCH, NOW_MS - 61_000, None),
        (TransactionState.ONGOING, EPOCH, NOW_MS - 60_000, OPEN),
        (TransactionState.PREPARE_ABORT, EPOCH + 1, NOW_MS, OPEN),
        (TransactionState.COMPLETE_ABORT, EPOCH + 1, done, ()),
        (TransactionState.EMPTY, EPOCH + 2, done + gap_ms, None),
        (TransactionState.EMPTY, EPOCH + 3, done + gap_ms + 1_000, None),
        (TransactionState.ONGOING, EPOCH + 3, done + gap_ms + 2_000, OPEN),
    ]
    return [
        TransactionRecord(
            NAME,
            state,
            PRODUCER,
            epoch,
            timeout_ms,
            partitions,
            at_ms,
            None if state is TransactionState.EMPTY else at_ms if epoch == EPOCH + 3 else NOW_MS - 60_000,
            version,
        )
        for state, epoch, at_ms, partitions in steps
    ]


def folded(prior: Prior, some: list[TransactionRecord], start: int, *, attributed: bool) -> Prior:
    raws = [RawRecord(encode_value(each), start + number) for number, each in enumerate(some)]
    found = Folded()
    fold_records(found, 3, {KEY: raws}, {KEY: prior}, (), {KEY: CAUSES} if attributed else {})
    newest = found.newest[KEY]
    state = None if newest.record is None else newest.record.state
    return Prior(state, newest.record, newest.offset, newest.packed)


def revised(packed: bytes) -> bytes:
    before = transition_ring.unpack_ring(packed, 3)
    changes = dict(attribute_past(before, CAUSES))
    after = [changes.get(each, each) for each in before]
    return transition_ring.pack_ring([transition_ring.pack_entry(each) for each in after if each is not None])


@pytest.mark.parametrize("version", [0, 2])
def test_the_order_of_record_and_result_makes_no_difference(version: int) -> None:
    for gap_ms, timeout_ms in product(GAPS_MS, TIMEOUTS_MS):
        every = records(gap_ms, version, timeout_ms)
        whole = folded(Prior(), every, 0, attributed=True)
        for at in range(1, len(every) + 1):
            early = folded(Prior(), every[:at], 0, attributed=False)
            late = early._replace(packed=revised(early.packed))
            if every[at:]:
                late = folded(late, every[at:], at, attributed=True)
            case = f"version {version}, gap {gap_ms}, timeout {timeout_ms}, result after record {at}"
            assert transition_ring.unpack_ring(late.packed, 3) == transition_ring.unpack_ring(
                whole.packed, 3
            ), case
        kinds = [each.kind for each in transition_ring.unpack_ring(whole.packed, 3)]
        assert kinds[0] is TransitionKind.BEGIN
        assert kinds[2:] == [TransitionKind.ADMIN_FENCE, TransitionKind.BEGIN, TransitionKind.BASELINE], case
        fence = transition_ring.unpack_ring(whole.packed, 3)[2]
        assert (fence.confidence, fence.gap_ms) == (Confidence.CERTAIN, gap_ms), case
        assert [action_of(each, CAUSES) for each in transition_ring.unpack_ring(whole.packed, 3)].count(
            ACTION
        ) == 1, case


def test_attributing_twice_changes_nothing() -> None:
    packed = revised(folded(Prior(), records(100, 2, 777_000), 0, attributed=False).packed)
    assert attribute_past(transition_ring.unpack_ring(packed, 3), CAUSES) == []
    assert attribute_past((), CAUSES) == []


def test_a_verdict_without_an_action_is_not_attributed() -> None:
    numbers = PRODUCER, EPOCH + 1, EPOCH, 30_000, 5, None, None, 3, 9
    fence = Transition(
        TransitionKind.ADMIN_FENCE, Confidence.PROBABLE, TransitionReason.ADMIN_TIMEOUT, NOW_MS, *numbers
    )
    assert action_of(fence, CAUSES) is None
    ours = fence._replace(reason=TransitionReason.FENCED_BY_ACTION)
    assert action_of(ours, CAUSES) == ACTION
    assert action_of(ours, {}) is None
