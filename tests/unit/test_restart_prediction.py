"""Proves each row of the decision table: what a restart would do, by Spark's version and by what is missing.

That Spark does so is proved on it in tests/spark/test_restarts.py; versions before 4.2 follow
docs/design/spark.md.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.facts import Severity, TopicPartition
from fenceline.spark.records import Broken, Checkpoint, CommitsEntry, Damage, OffsetsEntry, SourceOffset
from fenceline.spark.restart_prediction import COPY_FIRST, Restart, RestartVerdict, predict_restart
from tests.cases import cases
from tests.copy_advice import assert_advises_a_copy_first

V = RestartVerdict
#: Verdicts that are no reason to worry.
QUIET = {V.NOT_STARTED, V.CLEAN, V.IN_FLIGHT, V.CONTINUOUS}


def offsets(batch: int, *, sources: int = 1, version: int = 1, **more: Any) -> OffsetsEntry:
    lines = tuple(SourceOffset(str(number), "5") for number in range(sources))
    return OffsetsEntry(batch, version, lines, planned_ms=1_795_000_000_000 + batch, **more)


def commit(batch: int, **more: Any) -> CommitsEntry:
    return CommitsEntry(batch, more.pop("version", 1), 0, **more)


def checkpoint_of(
    planned: range | tuple[int, ...], finished: range | tuple[int, ...], **more: Any
) -> Checkpoint:
    """Return a checkpoint with such logs, whose files are whole."""
    whole = Checkpoint(
        path="/checkpoints/orders",
        query_id="9e0e48fd-8628-4fc5-ba71-6cd718564ea4",
        identity=None,
        offsets=tuple(planned),
        commits=tuple(finished),
        last_offsets=offsets(planned[-1]) if planned else None,
        previous_offsets=offsets(planned[-2]) if len(planned) > 1 else None,
        last_commit=commit(finished[-1]) if finished else None,
    )
    return replace(whole, **more)


def broken_file(path: str, damage: Damage) -> Broken:
    return Broken(path, damage, "in these words")


def lost_identity(damage: Damage = Damage.MISSING) -> Mapping[str, Any]:
    return {"query_id": None, "identity": broken_file("metadata", damage)}


@cases(
    (checkpoint_of((), ()), V.NOT_STARTED, 0, "runs batch 0, from where its options begin"),
    (
        checkpoint_of((), (), initial={"0": {TopicPartition("t", 0): 0}}),
        V.NOT_STARTED,
        0,
        "runs batch 0, from sources/0/0",
    ),
    (checkpoint_of((), (), **lost_identity()), V.NOT_STARTED, 0, "runs batch 0"),
    (checkpoint_of(range(6), range(6)), V.CLEAN, 6, "runs batch 6"),
    (checkpoint_of(range(40, 141), range(40, 141)), V.CLEAN, 141, "runs batch 141"),
    # Later formats that Spark 4.2 writes.
    (checkpoint_of(range(3), range(3), last_offsets=offsets(2, version=2)), V.CLEAN, 3, "runs batch 3"),
    (checkpoint_of(range(3), range(3), last_commit=commit(2, version=2)), V.CLEAN, 3, "runs batch 3"),
    (checkpoint_of(range(3), range(3), last_commit=commit(2, version=3)), V.CLEAN, 3, "runs batch 3"),
    (checkpoint_of((0,), ()), V.REPLAY, 0, "runs batch 0 again with the same range"),
    (checkpoint_of(range(19), range(18)), V.REPLAY, 18, "runs batch 18 again with the same range"),
    (checkpoint_of(range(6), range(3)), V.SILENT_GAP, 5, "offsets/4 and skips batches 3 to 4"),
    (checkpoint_of(range(6), range(4)), V.SILENT_GAP, 5, "offsets/4 and skips batch 4 with"),
    (checkpoint_of(range(6), ()), V.SILENT_GAP, 5, "offsets/4 and skips batches 0 to 4"),
    (
        checkpoint_of(
            range(6), range(4), last_commit=commit(3, version=2, state_ids={"0": [["x"]]}), has_state=True
        ),
        V.SILENT_GAP,
        None,
        "fails: only commits/4 records which files hold the state after batch 4",
    ),
    (checkpoint_of((0, 1, 3, 4, 5), range(6)), V.HISTORY_GAP, 6, "runs batch 6; 1 older files of offsets"),
    (checkpoint_of((0, 1, 2, 3, 5), range(6)), V.PREVIOUS_MISSING, None, "fails: batch 4 doesn't exist"),
    (checkpoint_of((0, 1, 2, 3, 5), range(5)), V.PREVIOUS_MISSING, None, "fails: batch 4 doesn't exist"),
    (checkpoint_of((17,), range(18)), V.PREVIOUS_MISSING, None, "fails: batch 16 doesn't exist"),
    (
        checkpoint_of(range(5), range(6)),
        V.ROLLED_BACK,
        4,
        "runs batch 4 again, writes to the sink, then fails",
    ),
    (
        checkpoint_of(range(4), (0, 1, 2, 5)),
        V.ROLLED_BACK,
        3,
        "runs batches 3 to 5 again, writes to the sink",
    ),
    (checkpoint_of((), range(6)), V.OFFSETS_GONE, None, "fails: offsets/ is empty and commits/ is not"),
    (checkpoint_of((), (), has_state=True), V.STATE_LEFT, None, "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"),
    (
        checkpoint_of(range(3), range(3), last_commit=commit(2, version=2, state_ids={"0": [["x"]]})),
        V.STATE_GONE,
        None,
        "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",
    ),
    (
        checkpoint_of(range(3), range(3), has_state=True, state_broken="partition 1: version 3 is missing"),
        V.STATE_BROKEN,
        None,
        "CANNOT_LOAD_STATE_STORE, partition 1: version 3",
    ),
    (
        checkpoint_of(range(6), range(6), **lost_identity()),
        V.IDENTITY_LOST,
        None,
        "STREAMING_CHECKPOINT_MISSING_METADATA_FILE",
    ),
    (
        checkpoint_of(range(6), range(6), **lost_identity(Damage.EMPTY)),
        V.IDENTITY_BROKEN,
        None,
        "fails in start()",
    ),
    (
        checkpoint_of(range(6), range(6), **lost_identity(Damage.DENIED)),
        V.UNREADABLE,
        None,
        "metadata may not be read",
    ),
    (
        checkpoint_of(range(6), range(5), last_offsets=broken_file("offsets/5", Damage.EMPTY)),
        V.TORN_OFFSETS,
        None,
        "fails: Incomplete log file, offsets/5",
    ),
    (
        checkpoint_of(range(6), range(5), previous_offsets=broken_file("offsets/4", Damage.TORN)),
        V.TORN_OFFSETS,
        None,
        "fails: it cannot be parsed, offsets/4",
    ),
    (
        checkpoint_of(range(6), range(6), last_commit=broken_file("commits/5", Damage.EMPTY)),
        V.TORN_COMMITS,
        None,
        "fails: Incomplete log file, commits/5",
    ),
    (
        checkpoint_of(range(6), range(5), last_offsets=offsets(5), previous_offsets=offsets(4, sources=2)),
        V.FEWER_SOURCES,
        None,
        "There are [1] sources in the checkpoint offsets and now there are [2] sources",
    ),
    (
        checkpoint_of(range(6), range(5), last_offsets=broken_file("offsets/5", Damage.NEWER)),
        V.NEWER_FORMAT,
        None,
        "INVALID_LOG_VERSION, offsets/5",
    ),
    (
        checkpoint_of(range(6), range(5), last_offsets=broken_file("offsets/5", Damage.DENIED)),
        V.UNREADABLE,
        None,
        "offsets/5 may not be read",
    ),
    (
        checkpoint_of(range(4), range(2), last_offsets=OffsetsEntry(3, 1, (SourceOffset("0", "{}"),))),
        V.CONTINUOUS,
        2,
        "runs epoch 2 from offsets/1 on",
    ),
    # Holes in both logs: of files that were lost, unless a listener has reported the other cause.
    (checkpoint_of((0, 2, 5), (0, 2, 5)), V.PREVIOUS_MISSING, None, "fails: batch 4 doesn't exist"),
    (
        checkpoint_of((0, 1, 2, 4), (0, 1, 2)),
        V.PREVIOUS_MISSING,
        None,
        "but the query's listener has not reported",
    ),
    (checkpoint_of((0, 2, 4, 5), (0, 2, 4, 5)), V.HISTORY_GAP, 6, "runs batch 6; 2 older files of offsets"),
    (checkpoint_of((0, 2, 4, 5), (0, 2, 4)), V.REPLAY, 5, "runs batch 5 again with the same range"),
    (checkpoint_of((0, 2, 5, 7), (0, 2)), V.PREVIOUS_MISSING, None, "fails: batch 6 doesn't exist"),
    # No folder commits/: Spark 2.1 had none, later ones make it before they plan anything.
    (checkpoint_of((0, 1), (), has_commits=False), V.REPLAY, 1, "runs batch 1 again with the same range"),
    (checkpoint_of(range(6), (), has_commits=False), V.REPLAY, 5, "runs batch 5 again with the same range"),
    (
        checkpoint_of(range(6), (), has_commits=False, last_offsets=offsets(5, conf={"a": "b"})),
        V.SILENT_GAP,
        5,
        "skips batches 0 to 4",
    ),
)
def test_rows(checkpoint: Checkpoint, verdict: RestartVerdict, first: int | None, words: str) -> None:
    said = predict_restart(checkpoint, alive=None)
    assert (said.verdict, said.first_batch) == (verdict, first)
    assert words in said.sentence
    _is_whole(said)


def _is_whole(said: Restart) -> None:
    """Every verdict of concern has a remedy; every failure is called one."""
    assert (said.severity is None) == (said.verdict in QUIET)
    assert bool(said.remedy) == (said.severity in (Severity.CRITICAL, Severity.WARNING))
    assert said.sentence[0].islower()
    assert not said.sentence.endswith(".")
    assert_advises_a_copy_first(said.remedy)
    if said.first_batch is None:
        assert said.sentence.startswith(("fails", "cannot be foretold"))


@pytest.mark.parametrize(("alive", "verdict"), [(True, V.IN_FLIGHT), (None, V.REPLAY), (False, V.REPLAY)])
def test_a_batch_is_in_flight_while_its_driver_runs(alive: bool | None, verdict: RestartVerdict) -> None:
    said = predict_restart(checkpoint_of(range(6), range(5)), alive=alive)
    assert (said.verdict, said.first_batch) == (verdict, 5)


@cases(
    ((0, 2, 5), (0, 2, 5), V.ASYNC, 6, "runs batch 6 with asynchronous progress tracking; without it"),
    ((0, 2, 5), (0, 2), V.ASYNC, 5, "runs batch 5 from offsets/2 on: all that ran after batch 2"),
    ((3, 7), (3,), V.ASYNC, 7, "runs batch 7 from offsets/3 on"),
    ((0, 2, 4, 5), (0, 2, 4, 5), V.CLEAN, 6, "runs batch 6"),
    ((0, 2, 4, 5), (0, 2, 4), V.REPLAY, 5, "runs batch 5 again with the same range"),
    ((0, 2, 5, 7), (0, 2), V.SILENT_GAP, 7, "skips batches 3 to 6"),
    ((7,), (7,), V.PREVIOUS_MISSING, None, "fails: batch 6 doesn't exist"),
)
def test_asynchronous_progress_that_a_listener_has_reported(
    planned: tuple[int, ...],
    finished: tuple[int, ...],
    verdict: RestartVerdict,
    first: int | None,
    words: str,
) -> None:
    said = predict_restart(checkpoint_of(planned, finished), alive=None, asynchronous=True)
    assert (said.verdict, said.first_batch) == (verdict, first)
    assert words in said.sentence
    _is_whole(said)


def test_a_torn_plan_may_be_removed_only_if_its_batch_never_ran() -> None:
    torn = broken_file("offsets/5", Damage.EMPTY)
    never = predict_restart(checkpoint_of(range(6), range(5), last_offsets=torn), alive=None)
    assert never.remedy == f"{COPY_FIRST} remove offsets/5: nothing of its batch has run, it is planned anew"
    done = predict_restart(checkpoint_of(range(6), range(6), last_offsets=torn), alive=None)
    assert done.remedy.startswith("restore offsets/5 from a copy")


def test_a_control_batch_is_reported() -> None:
    control = offsets(5, control="REPARTITION")
    said = predict_restart(checkpoint_of(range(6), range(5), last_offsets=control), alive=None)
    assert "it is a control batch (REPARTITION)" in said.sentence


def test_verdicts_fit_their_column() -> None:
    assert max(len(verdict) for verdict in RestartVerdict) <= 24


IDS = st.lists(st.integers(min_value=0, max_value=12), max_size=8, unique=True).map(sorted)
DAMAGES = st.sampled_from([None, *Damage])


@given(
    IDS,
    IDS,
    st.tuples(DAMAGES, DAMAGES, DAMAGES, DAMAGES),
    st.booleans(),
    st.sampled_from([None, True, False]),
)
def test_every_checkpoint_has_an_answer(
    planned: list[int],
    finished: list[int],
    damages: tuple[Damage | None, ...],
    has_state: bool,
    alive: bool | None,
) -> None:
    whole = checkpoint_of(tuple(planned), tuple(finished), has_state=has_state)
    last, before, done, identity = damages
    changes: dict[str, Any] = dict(lost_identity(identity)) if identity else {}
    if planned and last:
        changes["last_offsets"] = broken_file(f"offsets/{planned[-1]}", last)
    if len(planned) > 1 and before:
        changes["previous_offsets"] = broken_file(f"offsets/{planned[-2]}", before)
    if finished and done:
        changes["last_commit"] = broken_file(f"commits/{finished[-1]}", done)
    said = predict_restart(replace(whole, **changes), alive=alive)
    _is_whole(said)
    if said.first_batch is not None and planned:
        assert said.first_batch in (planned[-1], planned[-1] + 1)
