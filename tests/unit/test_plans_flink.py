"""Proves when the commit of what a Flink checkpoint decided is allowed, and when a fence of such an id is
refused, by tables; what both name as lost; and what is foretold of a restore."""

from dataclasses import replace
from typing import Any

import pytest

from fenceline.engines.flink.records import Committable, TransactionOwnership
from fenceline.engines.flink.restore import (
    CommitFate,
    CoordinatorView,
    Lingering,
    commit_fate,
    lingering_kind,
    restore_sentence,
    subtask_and_number,
)
from fenceline.facts import TransactionState
from fenceline.kafka.reconcile import NotDescribed, Obstacle
from fenceline.limits import Limits
from fenceline.plans.flink_commits import FlinkHold, flink_commit_warnings, plan_flink_commit
from fenceline.plans.offers import appraise_fence
from fenceline.plans.plan import Act, Plan, SubjectPlan, from_json
from fenceline.plans.plan import RefusalReason as Why
from fenceline.plans.producers import Producer, fencing_warnings, flink_transaction, plan_fence
from tests.cases import cases
from tests.unit.factories import MINE, MINUTE_MS, NOW_MS, OTHER, described_transaction, plan_producer

ID = "copy-0-41"
HELD = Committable(ID, MINE, 3, 41, "out")
#: A job whose checkpoint was completed a minute after the transaction of `plan_producer` began.
HOLD = FlinkHold("job@1", "copy", "chk-41", 41, NOW_MS - 9 * MINUTE_MS, False, HELD)
NOT_HELD = replace(HOLD, committable=None)
IMPLICIT, EXPLICIT, OLDER_SINK = TransactionOwnership


def producer(hold: FlinkHold | None = HOLD, said: Any = None, **fields: Any) -> Producer:
    described = said or described_transaction(ID)
    return plan_producer(ID, described, flink=hold, **fields)


def open_as(**fields: Any) -> Any:
    return described_transaction(ID, **fields)


def commit(each: Producer) -> SubjectPlan:
    found = plan_flink_commit(flink_transaction(each))
    whole = Plan(Act.COMMIT_FLINK, "prod", NOW_MS, ID, (found,))
    assert from_json(whole.as_json()).digest == whole.digest
    return found


def fence(each: Producer) -> SubjectPlan:
    return plan_fence(each, now_ms=NOW_MS, limits=Limits())


def grounds(subject: SubjectPlan) -> list[tuple[Why, bool]]:
    return [(each.ground, each.forceable) for each in subject.refusals]


@cases(
    # Allowed: open as the checkpoint recorded it, begun before that was completed, or at an unknown time.
    (producer(), []),
    (producer(started_ms=None), []),
    (producer(replace(HOLD, completed_ms=None)), []),
    (producer(replace(HOLD, is_savepoint=None)), []),
    # Refused: no checkpoint decided it.
    (producer(None), [(Why.NOT_CHECKPOINTED, False)]),
    (producer(NOT_HELD), [(Why.NOT_CHECKPOINTED, False)]),
    # Refused: what it decided may have changed.
    (producer(replace(HOLD, trouble="its root is away")), [(Why.CHECKPOINT_UNREADABLE, False)]),
    # Refused: not this transaction, or not open any more.
    (producer(said=open_as(producer_epoch=4)), [(Why.ALREADY_ENDED, False)]),
    (producer(said=open_as(producer_id=OTHER)), [(Why.ALREADY_ENDED, False)]),
    (producer(said=open_as(state=TransactionState.COMPLETE_COMMIT)), [(Why.ALREADY_ENDED, False)]),
    (producer(said=open_as(state=TransactionState.PREPARE_ABORT)), [(Why.ALREADY_ENDED, False)]),
    (producer(said=open_as(state=TransactionState.EMPTY)), [(Why.ALREADY_ENDED, False)]),
    # Refused unless forced: begun after the checkpoint, by clocks that may differ.
    (producer(started_ms=NOW_MS), [(Why.BEGAN_LATER, True)]),
    # Refused unless forced: the job may be restored from elsewhere, and write the same again.
    (producer(replace(HOLD, is_savepoint=True)), [(Why.SAVEPOINT, True)]),
    (producer(replace(HOLD, newer_job="job@2")), [(Why.NEWER_JOB, True)]),
    # Refused: not seen.
    (producer(said=NotDescribed(Obstacle.UNKNOWN, "no such id")), [(Why.UNKNOWN_ID, False)]),
    (producer(said=NotDescribed(Obstacle.UNSEEN, "broker away")), [(Why.NOT_SEEN, False)]),
)  # fmt: skip
def test_a_commit_is_allowed_for_just_what_the_checkpoint_decided(
    each: Producer, expected: list[tuple[Why, bool]]
) -> None:
    found = commit(each)
    assert grounds(found) == expected
    assert bool(found.steps) is all(forceable for _, forceable in expected)


@cases(
    (IMPLICIT, "A restore aborts it and reads"),
    (OLDER_SINK, "aborts it, if its pools have the id, and reads"),
)
def test_a_restore_of_the_older_sink_aborts_ids_of_its_pools_alone(
    ownership: TransactionOwnership, words: str
) -> None:
    found = commit(producer(replace(NOT_HELD, ownerships=frozenset({ownership}))))
    assert words in found.refusals[0].words


@pytest.mark.parametrize(("ownership", "words"), [(IMPLICIT, "has gone on"), (EXPLICIT, "has a newer")])
def test_a_newer_transaction_of_a_pools_id_is_never_committed(
    ownership: TransactionOwnership, words: str
) -> None:
    hold = replace(HOLD, ownerships=frozenset({ownership}))
    found = commit(producer(hold, said=open_as(producer_epoch=4)))
    assert grounds(found) == [(Why.ALREADY_ENDED, False)]
    assert words in found.refusals[0].words


def test_a_commit_names_what_is_committed_and_that_nothing_is_lost() -> None:
    found = commit(producer())
    effects = {each.name: each for each in found.effects}
    assert effects["records_committed"].amount == 2
    assert "Nothing is lost" in effects["checkpoint_carried_out"].words
    assert "records_lost" not in effects
    assert [each.request for each in found.steps] == ["EndTxn"]
    assert f"producer id {MINE}, epoch 3" in found.steps[0].words
    assert found.seen["checkpoint"] == "chk-41"


@pytest.mark.parametrize(("age_ms", "warned"), [(1_000, True), (10 * MINUTE_MS, False)])
def test_a_young_checkpoint_is_a_warning_that_the_job_may_commit_itself(age_ms: int, warned: bool) -> None:
    hold = replace(HOLD, completed_ms=NOW_MS - age_ms)
    words = " ".join(flink_commit_warnings([flink_transaction(producer(hold))], now_ms=NOW_MS))
    assert ("may be running" in words) is warned
    assert "From an older one, or started anew, it writes the same records again." in words


@cases(
    # A checkpoint decided just this transaction.
    (producer(), True),
    (producer(replace(HOLD, trouble="its root is away")), True),
    (producer(replace(HOLD, is_savepoint=True)), True),
    # None did: the id's shape, or its prefix, refuses nothing.
    (producer(None), False),
    (producer(NOT_HELD), False),
    (producer(said=open_as(producer_epoch=4)), False),
)
def test_a_fence_is_refused_for_what_a_checkpoint_decided_alone(each: Producer, refused: bool) -> None:
    found = fence(each)
    assert grounds(found) == ([(Why.CHECKPOINTED, True)] if refused else [])
    if refused:
        assert f"commit_flink {ID}" in found.refusals[0].words
        assert "its records are lost" in found.refusals[0].words


@cases(
    (NOT_HELD, "a fence loses nothing that was decided"),
    (replace(NOT_HELD, trouble="its root is away"), "may lose checkpointed data"),
    (None, "If it is Flink's, a checkpoint may have decided to commit it"),
)
def test_a_fence_of_an_id_of_a_sink_names_what_is_known(hold: FlinkHold | None, words: str) -> None:
    (found,) = fencing_warnings([producer(hold)], now_ms=NOW_MS)
    assert words in found


COMMITTED, ABORTED = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT


@cases(
    (CoordinatorView(TransactionState.ONGOING, MINE, 3), CommitFate.PENDING),
    (CoordinatorView(COMMITTED, MINE, 3), CommitFate.COMMITTED),
    # Transaction version 2 raises the epoch with each end.
    (CoordinatorView(COMMITTED, MINE, 4), CommitFate.COMMITTED),
    (CoordinatorView(TransactionState.PREPARE_COMMIT, MINE, 3), CommitFate.COMMITTED),
    # A timeout or a fence aborts at the next epoch.
    (CoordinatorView(ABORTED, MINE, 4), CommitFate.LOST),
    (CoordinatorView(TransactionState.PREPARE_ABORT, MINE, 4), CommitFate.LOST),
    (CoordinatorView(ABORTED, MINE, 3), CommitFate.LOST),
    # The id has gone on.
    (CoordinatorView(TransactionState.ONGOING, MINE, 4), CommitFate.ENDED),
    (CoordinatorView(COMMITTED, MINE, 5), CommitFate.ENDED),
    (CoordinatorView(ABORTED, OTHER, 3), CommitFate.ENDED),
    (CoordinatorView(TransactionState.EMPTY, MINE, 3), CommitFate.UNKNOWN),
    (None, CommitFate.UNKNOWN),
)
def test_the_coordinator_shows_what_became_of_it(now: CoordinatorView | None, fate: CommitFate) -> None:
    assert commit_fate(HELD, now) is fate


def test_a_restore_is_foretold_in_one_sentence() -> None:
    fates = [CommitFate.COMMITTED, CommitFate.PENDING, CommitFate.PENDING, CommitFate.LOST]
    assert restore_sentence("chk-41", fates) == (
        "A restore from chk-41 loses the records of 1 transaction, aborted before; commits 2 transactions; "
        "finds 1 transaction committed."
    )
    assert restore_sentence("chk-41", []) == "A restore from chk-41 has nothing to commit."


@cases(
    ("copy-0-41", (0, 41)),
    ("copy-12-0", (12, 0)),
    ("copy-0", None),
    ("copy-0-41-1", None),
    ("copy-a-1", None),
    ("copying-0-1", None),
    ("copy--1", None),
    ("copy-0-4١", None),
)
def test_an_id_of_a_sink_is_its_prefix_a_subtask_and_a_number(
    name: str, found: tuple[int, int] | None
) -> None:
    assert subtask_and_number(name, "copy") == found


@cases(
    # Names count checkpoints.
    ("copy-0-42", [IMPLICIT], 0, Lingering.WRITING),
    ("copy-0-41", [IMPLICIT], 30_000, Lingering.LEFT),
    ("copy-0-41", [IMPLICIT], 0, Lingering.UNDECIDED),
    ("copy-0-41", [IMPLICIT], None, Lingering.LEFT),
    # Names of a pool: by when it began, against the newest checkpoint and the one before.
    ("copy-0-1", [EXPLICIT], 1_000, Lingering.WRITING),
    ("copy-0-1", [EXPLICIT], 30_000, Lingering.UNDECIDED),
    ("copy-0-1", [EXPLICIT], 90_000, Lingering.LEFT),
    # Two sinks with one prefix name differently: the name shows nothing.
    ("copy-0-41", [EXPLICIT, IMPLICIT], 1_000, Lingering.WRITING),
    ("copy-0-1", [EXPLICIT], None, Lingering.UNDECIDED),
)
def test_another_open_transaction_of_a_prefix_is_judged(
    name: str, ownerships: list[TransactionOwnership], age_ms: int | None, kind: Lingering
) -> None:
    completed_ms = [NOW_MS - 10_000, NOW_MS - 60_000]
    started_ms = None if age_ms is None else NOW_MS - age_ms
    assert lingering_kind(name, started_ms, "copy", ownerships, 41, completed_ms) is kind


LEFT = replace(NOT_HELD, prefix="copy", ownerships=frozenset({IMPLICIT}))
POOLED = replace(LEFT, ownerships=frozenset({EXPLICIT}), completions_ms=(NOW_MS - 100, NOW_MS - 200))


@cases(
    (LEFT, "copy-7-39", NOW_MS - 900_000, False),
    (LEFT, "copy-0-42", NOW_MS - 900_000, True),
    (replace(LEFT, committable=HELD), "copy-0-41", NOW_MS - 900_000, True),
    (replace(LEFT, trouble="it was polled last at 10:00"), "copy-7-39", NOW_MS - 900_000, True),
    (replace(LEFT, is_savepoint=True), "copy-7-39", NOW_MS - 900_000, True),
    (replace(LEFT, checkpoint_id=None), "copy-7-39", NOW_MS - 900_000, True),
    (POOLED, "copy-0-3", NOW_MS - 300, False),
    (POOLED, "copy-0-3", NOW_MS - 150, True),
    (POOLED, "copy-0-3", NOW_MS - 50, True),
    (POOLED, "copy-0-3", None, True),
    (replace(LEFT, completions_ms=(NOW_MS - 500,)), "copy-7-39", NOW_MS - 300, True),
    (replace(LEFT, completions_ms=(NOW_MS - 200,)), "copy-7-39", NOW_MS - 300, False),
    (None, "copy-7-39", NOW_MS - 900_000, True),
    (None, "copy", NOW_MS - 900_000, False),
)
def test_a_fence_comes_first_where_no_checkpoint_will_commit_the_transaction(
    hold: FlinkHold | None, name: str, started_ms: int | None, may_lose: bool
) -> None:
    each = plan_producer(name, described_transaction(name), flink=hold, started_ms=started_ms)
    assert appraise_fence(each, now_ms=NOW_MS, limits=Limits()).may_lose is may_lose


#: Checkpoints each ten seconds, the last one two minutes ago.
STOPPED = replace(LEFT, completions_ms=(NOW_MS - 120_000, NOW_MS - 130_000, NOW_MS - 140_000))
MINUTES = replace(LEFT, completions_ms=(NOW_MS - 120_000, NOW_MS - 240_000))


@cases(
    (STOPPED, 119_000, False),
    (STOPPED, 30_000, True),
    (STOPPED, None, True),
    (MINUTES, 119_000, True),
    (replace(STOPPED, completions_ms=(NOW_MS - 900_000,)), 119_000, True),
    (replace(STOPPED, committable=HELD), 119_000, True),
    (replace(STOPPED, trouble="it was polled last at 10:00"), 119_000, True),
    (replace(STOPPED, completions_ms=(NOW_MS - 50_000, NOW_MS - 60_000)), 119_000, True),
)
def test_what_a_stopped_job_has_written_for_its_next_checkpoint_is_fenced_first_once_it_is_silent(
    hold: FlinkHold, silent_ms: int | None, may_lose: bool
) -> None:
    name, silent_since_ms = "copy-0-42", None if silent_ms is None else NOW_MS - silent_ms
    each = plan_producer(
        name,
        described_transaction(name),
        flink=hold,
        started_ms=NOW_MS - 119_500,
        silent_since_ms=silent_since_ms,
    )
    assert appraise_fence(each, now_ms=NOW_MS, limits=Limits()).may_lose is may_lose
