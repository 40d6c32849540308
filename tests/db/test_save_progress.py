"""Proves what is kept of a listener's posts: late ones, repeated ones, of two runs, of two clusters."""

from typing import Any

import pytest

from dashboard.models import Batch, Cluster, Query, Run
from dashboard.runtime import collector_store
from dashboard.streaming import progress_store
from dashboard.streaming.progress_store import UnassignedPost
from fenceline.decode import ingest_payload as told
from tests.cases import cases
from tests.db.conftest import NOW_MS
from tests.db.listener_posts import (
    LATER_RUN,
    OTHER_QUERY,
    QUERY,
    RUN,
    batch_event,
    listener_event,
    listener_post,
)

pytestmark = pytest.mark.sql

OTHER_RUN = "cccccccc-cccc-cccc-cccc-cccccccccccc"

STARTED = "2026-11-22T02:43:50.778Z"
STARTED_MS = 1_795_315_430_778


def save(*events: object, now_ms: int = NOW_MS, **members: Any) -> tuple[int, int]:
    post = told.decode_post(listener_post(*events, **{"sent_ms": now_ms, **members}))
    assert post.refused == ()
    return progress_store.save_progress(post, now_ms=now_ms)


def query(query_id: str = QUERY) -> Query:
    return Query.objects.get(query_id=query_id)


def rev() -> int:
    return Cluster.objects.get(name="prod").rev


def test_a_started_query_runs() -> None:
    assert save(listener_event("started", NOW_MS - 5, name="orders", timestamp=STARTED)) == (1, 0)
    row = query()
    assert (row.ident, row.name, row.state, row.run_id) == (QUERY, "orders", "running", RUN)
    assert (row.heard_ms, row.started_ms, row.ended_ms) == (NOW_MS - 5, STARTED_MS, None)
    run = Run.objects.get()
    assert (run.run_id, run.name, run.started_ms) == (RUN, "orders", STARTED_MS)
    assert run.spark_version == "4.2.0"


def test_a_batch_is_saved_with_all_reported_figures() -> None:
    save(batch_event(7, NOW_MS - 5, kind="stateful"))
    row = Batch.objects.get()
    assert (row.batch_id, row.run_id, row.rev) == (7, RUN, rev())
    assert row.durations["triggerExecution"] > 0
    assert row.duration_ms
    assert row.input_rows == 6
    assert row.sources[0]["description"] == "KafkaV2[Subscribe[orders]]"
    assert row.operators[0]["name"] == "stateStoreSave"
    assert row.watermark_ms
    assert Run.objects.get().batch_id == 7


def test_the_interval_of_heartbeats_is_the_one_that_the_driver_reports() -> None:
    alive = [[QUERY, RUN]]
    save(listener_event("started", NOW_MS - 5, name="orders"), alive=alive, heartbeat_every_ms=5_000)
    assert query().heartbeat_every_ms == 5_000
    spooled = batch_event(0, NOW_MS), listener_event("idle", NOW_MS, query=OTHER_QUERY)
    save(*spooled, now_ms=NOW_MS + 2_000, heartbeat_every_ms=60_000)
    assert query().heartbeat_every_ms == 5_000, "another driver posts an old spool"
    save(now_ms=NOW_MS + 4_000, alive=alive)
    assert query().heartbeat_every_ms is None, "a driver that went back to a listener which reports none"
    for number, invalid in enumerate((0, -5, True, "5000", 1.5, 10**30, 3_600_001, None, [])):
        Query.objects.update(heartbeat_every_ms=5_000)
        save(now_ms=NOW_MS + 6_000 + 2_000 * number, alive=alive, heartbeat_every_ms=invalid)
        assert query().heartbeat_every_ms is None, invalid


def test_the_same_post_again_changes_nothing() -> None:
    def rows() -> list[Any]:
        return [rev(), *(list(table.objects.values()) for table in (Query, Batch, Run))]

    started = listener_event("started", NOW_MS - 20, name="orders")
    events = started, batch_event(0, NOW_MS - 9), listener_event("idle", NOW_MS - 5)
    assert save(*events) == (3, 0)
    before = rows()
    assert save(*events, now_ms=NOW_MS + 40) == (0, 3)
    assert rows() == before


def test_facts_from_a_checkpoint_are_kept() -> None:
    save(batch_event(0, NOW_MS))
    Batch.objects.create(
        query=query(), batch_id=1, planned_ms=5, committed_ms=9, offsets=[["0", "{}"]], watermark_ms=3, rev=1
    )
    assert save(batch_event(1, NOW_MS)) == (1, 0)
    row = Batch.objects.get(batch_id=1)
    assert (row.planned_ms, row.committed_ms, row.offsets, row.watermark_ms) == (5, 9, [["0", "{}"]], 3)
    assert (row.run_id, row.input_rows) == (RUN, 6)


def test_late_events_of_an_older_run_do_not_change_the_newer_one() -> None:
    save(
        listener_event("started", NOW_MS, run=LATER_RUN, timestamp=STARTED),
        batch_event(5, NOW_MS + 9, run=LATER_RUN),
    )
    late = (
        batch_event(5, NOW_MS - 60_000),
        batch_event(4, NOW_MS - 61_000),
        listener_event("terminated", NOW_MS - 50_000, exception="x"),
    )
    assert save(*late, now_ms=NOW_MS + 1_000) == (2, 1)
    row = query()
    assert (row.run_id, row.state, row.exception) == (LATER_RUN, "running", "")
    assert Batch.objects.get(batch_id=5).run_id == LATER_RUN
    assert Batch.objects.get(batch_id=4).run_id == RUN
    assert Run.objects.get(run_id=RUN).exception == "x"


def test_a_restart_keeps_the_query_and_takes_its_batches_over() -> None:
    save(batch_event(4, NOW_MS), listener_event("terminated", NOW_MS + 1, exception="it broke"))
    assert (query().state, query().exception, query().ended_ms) == ("failed", "it broke", NOW_MS + 1)
    again = (
        listener_event("started", NOW_MS + 900, run=LATER_RUN),
        batch_event(4, NOW_MS + 950, run=LATER_RUN),
    )
    assert save(*again, now_ms=NOW_MS + 1_000) == (2, 0)
    row = query()
    assert (row.run_id, row.state, row.exception, row.ended_ms) == (LATER_RUN, "running", "", None)
    assert Batch.objects.get().run_id == LATER_RUN


def test_two_drivers_with_wrong_clocks_are_ordered_by_the_local_clock() -> None:
    # The older run's clock is an hour ahead, the newer one's an hour behind.
    hour = 3_600_000
    save(batch_event(1, NOW_MS + hour), sent_ms=NOW_MS + hour)
    save(batch_event(2, NOW_MS - hour + 9, run=LATER_RUN), sent_ms=NOW_MS - hour + 10, now_ms=NOW_MS + 10)
    assert query().run_id == LATER_RUN
    assert query().heard_ms == NOW_MS + 9


@cases(
    ([listener_event("started", NOW_MS)], "running"),
    ([listener_event("started", NOW_MS), listener_event("idle", NOW_MS + 1)], "idle"),
    ([listener_event("idle", NOW_MS), batch_event(3, NOW_MS + 1)], "running"),
    ([batch_event(3, NOW_MS), listener_event("terminated", NOW_MS + 1)], "stopped"),
    ([batch_event(3, NOW_MS), listener_event("terminated", NOW_MS + 1, exception="it broke")], "failed"),
    ([listener_event("terminated", NOW_MS), listener_event("idle", NOW_MS + 1)], "stopped"),
)
def test_the_state_of_a_query_is_the_last_one_of_its_run(events: list[Any], state: str) -> None:
    save(*events)
    assert query().state == state


def test_a_heartbeat_during_a_long_batch_is_saved_without_a_new_revision() -> None:
    save(listener_event("started", NOW_MS))
    before = rev()
    save(now_ms=NOW_MS + 60_000, alive=[[QUERY, RUN]])
    assert (query().heard_ms, query().state, rev()) == (NOW_MS + 60_000, "running", before)


def test_spooled_events_of_a_stopped_driver_do_not_count_as_heartbeats() -> None:
    save(batch_event(1, NOW_MS - 3_600_000), spooled=3, dropped=2)
    assert query().heard_ms == NOW_MS - 3_600_000
    run = Run.objects.get()
    assert (run.spooled, run.dropped) == (3, 2)


def test_a_query_known_from_its_checkpoint_is_the_same_row() -> None:
    Query.objects.create(
        cluster=Cluster.objects.get(), ident=QUERY, query_id=QUERY, checkpoint="/c", state="unheard", rev=1
    )
    save(batch_event(1, NOW_MS))
    assert (query().checkpoint, query().state, query().sink) == ("/c", "running", "kafka")


def test_of_several_clusters_one_must_be_named_unless_the_query_is_known() -> None:
    with pytest.raises(UnassignedPost, match=r"as 'nowhere'.*there are prod"):
        save(batch_event(0, NOW_MS), cluster="nowhere")
    save(batch_event(0, NOW_MS))
    collector_store.sync_clusters(["prod", "staging"])
    assert save(batch_event(1, NOW_MS)) == (1, 0)
    with pytest.raises(UnassignedPost, match=r"Several .* there are prod, staging"):
        save(batch_event(0, NOW_MS, query=OTHER_QUERY), batch_event(2, NOW_MS))
    assert Batch.objects.filter(batch_id=2).exists(), "what can be placed is saved"
    assert save(batch_event(0, NOW_MS, query=OTHER_QUERY), cluster="staging") == (1, 0)
    assert query(OTHER_QUERY).cluster.name == "staging"


def test_many_queries_in_one_post_cost_a_bounded_number_of_statements(
    django_assert_max_num_queries: Any,
) -> None:
    queries = [f"{number:08}-1111-1111-1111-111111111111" for number in range(20)]
    events = [batch_event(number, NOW_MS, query=each) for each in queries for number in range(20)]
    save(*events)
    later = [batch_event(number + 20, NOW_MS, query=each) for each in queries for number in range(20)]
    # One look for each query and one save of it, and few for everything else.
    with django_assert_max_num_queries(2 * len(queries) + 20):
        assert save(*later) == (400, 0)


def reported(kind: str, at_ms: int, run: str = RUN, **facts: object) -> Query:
    """Return the query after a listener has reported these facts of a run."""
    save({**listener_event(kind, at_ms, run=run), **facts}, now_ms=max(at_ms, NOW_MS))
    return query()


def test_whether_progress_is_tracked_asynchronously_is_as_the_newest_run_reported() -> None:
    assert reported("started", NOW_MS - 30).asynchronous is None
    assert reported("idle", NOW_MS - 20, asynchronous=True).asynchronous is True
    # A listener that cannot know says nothing new of the same run.
    for number, unknown in enumerate((None, "yes")):
        assert reported("idle", NOW_MS - 10 + number, asynchronous=unknown).asynchronous is True
    assert reported("started", NOW_MS, LATER_RUN, asynchronous=False).asynchronous is False
    Query.objects.update(asynchronous=True)
    assert reported("started", NOW_MS + 10, OTHER_RUN).asynchronous is None


def test_how_kafka_is_read_is_as_the_newest_run_reported() -> None:
    assert reported("started", NOW_MS - 30, isolation="read_committed").isolation == "read_committed"
    for unknown in (None, "nonsense", 1, "unknown"):
        assert reported("idle", NOW_MS - 20, isolation=unknown).isolation == "read_committed"
    assert reported("started", NOW_MS, LATER_RUN, isolation=None).isolation == ""
