"""Proves that a transaction's own page says what is true now, for every state and for any id, and how it
reads its history: steps with evidence, its timeline, what is usual."""

import random
import re

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from dashboard.history import queries as history_queries
from dashboard.models import Cluster, Recent, Transaction
from dashboard.web import addresses, transaction_steps, transaction_timeline
from fenceline.facts import (
    NOT_FROM_LOG,
    NOT_REPORTED,
    Confidence,
    Tombstone,
    TransactionState,
    Transition,
    TransitionKind,
    TransitionReason,
)
from tests.web import factories, scenarios
from tests.web.roles import page_html

pytestmark = pytest.mark.django_db


def read(page: Client, row: Transaction) -> str:
    return page_html(page, addresses.transaction_url(row.cluster.name, row.transactional_id))


@pytest.mark.parametrize("state", TransactionState)
def test_each_state_is_lit(page: Client, state: TransactionState) -> None:
    text = read(page, factories.transaction(factories.cluster(), state=state))
    lit = re.findall(r'box-lit[^"]*"><rect [^>]*/><text [^>]*>(\w+)<', text)
    assert lit == [state.value, state.value]  # Drawn twice: for wide pages and for phones.


def test_its_way_names_hash_partition_and_offset(page: Client, prod: Cluster) -> None:
    # "abc".hashCode() is 96354 in Java; 96354 mod 50 is 4.
    row = factories.transaction(prod, "abc", log_partition=4, log_offset=24_049)
    assert "hash 96,354 mod 50 → __transaction_state-4, offset 24,049" in read(page, row)


def test_offsets_are_told_apart_from_data(page: Client) -> None:
    row = factories.transaction(
        factories.cluster(), partitions={"orders": [0, 7], "__consumer_offsets": [16, 17, 18]}
    )
    text = read(page, row)
    assert "offsets added" in text
    assert "a read-process-write transaction" in text
    assert "16-18" in text
    assert "orders-7" in text


def test_its_findings_are_on_its_page_and_no_others(page: Client, prod: Cluster) -> None:
    row = factories.transaction(prod, "mine")
    factories.finding(prod, "transaction:mine")
    factories.finding(prod, "transaction:other", summary="quite another one")
    text = read(page, row)
    assert re.findall(r'data-finding="(\w+)"', text) == ["open_too_long"]
    assert "mine has been open since 10:21:14" not in text, "its headline states it"
    assert "quite another one" not in text


def test_an_id_that_looks_like_a_key_is_found_by_its_own_name(page: Client, prod: Cluster) -> None:
    named = factories.transaction(prod, b"~" + b"0" * 64)
    assert named.transactional_id in read(page, named)


def test_what_a_coordinators_list_does_not_tell_is_never_a_number(page: Client) -> None:
    """Where the topic may not be read, an id's epoch, timeout and place are not known at first."""
    unknown = {"producer_epoch": NOT_REPORTED, "timeout_ms": NOT_REPORTED, "log_partition": NOT_REPORTED}
    row = factories.transaction(
        factories.cluster(),
        state=TransactionState.COMPLETE_COMMIT,
        started_ms=None,
        log_offset=NOT_FROM_LOG,
        **unknown,
    )
    text = read(page, row)
    assert "state reported by the coordinator" in text
    assert "timeout not known yet" in text
    listed = " ".join(page.get("/transactions").content.decode().split())
    for shown in (text, listed):
        assert not re.search(r">-1<|epoch -1|offset -1|· -1", shown)


def test_a_decided_transaction_names_late_markers_with_their_leaders(page: Client, prod: Cluster) -> None:
    """One is waited for, one has its marker; two are not known: unread, or behind since the last poll."""
    row = factories.transaction(
        prod, "payments-7", TransactionState.PREPARE_COMMIT, partitions={"late": [0, 1, 2, 3]}, age_ms=20_000
    )
    factories.lso_blocker(prod, "late", 0, producer_id=row.producer_id)
    factories.partition(prod, "late", 1)
    factories.partition(prod, "late", 2, error="broker 3 does not answer", leader=None)
    factories.partition(prod, "late", 3, lso=48_000)
    shown = re.findall(r'data-marker="(\w+)".*?(broker \d|no leader)', read(page, row))
    assert shown == [
        ("waiting", "broker 1"), ("written", "broker 2"), ("unknown", "no leader"), ("unknown", "broker 1")
    ]  # fmt: skip
    done = factories.transaction(prod, "done", TransactionState.COMPLETE_COMMIT, partitions={"late": [1]})
    assert "data-marker" not in read(page, done)


AT_MS = 1_795_000_000_000


def told(kind: TransitionKind, second: float, **fields: object) -> Transition:
    """Return a transition at that second; ends were open for 1 s and their markers took 5 ms."""
    at_ms = AT_MS + int(second * 1000)
    ended = {"open_ms": 1_000, "completed_ms": at_ms + 5} if kind in _ENDS else {}
    blank = Transition(
        kind,
        Confidence.CERTAIN,
        TransitionReason.SAME_EPOCH,
        at_ms,
        7,
        3,
        2,
        60_000,
        None,
        None,
        None,
        4,
        int(second),
    )
    return blank._replace(**(ended | fields))


_ENDS = (TransitionKind.COMMIT, TransitionKind.TAKEOVER, TransitionKind.TIMEOUT, TransitionKind.CLIENT_ABORT)


def newest_first(*facts: Transition) -> list[Transition]:
    return list(reversed(facts))


def test_the_newest_transaction_is_told_from_its_beginning() -> None:
    now = transaction_timeline.newest_transaction(
        newest_first(
            told(TransitionKind.INIT, 0),
            told(TransitionKind.BEGIN, 1),
            told(TransitionKind.COMMIT, 2),
            told(TransitionKind.BEGIN, 3),
            told(TransitionKind.EXTEND, 4),
            told(TransitionKind.EXTEND, 5),
            told(TransitionKind.CLIENT_ABORT, 6),
        )
    )
    assert now.begun == told(TransitionKind.BEGIN, 3)
    assert now.extended == [told(TransitionKind.EXTEND, 4), told(TransitionKind.EXTEND, 5)]
    assert now.end == told(TransitionKind.CLIENT_ABORT, 6)
    assert (now.initialised, now.initialised_ms) == (told(TransitionKind.INIT, 0), AT_MS)


def test_an_open_one_has_no_end() -> None:
    now = transaction_timeline.newest_transaction(
        newest_first(told(TransitionKind.COMMIT, 2), told(TransitionKind.BEGIN, 3))
    )
    assert (now.begun, now.end, now.initialised) == (told(TransitionKind.BEGIN, 3), None, None)


def test_an_end_whose_beginning_is_not_kept_is_an_end() -> None:
    now = transaction_timeline.newest_transaction(
        newest_first(told(TransitionKind.COMMIT, 1), told(TransitionKind.COMMIT, 2))
    )
    assert (now.begun, now.end) == (None, told(TransitionKind.COMMIT, 2))


def test_an_abort_of_nothing_takes_nothing_of_the_transaction_before_it() -> None:
    empty = told(TransitionKind.EMPTY_ABORT, 3, open_ms=0)
    now = transaction_timeline.newest_transaction(
        newest_first(told(TransitionKind.BEGIN, 1), told(TransitionKind.COMMIT, 2), empty)
    )
    assert (now.end, now.begun, list(now.extended)) == (empty, None, [])


def test_who_took_over_was_initialised_after_the_abort() -> None:
    taken = told(TransitionKind.TAKEOVER, 9, gap_ms=100)
    now = transaction_timeline.newest_transaction(newest_first(told(TransitionKind.BEGIN, 8), taken))
    assert (now.initialised, now.initialised_ms) == (taken, AT_MS + 9_105)
    assert (now.begun, now.end) == (None, None)  # What it will begin is still to come.


def test_an_older_initialisation_is_found_among_the_notable_ones() -> None:
    before = told(TransitionKind.REINIT, -500)
    now = transaction_timeline.newest_transaction(
        newest_first(told(TransitionKind.BEGIN, 1), told(TransitionKind.COMMIT, 2)), [before]
    )
    assert now.initialised == before


def test_bars_run_from_begin_to_completion_and_to_now_while_open() -> None:
    row = factories.transaction(factories.cluster(), age_ms=3_000)
    assert row.started_ms is not None
    recent = newest_first(told(TransitionKind.COMMIT, 2), told(TransitionKind.TIMEOUT, 70, open_ms=61_000))
    bars = transaction_timeline.timeline_bars(recent, row, row.started_ms + 3_000)
    expected = [(1_000, 2_005, TransitionKind.COMMIT), (9_000, 70_005, TransitionKind.TIMEOUT)]
    assert [(bar.begun_ms - AT_MS, bar.until_ms - AT_MS, bar.end) for bar in bars[:2]] == expected
    assert (bars[2].begun_ms, bars[2].until_ms, bars[2].end) == (row.started_ms, row.started_ms + 3_000, None)


def test_a_clock_that_went_back_makes_no_bar_of_negative_length() -> None:
    (bar,) = transaction_timeline.timeline_bars(
        [told(TransitionKind.COMMIT, 2, open_ms=-3_600_000)], None, AT_MS
    )
    assert bar.begun_ms <= bar.until_ms


def test_what_is_no_transaction_is_a_mark() -> None:
    everything = [told(kind, n) for n, kind in enumerate(TransitionKind)]
    marks = {mark.kind for mark in transaction_timeline.timeline_marks(everything)}
    bars = {bar.end for bar in transaction_timeline.timeline_bars(everything, None, AT_MS)}
    assert marks | bars == set(TransitionKind) - {TransitionKind.BEGIN, TransitionKind.EXTEND}
    assert not marks & bars


def test_usual_durations_are_this_id_s_and_its_application_s() -> None:
    recent = [told(TransitionKind.COMMIT, n, open_ms=ms) for n, ms in enumerate((10, 20, 30, 40, 1_000))]
    mine, markers, theirs = transaction_timeline.usual_durations(recent, "orders", {5: 10}, {})
    assert (mine.whose, mine.number, mine.p50, mine.p99) == (transaction_timeline.THIS, 5, 30, 1_000)
    assert (markers.p50, markers.p99) == (5, 5)
    assert (theirs.whose, theirs.number, theirs.p50) == ("orders", 10, 5)


def test_a_commit_that_another_broker_completed_with_another_clock_has_no_usual_duration() -> None:
    recent = [told(TransitionKind.COMMIT, 1), told(TransitionKind.COMMIT, 2, completed_ms=AT_MS + 1_200)]
    markers = transaction_timeline.usual_durations(recent, "orders", {}, {})[1]
    assert (markers.what, markers.number, markers.p50) == ("decision to first marker", 1, 5)


COMPLETED_MS = st.integers(AT_MS - 60_000, AT_MS + 60_000)


@given(
    COMPLETED_MS,
    st.sampled_from([TransitionKind.COMMIT, TransitionKind.TIMEOUT, TransitionKind.CLIENT_ABORT]),
    st.integers(-30, 30),
)
def test_instants_of_the_lifecycle_never_go_back(
    completed_ms: int, kind: TransitionKind, begun_s: int
) -> None:
    """Each record has the clock of the broker that coordinated the id then: another one may lie behind."""
    end = told(kind, 0, completed_ms=completed_ms)
    now = transaction_timeline.newest_transaction(
        newest_first(told(TransitionKind.INIT, -20), told(TransitionKind.BEGIN, begun_s), end)
    )
    committed = kind is TransitionKind.COMMIT
    row = Transaction(
        transactional_id="a", state="CompleteCommit" if committed else "CompleteAbort", producer_id=7,
        producer_epoch=3, timeout_ms=60_000, started_ms=AT_MS + begun_s * 1_000, updated_ms=completed_ms,
        log_partition=4, log_offset=7,
    )  # fmt: skip
    steps = transaction_steps.lifecycle_steps(row, [], 50, now)
    instants = [step.at_ms for step in steps if step.at_ms is not None]
    assert instants == sorted(instants)
    assert [step.words.split(":")[0] for step in steps][-3:] == ["Ended", "Markers sent", "Complete"]
    gone = [step for step in steps if "clock was set back" in step.evidence]
    in_order = -20 <= begun_s <= 0 and completed_ms >= AT_MS
    assert bool(gone) != in_order
    assert all(step.at_ms is None for step in gone)


def test_the_page_tells_each_step_its_instant_and_its_evidence(page: Client) -> None:
    prod = factories.cluster()
    scenarios.busy_history(prod)
    row = Transaction.objects.filter(state="CompleteCommit").first()
    assert row is not None
    text = page_html(page, f"/transactions/prod/{row.transactional_id}")
    assert "InitProducerId" in text
    assert re.search(r"first partition added, offset [\d,]+", text)
    assert re.search(r"from \d+ ms after the decision on", text)
    assert re.search(r"Ended: committed", text)
    assert "Commit durations" in text
    assert 'data-chart="timeline-chart-figure"' in text


def test_what_happened_to_an_id_is_on_its_page_and_nobody_else_s(page: Client, prod: Cluster) -> None:
    factories.takeover_history(prod, b"mine")
    factories.takeover_history(prod, b"other")
    text = page_html(page, "/transactions/prod/mine")
    expected = history_queries.TransitionRecord.objects.filter(transactional_id="mine").count()
    assert len(re.findall(r'<tr id="transition-', text)) == expected
    assert "other" not in re.sub(r"another|other producer", "", text)


def test_an_id_that_expired_keeps_its_page_while_its_history_is_kept(page: Client, prod: Cluster) -> None:
    walk = factories.TransactionHistory("gone-1", random.Random(5))
    walk.old = False
    walk.now_ms = factories.now_ms() - 3_000_000
    walk.init()
    walk.commit()
    at_ms = walk.now_ms + 1_000
    factories.save_histories(prod, [*walk.written, Tombstone("gone-1", at_ms)])
    assert not Transaction.objects.exists()
    text = page_html(page, "/transactions/prod/gone-1")
    assert "Its coordinator expired it" in text
    assert "commit" in text
    assert "expiry" in text
    Recent.objects.all().delete()
    history_queries.TransitionRecord.objects.all().delete()
    assert page.get("/transactions/prod/gone-1").status_code == 404


def test_the_first_page_has_the_lanes_of_the_last_hour(page: Client, prod: Cluster) -> None:
    factories.takeover_history(prod, b"payments-1")
    text = " ".join(page.get("/timeline").content.decode().split())
    assert 'data-chart="events-chart-figure"' in text
    assert "Lanes: 1 event." in text


def test_the_first_page_without_a_past_has_no_chart(page: Client, prod: Cluster) -> None:
    text = " ".join(page.get("/timeline").content.decode().split())
    assert "Nothing was recorded since" in text
    assert "data-chart" not in text
