"""Proves what is saved of checkpoints: the query of a folder, batches, decisions, missing folders."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings

from dashboard.config import CheckpointRoot
from dashboard.models import Batch, Cluster, Collector, GapRecord, OperatorStateRecord, Query, SinkDecision
from dashboard.streaming import checkpoint_store
from dashboard.streaming.queries import operator_states
from dashboard.streaming.registry import find_or_add
from fenceline.spark.records import Broken, CheckpointObservation, CommitsEntry, Damage, Decided, LedgerState
from fenceline.spark.state_chains import OperatorState, StateChain
from tests.cases import cases
from tests.db.conftest import NOW_MS, Take
from tests.db.factories import (
    PATH,
    QUERY_ID,
    checkpoint,
    checkpoint_look,
    decision,
    decision_end,
    ledger_state,
    offsets_entry,
)

pytestmark = pytest.mark.sql


@pytest.fixture
def save(take: Take) -> Callable[..., int]:
    lease = take(checkpoint_store.NAME)

    def save(
        *looks: CheckpointObservation,
        gone: tuple[str, ...] = (),
        gaps: Mapping[str, tuple[int, str]] | None = None,
        now_ms: int = NOW_MS,
    ) -> int:
        return checkpoint_store.save_checkpoints(lease, looks, gone, gaps=gaps or {}, now_ms=now_ms)

    return save


Save = Callable[..., int]


def rev() -> int:
    return Cluster.objects.get().rev


def test_a_checkpoint_becomes_a_query_with_its_batches(save: Save) -> None:
    assert save(checkpoint_look(3, 2)) == 1
    row = Query.objects.get()
    assert (row.ident, row.query_id, row.checkpoint) == (QUERY_ID, QUERY_ID, PATH)
    assert (row.planned, row.finished, row.restart, row.sink) == (3, 2, "replay", "")
    assert row.restart_words == "runs batch 3 again with the same range"
    assert row.detail["sources"] == [{"source": "0", "offset": '{"orders":{"0":30}}', "info": {}}]
    assert row.detail["restart"] == {"first_batch": 3, "severity": "info", "remedy": ""}
    assert row.detail["kept"] == {"offsets": [0, 3], "commits": [0, 2]}
    batches = list(Batch.objects.order_by("batch_id").values_list("batch_id", "planned_ms", "committed_ms"))
    assert batches == [(2, NOW_MS + 20, NOW_MS + 25), (3, NOW_MS + 30, None)]


def test_a_batch_that_is_finished_later_keeps_the_figures_of_a_listener(save: Save) -> None:
    save(checkpoint_look(3, 2))
    row = Query.objects.get()
    unchanged = replace(checkpoint_look(3, 2), planned=(), finished=())
    assert save(unchanged, now_ms=NOW_MS + 5_000) == 0
    assert (Query.objects.get().rev, Query.objects.get().seen_ms) == (row.rev, NOW_MS + 5_000)
    Batch.objects.filter(batch_id=3).update(run_id="r-1", input_rows=10, durations={"addBatch": 5})
    save(replace(checkpoint_look(3, 3), planned=()))
    batch = Batch.objects.get(batch_id=3)
    assert (batch.planned_ms, batch.committed_ms) == (NOW_MS + 30, NOW_MS + 35)
    assert (batch.run_id, batch.input_rows, batch.durations) == ("r-1", 10, {"addBatch": 5})
    assert Query.objects.get().restart == "clean"


def test_a_restored_checkpoint_restarts_its_batches(save: Save) -> None:
    """Batch 3 was finished; a copy from before is restored, and another batch 3 is planned."""
    save(checkpoint_look(3, 3))
    Batch.objects.filter(batch_id=3).update(run_id="r-1", input_rows=10)
    older = checkpoint_look(2, 2)
    save(replace(older, planned=(), finished=()))
    assert Query.objects.get().planned == 2
    anew = checkpoint_look(3, 2, planned_ms=NOW_MS + 900_000)
    save(replace(anew, finished=()))
    row = Batch.objects.get(batch_id=3)
    expected = (NOW_MS + 900_000, None, "", None)
    assert (row.planned_ms, row.committed_ms, row.run_id, row.input_rows) == expected


def test_a_listener_that_came_first_has_made_the_row(save: Save) -> None:
    cluster = Cluster.objects.get()
    heard = find_or_add(cluster.pk, QUERY_ID, "orders")
    save(checkpoint_look(3, 2))
    assert Query.objects.get().pk == heard.pk
    assert (Query.objects.get().name, Query.objects.get().checkpoint) == ("orders", PATH)
    assert find_or_add(cluster.pk, QUERY_ID, "other").pk == heard.pk


def test_a_copy_of_a_folder_is_a_query_of_its_own(save: Save, take: Take) -> None:
    copy = "file:///copies/orders"
    save(checkpoint_look(3, 2))
    save(checkpoint_look(3, 2), checkpoint_look(4, 3, path=copy))
    idents = dict(Query.objects.values_list("checkpoint", "ident"))
    assert (idents[PATH], len(idents[copy])) == (QUERY_ID, len(QUERY_ID) + 9)
    assert idents[copy].startswith(f"{QUERY_ID}@")
    save(checkpoint_look(5, 4, path=copy))
    assert Query.objects.count() == 2
    assert find_or_add(Cluster.objects.get().pk, QUERY_ID).checkpoint == PATH
    save(gone=(copy,))
    lease = take(checkpoint_store.NAME, previous=Collector.objects.get(name=checkpoint_store.NAME).token)
    assert list(checkpoint_store.known_folders(lease)) == [PATH]


def test_a_folder_without_identity_keeps_its_row_when_that_comes_back(save: Save) -> None:
    lost = Broken("metadata", Damage.MISSING, "there is none")
    save(checkpoint_look(3, 2, query_id=None, identity=lost))
    row = Query.objects.get()
    assert row.ident.startswith("path-")
    assert (len(row.ident), row.query_id, row.restart) == (21, "", "identity_lost")
    assert row.detail["broken"] == [{"path": "metadata", "damage": "missing", "detail": "there is none"}]
    save(checkpoint_look(3, 2))
    assert (Query.objects.get().pk, Query.objects.get().query_id) == (row.pk, QUERY_ID)
    assert find_or_add(Cluster.objects.get().pk, QUERY_ID).pk == row.pk


def test_a_folder_that_starts_over_under_another_id_is_another_query(save: Save) -> None:
    save(checkpoint_look(30, 30))
    other = "0f0f0f0f-0000-4000-8000-000000000000"
    save(checkpoint_look(1, 0, query_id=other))
    rows = {row.ident: row for row in Query.objects.all()}
    assert (rows[other].checkpoint, rows[other].finished) == (PATH, 0)
    assert (rows[QUERY_ID].checkpoint, rows[QUERY_ID].detail["gone"]) == ("", True)
    assert "holds another query now" in rows[QUERY_ID].error
    assert Batch.objects.filter(query=rows[QUERY_ID]).exists(), "its history stays"


def test_a_folder_that_is_gone_keeps_everything(save: Save) -> None:
    save(checkpoint_look(3, 2))
    assert save(gone=(PATH,)) == 1
    row = Query.objects.get()
    assert (row.error, row.detail["gone"]) == (f"the folder {PATH} is gone", True)
    assert Batch.objects.count() == 2
    assert save(gone=(PATH,)) == 0, "that is no news"
    assert save(checkpoint_look(3, 2)) == 1
    assert (Query.objects.get().error, "gone" in Query.objects.get().detail) == ("", False)


def test_an_unreadable_folder_is_a_gap_and_an_error_of_its_query(save: Save, take: Any) -> None:
    save(checkpoint_look(3, 2))
    why = (NOW_MS - 500, "permission denied: offsets")
    save(gaps={f"checkpoint:{PATH}": why, "root:file:///other": (NOW_MS, "no such folder")})
    scopes = dict(GapRecord.objects.filter(until_ms=None).values_list("scope", "reason"))
    assert scopes == {f"query:{QUERY_ID}": why[1], "root:file:///other": "no such folder"}
    assert Query.objects.get().error == why[1]
    before = Query.objects.get().rev
    partly = replace(checkpoint_look(3, 2), planned=(), finished=())
    assert save(partly, gaps={f"checkpoint:{PATH}": why}) == 0, "read in part, as before"
    assert Query.objects.get().rev == before
    save(partly)
    assert Query.objects.get().error == ""
    assert not GapRecord.objects.filter(until_ms=None).exists()


def test_a_folder_outside_every_root_is_marked_as_outdated(
    save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(checkpoint_look(3, 2), checkpoint_look(3, 2, path="file:///copies/orders"))
    config = replace(settings.FENCELINE, checkpoints=(CheckpointRoot("file:///checkpoints/", "prod"),))
    monkeypatch.setattr(settings, "FENCELINE", config)
    assert save() == 1
    told = dict(Query.objects.values_list("checkpoint", "error"))
    assert told[PATH] == ""
    assert told["file:///copies/orders"].startswith("no root in [[checkpoints]] holds file:///copies/orders")
    assert save() == 0


def test_decisions_of_a_ledger_are_saved_with_their_outcome(save: Save) -> None:
    save(checkpoint_look(3, 2, ledger=ledger_state([decision(3)])))
    row = Query.objects.get()
    assert (row.sink, row.prepared, row.expires_ms) == ("exactly_once", 1, NOW_MS + 60_000)
    assert (row.ledger_id, row.prefix, row.generation) == ("0a1b2c3d4e5f", "orders", 2)
    kept = SinkDecision.objects.get()
    assert (kept.batch_id, kept.round, kept.decided, kept.outcome) == (3, 0, "prepared", "")
    assert kept.transactions[0] == {
        "partition": 0,
        "attempt": 0,
        "transactional_id": "orders-0a1b2c3d-p0-g1-b1-s0",
        "producer_id": 4_000,
        "producer_epoch": 3,
        "partitions": [["enriched", 0]],
        "records": 500,
        "started_ms": NOW_MS,
        "timeout_ms": 60_000,
        "written": None,
        "digest": None,
    }
    save(checkpoint_look(3, 3, ledger=ledger_state([decision(3)], [decision_end(3)])))
    kept = SinkDecision.objects.get()
    assert (kept.outcome, kept.done_ms, kept.done_by) == ("committed", NOW_MS + 100, "driver")
    assert (Query.objects.get().prepared, Query.objects.get().expires_ms) == (0, None)


def test_a_ledger_takes_precedence_over_a_listener_and_a_file_without_a_time_counts_from_its_poll(
    save: Save,
) -> None:
    ledger = ledger_state([])
    save(checkpoint_look(3, 2, ledger=ledger))
    Query.objects.update(sink="other")
    entry = CommitsEntry(2, 1, 5)
    save(CheckpointObservation(checkpoint(3, 2), ledger, (offsets_entry(3),), (entry,), {}))
    assert Query.objects.get().sink == "exactly_once"
    assert Batch.objects.get(batch_id=2).committed_ms == NOW_MS


TORN = Broken("kafka_exactly_once/ledger.json", Damage.TORN, "cut")
DENIED = Broken("kafka_exactly_once/3.0.decision", Damage.DENIED, "no")


@cases(
    (4, Decided.PREPARED, ledger_state([]), ["committed"], "it was done, and swept away: Spark went on"),
    (4, Decided.ABORTED, ledger_state([]), ["aborted"], "the same of an aborted round"),
    (2, Decided.PREPARED, ledger_state([]), [], "the folder was put back to before it"),
    # What was decided still waits to be committed.
    (4, Decided.PREPARED, None, [""], "the ledger was deleted"),
    (4, Decided.PREPARED, ledger_state([], ledger=TORN), [""], "it is torn"),
    (4, Decided.PREPARED, ledger_state([], broken=(DENIED,)), [""], "a decision may not be read"),
)
def test_decisions_removed_from_a_ledger_end_or_are_deleted_unless_it_cannot_be_read(
    save: Save, finished: int, decided: Decided, after: LedgerState | None, outcomes: list[str], why: str
) -> None:
    save(checkpoint_look(3, 2, ledger=ledger_state([decision(3, decided)])))
    save(checkpoint_look(finished + 1, finished, ledger=after))
    assert [row.outcome for row in SinkDecision.objects.all()] == outcomes, why
    assert Query.objects.get().sink == "exactly_once"


def test_many_observations_are_saved_in_parts(save: Save) -> None:
    looks = [checkpoint_look(3, 2, path=f"file:///c/{n}", query_id=None) for n in range(50)]
    before = rev()
    assert save(*looks) == 50
    assert rev() - before == 5, "four parts of at most 14, and the end"
    assert save(*(replace(each, planned=(), finished=()) for each in looks)) == 0
    assert rev() - before == 6, "nothing is new: the end alone"
    assert Query.objects.count() == 50


def test_holes_in_both_logs_are_lost_files_until_a_listener_reports_asynchronous_progress(save: Save) -> None:
    holes = replace(checkpoint_look(5, 2).checkpoint, offsets=(0, 1, 2, 5), commits=(0, 1, 2))
    for asynchronous, restart in ((False, "previous_missing"), (True, "async")):
        Query.objects.update(asynchronous=asynchronous)
        save(replace(checkpoint_look(5, 2), checkpoint=holes))
        row = Query.objects.get()
        assert (row.restart, row.detail["asynchronous"]) == (restart, asynchronous)
    assert row.detail["restart"] == {"first_batch": 5, "severity": "info", "remedy": ""}


def test_state_files_are_saved_by_operator_and_one_that_is_gone_goes(save: Save) -> None:
    chain = StateChain(0, "default", 1, 3, 0, 3, 30, 3, 0)
    broken = chain._replace(missing=(2,), missing_count=1)
    first = OperatorState(0, "dedupe", (chain,), NOW_MS), OperatorState(1, "stateStoreSave", (chain,), NOW_MS)
    save(replace(checkpoint_look(3, 2), state=first))
    row = Query.objects.get()
    assert list(operator_states(row)) == list(first)
    assert save(replace(checkpoint_look(3, 2), planned=(), finished=())) == 0, "no round is over"
    second = OperatorState(1, "stateStoreSave", (broken,), NOW_MS + 30_000, "partition 7 cannot be read")
    save(replace(checkpoint_look(3, 2), state=(second,)))
    assert list(operator_states(row)) == [second]
    assert OperatorStateRecord.objects.get().broken == 1
