"""Proves that no certain verdict is false: no other history leaves the same records and means something
else.

Every history of three steps after a transaction has begun is played (tests/unit/short_histories.py), of two
at the last epoch, and 1,800 longer ones. The table lists every reason with its greatest confidence and the
kinds that its records may be.

Transitions of sequences that were captured from real brokers equal the true events:
tests/data/capture_transaction_state.py played the scenarios with librdkafka, Java and raw requests against
both brokers and wrote the truth beside the bytes. Only what the log does not show of them is listed here.
"""

import json
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from fenceline.decode.transaction_state import decode_record
from fenceline.facts import (
    ACTION_REASONS,
    Confidence,
    TransactionRecord,
    Transition,
    TransitionKind,
    TransitionReason,
    Undecoded,
)
from fenceline.kafka.transitions import IdHistory, derive_transition, next_history
from fenceline.text import explain_transition
from tests.unit.short_histories import EPOCHS, LAST_EPOCH, STEPS, History, Step, begun_history, histories

CERTAIN, PROBABLE, AMBIGUOUS = Confidence.CERTAIN, Confidence.PROBABLE, Confidence.AMBIGUOUS
ABORT, TIMEOUT = TransitionKind.CLIENT_ABORT, TransitionKind.TIMEOUT
TAKEOVER, FENCE = TransitionKind.TAKEOVER, TransitionKind.ADMIN_FENCE
RECOVERY, REINIT = TransitionKind.SELF_RECOVERY, TransitionKind.REINIT
#: Cluster and client by transaction version, and whether records have the last producer epoch: a client of
#: version 2 speaks it to no older cluster, and records of version 0 have no room for tags.
VERSIONS = ((0, 0, False), (2, 0, False), (2, 2, False), (2, 0, True), (2, 2, True))
#: Reasons of certain verdicts, each the only kind that its records may be (REINIT is by whomever).
SURE = {
    TransitionReason.FIRST_SEEN,
    TransitionReason.PARTITION_ADDED,
    TransitionReason.SAME_EPOCH,
    TransitionReason.ROUTINE_BUMP,
    TransitionReason.NOTHING_OPEN,
    TransitionReason.EPOCH_USED_UP,
    TransitionReason.CLIENT_AT_LAST_EPOCH,
}
#: Certain too, and found in no story here: births, tombstones.
SURE_ELSEWHERE = {TransitionReason.NEW_ID, TransitionReason.FORGOTTEN}
#: Certain only where what came before is.
SURE_AFTER_SURE = {
    TransitionReason.INITIALISED,
    TransitionReason.WENT_ON_TO_BEGIN,
    TransitionReason.OWN_EPOCH,
}
#: Reasons that never make a verdict certain: the greatest confidence, and the kinds of the abort (or of the
#: initialisation) that leave the same records.
UNSURE = {
    TransitionReason.BROKER_IN_TIME: (PROBABLE, {TAKEOVER, FENCE, RECOVERY, ABORT}),
    TransitionReason.BROKER_LATE: (PROBABLE, {TIMEOUT, TAKEOVER, FENCE, RECOVERY, ABORT}),
    TransitionReason.EITHER_IN_TIME: (AMBIGUOUS, {ABORT, TAKEOVER, FENCE, RECOVERY}),
    TransitionReason.EITHER_LATE: (PROBABLE, {TIMEOUT, ABORT, TAKEOVER, FENCE, RECOVERY}),
    TransitionReason.CLIENT_WENT_ON: (PROBABLE, {ABORT, TAKEOVER, FENCE, RECOVERY}),
    TransitionReason.CAME_BACK_SOON: (PROBABLE, {TAKEOVER, FENCE, ABORT, TIMEOUT, RECOVERY}),
    TransitionReason.CAME_BACK_LATE: (PROBABLE, {ABORT, TAKEOVER, FENCE, RECOVERY}),
    TransitionReason.ADMIN_TIMEOUT: (AMBIGUOUS, {FENCE, TAKEOVER, REINIT, ABORT, RECOVERY}),
    TransitionReason.ADMIN_TIMEOUT_SOON: (AMBIGUOUS, {FENCE, TAKEOVER, ABORT, RECOVERY}),
    TransitionReason.BROKER_AT_LAST_EPOCH: (PROBABLE, {TAKEOVER, FENCE, RECOVERY, ABORT}),
    TransitionReason.LATE_AT_LAST_EPOCH: (PROBABLE, {TIMEOUT, TAKEOVER, FENCE, RECOVERY, ABORT}),
    TransitionReason.DEFAULT_TIMEOUT: (AMBIGUOUS, {TAKEOVER, FENCE, REINIT, ABORT}),
}
#: Ambiguous whatever they follow, and decided by no story: records are missing, or clocks differ.
VAGUE = {
    TransitionReason.REBORN_UNSEEN,
    TransitionReason.CLOCK_WENT_BACK,
    TransitionReason.NO_SUCH_STEP,
    TransitionReason.CAME_BACK,
}
Log = tuple[TransactionRecord, ...]


def final(log: Log) -> dict[int, Transition]:
    """Return the transitions as they read in the end, by the index of their record."""
    life, found = IdHistory(), dict[int, Transition]()
    for offset, record in enumerate(log):
        step = derive_transition(life, record, 4, offset)
        found |= {told.offset: told for told in step if told is not None}
        life = next_history(life, record, step)
    return found


@cache
def by_log() -> dict[Log, list[tuple[str, History]]]:
    """Return every story by the records that it leaves."""
    found: dict[Log, list[tuple[str, History]]] = defaultdict(list)
    for cluster, client, names_epochs in VERSIONS:
        for epoch in EPOCHS:
            first = begun_history(cluster, client, epoch, names_epochs=names_epochs)
            for steps, story in [
                *histories(first, 3 if epoch < LAST_EPOCH else 2),
                *longer(first, f"{cluster} {client} {epoch}"),
            ]:
                found[tuple(story.coordinator.records)].append((plot(cluster, client, steps), story))
    return found


def longer(first: History, seed: str) -> Iterator[tuple[Sequence[Step], History]]:
    """Yield random stories of up to seven steps; a step that changes nothing is left out."""
    dice = random.Random(seed)
    for _ in range(300):
        steps, story = list[Step](), first
        for step in dice.choices(STEPS, k=30):
            following = story.after(step) if len(steps) < 7 else None
            if following is not None:
                steps, story = [*steps, step], following
        yield steps, story


def plot(cluster: int, client: int, steps: Sequence[Step]) -> str:
    return f"cluster {cluster}, client {client}: {[tuple(step) for step in steps]}"


class ExplainedVerdict(NamedTuple):
    """A verdict on a record, what that is in one story, and the story."""

    verdict: Transition
    true: tuple[TransitionKind, ...]
    plot: str


@cache
def by_reason() -> dict[TransitionReason, list[ExplainedVerdict]]:
    """Return every verdict in every story."""
    found: dict[TransitionReason, list[ExplainedVerdict]] = defaultdict(list)
    for log, told in by_log().items():
        for index, verdict in final(log).items():
            found[verdict.reason] += [
                ExplainedVerdict(verdict, story.coordinator.true[index], plot) for plot, story in told
            ]
    return found


def test_no_certain_verdict_is_false_in_any_history_with_the_same_records() -> None:
    false = [
        f"{verdict.kind} ({verdict.reason}), true is {true}: {plot}"
        for told in by_reason().values()
        for verdict, true, plot in told
        if verdict.confidence is CERTAIN and verdict.kind not in true
    ]
    assert not false, f"{len(false)}:\n" + "\n".join(false[:10])


def test_many_logs_have_more_than_one_history() -> None:
    """Or the test above would prove nothing."""
    shared = [told for told in by_log().values() if len({str(s.coordinator.true) for _, s in told}) > 1]
    assert len(by_log()) > 4_000, len(by_log())
    assert len(shared) > 500, len(shared)


def test_every_reason_is_in_the_table_once() -> None:
    # What our own actions caused is given by coordinators' answers, not by records alone.
    places = [*SURE, *SURE_ELSEWHERE, *SURE_AFTER_SURE, *UNSURE, *VAGUE, *ACTION_REASONS]
    assert sorted(places) == sorted(TransitionReason)


@pytest.mark.parametrize("reason", sorted(SURE))
def test_a_reason_listed_as_certain_is_always_certain(reason: TransitionReason) -> None:
    found = by_reason()[reason]
    assert found
    assert {verdict.confidence for verdict, _, _ in found} == {CERTAIN}


@pytest.mark.parametrize("reason", sorted(UNSURE))
def test_an_uncertain_reason_has_the_alternatives_of_the_table(reason: TransitionReason) -> None:
    confidence, kinds = UNSURE[reason]
    order = [CERTAIN, PROBABLE, AMBIGUOUS]
    found = by_reason()[reason]
    assert min(order.index(verdict.confidence) for verdict, _, _ in found) == order.index(confidence)
    assert sorted({kind for _, true, _ in found for kind in true} - {TransitionKind.ROTATION}) == sorted(
        kinds
    )


@pytest.mark.parametrize("reason", sorted(VAGUE))
def test_a_vague_reason_is_always_ambiguous(reason: TransitionReason) -> None:
    assert {verdict.confidence for verdict, _, _ in by_reason()[reason]} <= {AMBIGUOUS}


FOLDER = Path(__file__).parent.parent / "data" / "transaction_state"
TRUTH: dict[str, dict[str, list[str]]] = json.loads((FOLDER / "truth.json").read_text())
SCENARIOS = [(version, name) for version, scenarios in TRUTH.items() for name in scenarios]
#: Whether a protocol 2 client aborted, or the coordinator, the first do not show. The others do not show
#: whether an Admin fenced, or a producer with its 30 s took over.
UNTOLD = {
    ("4.2.0", f"java-{scenario}")
    for scenario in (
        "commit", "abort", "abort_then_another", "takeover", "takeover_crosswise", "takeover_and_gone",
    )
} | {
    (version, f"{client}-{scenario}")
    for version in TRUTH for client in ("java", "librdkafka") for scenario in ("fence", "fence_idle")
}  # fmt: skip


def captured_transitions(version: str) -> dict[str, list[Transition]]:
    """Return the transitions of each scenario as they read in the end, oldest first."""
    lives: dict[str, IdHistory] = defaultdict(IdHistory)
    found: dict[str, dict[int, Transition]] = defaultdict(dict)
    for line in (FOLDER / f"kafka-{version}.jsonl").read_text().splitlines():
        row = json.loads(line)
        value = None if row["value"] is None else bytes.fromhex(row["value"])
        record = decode_record(bytes.fromhex(row["key"]), value)
        assert not isinstance(record, Undecoded)
        step = derive_transition(lives[row["key"]], record, row["partition"], row["offset"], whole=True)
        lives[row["key"]] = next_history(lives[row["key"]], record, step)
        found[row["scenario"]] |= {told.offset: told for told in (step.revised, step.made) if told}
    return {name: [told[offset] for offset in sorted(told)] for name, told in found.items()}


CAPTURED = {version: captured_transitions(version) for version in TRUTH}


@pytest.mark.parametrize(("version", "scenario"), SCENARIOS)
def test_derived_transitions_equal_the_captured_truth(version: str, scenario: str) -> None:
    told = [each for each in CAPTURED[version][scenario] if each.kind is not TransitionKind.EXTEND]
    if told[-1].kind is TransitionKind.EXPIRY:
        told.pop()
    true = TRUTH[version][scenario]
    if any(each.confidence is Confidence.AMBIGUOUS for each in told):
        assert (version, scenario) in UNTOLD
    else:
        assert [each.kind.value for each in told] == true, [explain_transition(each) for each in told]
