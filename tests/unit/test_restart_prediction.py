"""Proves each row of the decision table: what a restart would do, by Spark's version and by what is missing.
Spark itself is asked in tests/spark/test_restarts.py; versions before 4.2 follow docs/design/spark.md."""

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


def files(planned: int, finished: int, **more: Any) -> Checkpoint:
    """Return a checkpoint whose logs begin with batch 0 and have no hole."""
    return checkpoint_of(range(planned), range(finished), **more)


TORN, EMPTY = Damage.TORN, Damage.EMPTY
STATE_OF_X = {"version": 2, "state_ids": {"0": [["x"]]}}
#: By verdict: checkpoints, the batch that a restart begins with, and words of what it does.
ROWS: dict[RestartVerdict, list[tuple[Checkpoint, int | None, str]]] = {
    V.NOT_STARTED: [
        (files(0, 0), 0, "runs batch 0, from where its options begin"),
        (files(0, 0, initial={"0": {TopicPartition("t", 0): 0}}), 0, "runs batch 0, from sources/0/0"),
        (files(0, 0, **lost_identity()), 0, "runs batch 0"),
    ],
    V.CLEAN: [
        (files(6, 6), 6, "runs batch 6"),
        (checkpoint_of(range(40, 141), range(40, 141)), 141, "runs batch 141"),
        # Later formats that Spark 4.2 writes.
        (files(3, 3, last_offsets=offsets(2, version=2)), 3, "runs batch 3"),
        (files(3, 3, last_commit=commit(2, version=2)), 3, "runs batch 3"),
        (files(3, 3, last_commit=commit(2, version=3)), 3, "runs batch 3"),
    ],
    V.REPLAY: [
        (files(1, 0), 0, "runs batch 0 again with the same range"),
        (files(19, 18), 18, "runs batch 18 again with the same range"),
        (checkpoint_of((0, 2, 4, 5), (0, 2, 4)), 5, "runs batch 5 again with the same range"),
        # No folder commits/: Spark 2.1 had none, later ones make it before they plan anything.
        (files(2, 0, has_commits=False), 1, "runs batch 1 again with the same range"),
        (files(6, 0, has_commits=False), 5, "runs batch 5 again with the same range"),
    ],
    V.SILENT_GAP: [
        (files(6, 3), 5, "offsets/4 and skips batches 3 to 4"),
        (files(6, 4), 5, "offsets/4 and skips batch 4 with"),
        (files(6, 0), 5, "offsets/4 and skips batches 0 to 4"),
        (
            files(6, 4, last_commit=commit(3, **STATE_OF_X), has_state=True),
            None,
            "fails: only commits/4 records which files hold the state after batch 4",
        ),
        (files(6, 0, has_commits=False, last_offsets=offsets(5, conf={"a": "b"})), 5, "skips batches 0 to 4"),
    ],
    V.HISTORY_GAP: [
        (checkpoint_of((0, 1, 3, 4, 5), range(6)), 6, "runs batch 6; 1 older files of offsets"),
        (checkpoint_of((0, 2, 4, 5), (0, 2, 4, 5)), 6, "runs batch 6; 2 older files of offsets"),
    ],
    V.PREVIOUS_MISSING: [
        (checkpoint_of((0, 1, 2, 3, 5), range(6)), None, "fails: batch 4 doesn't exist"),
        (checkpoint_of((0, 1, 2, 3, 5), range(5)), None, "fails: batch 4 doesn't exist"),
        (checkpoint_of((17,), range(18)), None, "fails: batch 16 doesn't exist"),
        # Holes in both logs: of files that were lost, unless a listener has reported the other cause.
        (checkpoint_of((0, 2, 5), (0, 2, 5)), None, "fails: batch 4 doesn't exist"),
        (checkpoint_of((0, 1, 2, 4), (0, 1, 2)), None, "but the query's listener has not reported"),
        (checkpoint_of((0, 2, 5, 7), (0, 2)), None, "fails: batch 6 doesn't exist"),
    ],
    V.ROLLED_BACK: [
        (files(5, 6), 4, "runs batch 4 again, writes to the sink, then fails"),
        (checkpoint_of(range(4), (0, 1, 2, 5)), 3, "runs batches 3 to 5 again, writes to the sink"),
    ],
    V.OFFSETS_GONE: [(files(0, 6), None, "fails: offsets/ is empty and commits/ is not")],
    V.STATE_LEFT: [(files(0, 0, has_state=True), None, "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY")],
    V.STATE_GONE: [
        (
            files(3, 3, last_commit=commit(2, **STATE_OF_X)),
            None,
            "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",
        ),
    ],
    V.STATE_BROKEN: [
        (
            files(3, 3, has_state=True, state_broken="partition 1: version 3 is missing"),
            None,
            "CANNOT_LOAD_STATE_STORE, partition 1: version 3",
        ),
    ],
    V.IDENTITY_LOST: [(files(6, 6, **lost_identity()), None, "STREAMING_CHECKPOINT_MISSING_METADATA_FILE")],
    V.IDENTITY_BROKEN: [(files(6, 6, **lost_identity(EMPTY)), None, "fails in start()")],
    V.UNREADABLE: [
        (files(6, 6, **lost_identity(Damage.DENIED)), None, "metadata may not be read"),
        (
            files(6, 5, last_offsets=broken_file("offsets/5", Damage.DENIED)),
            None,
            "offsets/5 may not be read",
        ),
    ],
    V.TORN_OFFSETS: [
        (
            files(6, 5, last_offsets=broken_file("offsets/5", EMPTY)),
            None,
            "fails: Incomplete log file, offsets/5",
        ),
        (
            files(6, 5, previous_offsets=broken_file("offsets/4", TORN)),
            None,
            "fails: it cannot be parsed, offsets/4",
        ),
    ],
    V.TORN_COMMITS: [
        (
            files(6, 6, last_commit=broken_file("commits/5", EMPTY)),
            None,
            "fails: Incomplete log file, commits/5",
        ),
    ],
    V.FEWER_SOURCES: [
        (
            files(6, 5, last_offsets=offsets(5), previous_offsets=offsets(4, sources=2)),
            None,
            "There are [1] sources in the checkpoint offsets and now there are [2] sources",
        ),
    ],
    V.NEWER_FORMAT: [
        (
            files(6, 5, last_offsets=broken_file("offsets/5", Damage.NEWER)),
            None,
            "INVALID_LOG_VERSION, offsets/5",
        ),
    ],
    V.CONTINUOUS: [
        (
            files(4, 2, last_offsets=OffsetsEntry(3, 1, (SourceOffset("0", "{}"),))),
            2,
            "runs epoch 2 from offsets/1 on",
        ),
    ],
}


@cases(*((verdict, *row) for verdict, rows in ROWS.items() for row in rows))
def test_rows(verdict: RestartVerdict, checkpoint: Checkpoint, first: int | None, words: str) -> None:
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
    torn = broken_file("offsets/5", EMPTY)
    never = predict_restart(files(6, 5, last_offsets=torn), alive=None)
    assert never.remedy == f"{COPY_FIRST} remove offsets/5: nothing of its batch has run, it is planned anew"
    done = predict_restart(files(6, 6, last_offsets=torn), alive=None)
    assert done.remedy.startswith("restore offsets/5 from a copy")


def test_a_control_batch_is_reported_and_verdicts_fit_their_column() -> None:
    said = predict_restart(files(6, 5, last_offsets=offsets(5, control="REPARTITION")), alive=None)
    assert "it is a control batch (REPARTITION)" in said.sentence
    assert max(len(verdict) for verdict in RestartVerdict) <= 24


IDS = st.lists(st.integers(min_value=0, max_value=12), max_size=8, unique=True).map(sorted)
DAMAGES = st.sampled_from([None, *Damage])


@given(IDS, IDS, st.tuples(*[DAMAGES] * 4), st.booleans(), st.sampled_from([None, True, False]))
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
