"""Proves what decides the cause of a transition beside its records: an action, wherever the stream was cut,
and the last producer epoch of a record (KAFKA-20357), which changes nothing where there is none."""

from itertools import product
from typing import NamedTuple

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
from fenceline.kafka.attributions import ActionCause, action_of, attribute_past
from fenceline.kafka.fold import transition_ring
from fenceline.kafka.fold.aggregate import fold_records
from fenceline.kafka.fold.folded import Folded, Prior
from fenceline.text import explain_transition
from tests.transaction_state_records import encode_key, encode_value
from tests.unit.test_transitions import derived_transitions, record

NAME, PRODUCER, EPOCH, NOW_MS, ACTION = "payments-7", 4_000, 3, 1_700_000_000_000, 12
KEY = encode_key(NAME)
OPEN = (TopicPartitions("orders", (0,)),)
#: Both sides of each window in which an initialisation is taken for one that waited for the abort.
GAPS_MS = (0, 5, 69, 70, 140, 141, 449, 450, 1_100, 1_101, 10_000, 10_001, 60_000)
#: Java's Admin writes 30 s; 50 s is shorter than the transaction was open.
TIMEOUTS_MS = (777_000, 50_000, 30_000)
CAUSES = {
    (PRODUCER, EPOCH + 1, TransactionState.PREPARE_ABORT): ActionCause(ACTION, fence=True),
    (PRODUCER, EPOCH + 2, TransactionState.EMPTY): ActionCause(ACTION, fence=True),
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
    made = []
    for state, epoch, at_ms, partitions in steps:
        begun_ms = at_ms if epoch == EPOCH + 3 else NOW_MS - 60_000
        started_ms = None if state is TransactionState.EMPTY else begun_ms
        fields = NAME, state, PRODUCER, epoch, timeout_ms, partitions, at_ms, started_ms, version
        made.append(TransactionRecord(*fields))
    return made


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
            ring = transition_ring.unpack_ring(whole.packed, 3)
            assert transition_ring.unpack_ring(late.packed, 3) == ring, case
        kinds = [each.kind for each in ring]
        assert kinds[0] is TransitionKind.BEGIN
        assert kinds[2:] == [TransitionKind.ADMIN_FENCE, TransitionKind.BEGIN, TransitionKind.BASELINE], case
        assert (ring[2].confidence, ring[2].gap_ms) == (Confidence.CERTAIN, gap_ms), case
        assert [action_of(each, CAUSES) for each in ring].count(ACTION) == 1, case


def test_attributing_twice_changes_nothing_and_a_verdict_without_an_action_is_not_attributed() -> None:
    packed = revised(folded(Prior(), records(100, 2, 777_000), 0, attributed=False).packed)
    assert attribute_past(transition_ring.unpack_ring(packed, 3), CAUSES) == []
    assert attribute_past((), CAUSES) == []
    numbers = PRODUCER, EPOCH + 1, EPOCH, 30_000, 5, None, None, 3, 9
    fence = Transition(
        TransitionKind.ADMIN_FENCE, Confidence.PROBABLE, TransitionReason.ADMIN_TIMEOUT, NOW_MS, *numbers
    )
    assert action_of(fence, CAUSES) is None
    ours = fence._replace(reason=TransitionReason.FENCED_BY_ACTION)
    assert action_of(ours, CAUSES) == ACTION
    assert action_of(ours, {}) is None


EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_ABORT, COMPLETE_ABORT = TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT
PREPARE_COMMIT, COMPLETE_COMMIT = TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT
IDLE = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
CERTAIN, PROBABLE, AMBIGUOUS = Confidence.CERTAIN, Confidence.PROBABLE, Confidence.AMBIGUOUS
NEWEST_EPOCH, ADMIN_MS = 5, 30_000
#: What an Empty record may name: nothing, the epoch of the record before, and one that does not fit.
NOTHING, OWN, STRANGE = None, NEWEST_EPOCH, NEWEST_EPOCH - 2


class Verdict(NamedTuple):
    """What is said of one record."""

    kind: TransitionKind
    confidence: Confidence
    reason: TransitionReason


RECOVERY = Verdict(TransitionKind.SELF_RECOVERY, CERTAIN, TransitionReason.OWN_EPOCH)
REINIT = Verdict(TransitionKind.REINIT, CERTAIN, TransitionReason.INITIALISED)
FENCE = Verdict(TransitionKind.ADMIN_FENCE, AMBIGUOUS, TransitionReason.ADMIN_TIMEOUT)
NO_STEP = Verdict(TransitionKind.REINIT, AMBIGUOUS, TransitionReason.NO_SUCH_STEP)
#: Raise of the epoch, what the record names -> verdict with the timeout of before, and with the Admin's.
CASES = {
    (0, NOTHING): (RECOVERY, RECOVERY),
    (0, OWN): (RECOVERY, RECOVERY),
    (0, STRANGE): (RECOVERY, RECOVERY),
    (1, NOTHING): (REINIT, FENCE),
    (1, OWN): (RECOVERY, RECOVERY),
    (1, STRANGE): (REINIT, FENCE),
    (2, NOTHING): (NO_STEP, NO_STEP),
    (2, OWN): (NO_STEP, NO_STEP),
    (2, STRANGE): (NO_STEP, NO_STEP),
}


def derived(*records: TransactionRecord) -> list[Transition]:
    """Return all transitions but the first, as they read in the end."""
    return derived_transitions(list(records))[1:]


def verdicts(*records: TransactionRecord) -> list[Verdict]:
    return [Verdict(each.kind, each.confidence, each.reason) for each in derived(*records)]


@pytest.mark.parametrize("state", TransactionState)
@pytest.mark.parametrize(("raised", "named"), CASES)
def test_the_verdict_on_an_initialisation(state: TransactionState, raised: int, named: int | None) -> None:
    before = record(state, NEWEST_EPOCH, 0)
    for timeout_ms, verdict in zip((60_000, ADMIN_MS), CASES[raised, named], strict=True):
        made = record(EMPTY, NEWEST_EPOCH + raised, 900, timeout_ms=timeout_ms, last_producer_epoch=named)
        assert verdicts(before, made) == [verdict if state in IDLE else NO_STEP]


@pytest.mark.parametrize("state", IDLE)
def test_a_new_producer_id_needs_no_last_epoch_to_be_a_rotation(state: TransactionState) -> None:
    before = record(state, 32_766, 0)
    for named in (None, 32_766):
        made = record(EMPTY, 0, 900, producer_id=8, last_producer_epoch=named)
        rotation = Verdict(TransitionKind.ROTATION, CERTAIN, TransitionReason.EPOCH_USED_UP)
        assert verdicts(before, made) == [rotation]


@pytest.mark.parametrize("named", range(8))
@pytest.mark.parametrize("version", [0, 2])
def test_the_last_epoch_of_any_other_state_decides_nothing(version: int, named: int) -> None:
    """Ends of protocol 2 name the epoch before, whoever ended it; protocol 0 carries an older one on."""
    ended = 3 + version // 2
    for prepared, complete in ((PREPARE_COMMIT, COMPLETE_COMMIT), (PREPARE_ABORT, COMPLETE_ABORT)):
        states = EMPTY, ONGOING, ONGOING, prepared, complete, ONGOING
        plain = [
            record(state, 3 if at_ms < 3 else ended, at_ms, client_version=version)
            for at_ms, state in enumerate(states)
        ]
        tagged = [plain[0], *(each._replace(last_producer_epoch=named) for each in plain[1:])]
        assert verdicts(*tagged) == verdicts(*plain)


#: Name of the case, when the abort came, how long after it the Empty record -> what the abort is if that
#: record names the epoch before, and if it names none.
ABORTS = [
    ("soon", 50, 22, (TransitionKind.CLIENT_ABORT, PROBABLE), (TransitionKind.TAKEOVER, AMBIGUOUS)),
    ("between", 50, 5_000, (TransitionKind.CLIENT_ABORT, PROBABLE), (TransitionKind.ABORT, AMBIGUOUS)),
    ("later", 50, 60_000, (TransitionKind.CLIENT_ABORT, PROBABLE), (TransitionKind.CLIENT_ABORT, PROBABLE)),
    ("past the timeout", 60_500, 22, (TransitionKind.TIMEOUT, PROBABLE), (TransitionKind.TIMEOUT, PROBABLE)),
]


@pytest.mark.parametrize(("case", "ended_ms", "after_ms", "named", "unnamed"), ABORTS)
@pytest.mark.parametrize("last", [NEWEST_EPOCH, 32_765])
def test_the_abort_before_a_recovery_is_the_clients(
    case: str, ended_ms: int, after_ms: int, named: object, unnamed: object, last: int
) -> None:
    """A client that names the epoch after an abort was given it as the answer to its own EndTxn."""
    rotates = last > NEWEST_EPOCH
    following = {"producer_id": 8 if rotates else 7, "client_version": 2}
    abort = [
        record(ONGOING, last, 0, client_version=2),
        record(PREPARE_ABORT, last + 1, ended_ms, client_version=2, last_producer_epoch=last),
        record(COMPLETE_ABORT, last + 1, ended_ms + 3, client_version=2, last_producer_epoch=last),
    ]
    for last_epoch, expected in ((last + 1, named), (None, unnamed)):
        empty = record(EMPTY, 0 if rotates else last + 2, ended_ms + after_ms, **following)
        told = derived(*abort, empty._replace(last_producer_epoch=last_epoch))
        assert (told[0].kind, told[0].confidence) == expected
        if last_epoch is not None:
            kind = TransitionKind.ROTATION if rotates else TransitionKind.SELF_RECOVERY
            assert [(each.kind, each.confidence) for each in told[1:]] == [(kind, CERTAIN)]
            assert told[1].gap_ms == (None if rotates else after_ms - 3)


def test_who_recovers_by_itself_was_no_operators_fence() -> None:
    idle, fence = record(COMPLETE_COMMIT, 3, 0), record(EMPTY, 4, 900, timeout_ms=ADMIN_MS)
    own = record(EMPTY, 5, 5_000, timeout_ms=ADMIN_MS, last_producer_epoch=4)
    assert verdicts(idle, fence) == [FENCE]
    expected = [Verdict(TransitionKind.REINIT, CERTAIN, TransitionReason.WENT_ON_TO_BEGIN), RECOVERY]
    assert verdicts(idle, fence, own) == expected


def test_the_evidence_says_which_epoch_was_named() -> None:
    (told,) = derived(record(COMPLETE_COMMIT, 5, 0), record(EMPTY, 6, 900, last_producer_epoch=5))
    assert explain_transition(told) == (
        "The epoch rose from 5 to 6, and the record names 5 as the last epoch: the same producer, or a "
        "process that continues its session, initialised the id again (KIP-360)."
    )
    (told,) = derived(record(EMPTY, 6, 0), record(EMPTY, 6, 900, last_producer_epoch=5))
    assert explain_transition(told).startswith("Initialised again at epoch 6, without a new one")
