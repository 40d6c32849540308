"""Proves on rows what becomes of a Flink checkpoint's decision, open, aborted or committed; which committed
transactions are searched for lost records, and what their incidents offer."""

from collections.abc import Callable

import pytest

from dashboard.incidents.affected_offsets import affected_offsets
from dashboard.models import (
    AbortedCommit,
    FindingRecord,
    FlinkCheckpointRecord,
    FlinkJob,
    Incident,
    IncidentFinding,
    PinRecord,
    Transaction,
)
from dashboard.recoveries.commit_watch import (
    CommitWatch,
    EndedCommit,
    deleted_records,
    read_aborted_commits,
    searches,
)
from fenceline.engines.flink.records import Committable
from fenceline.facts import TopicPartition, TransitionKind
from fenceline.kafka.transactional_ids import key_of
from fenceline.losses.recoveries import DELETED, LostRecords
from tests.cases import cases
from tests.db import factories
from tests.db.conftest import NOW_MS, Take
from tests.db.factories import prod

PENDING, LOST = "flink_commit_pending", "flink_commit_lost"
PATH = "s3://flink/job"


@pytest.fixture
def tick(take: Take) -> Callable[..., dict[str, str]]:
    """Evaluate until a second poll agrees; return what the rules about Flink find, with severities."""
    factories.collectors(*factories.ALL_COLLECTORS, "flink")
    factories.position()
    lease = take("judge")

    def tick() -> dict[str, str]:
        factories.evaluate_polls(lease)
        found = FindingRecord.objects.filter(closed_at=None, subject__startswith="flink_job:")
        return dict(found.values_list("rule", "severity"))

    return tick


Tick = Callable[..., dict[str, str]]


def job(*names: str, ident: str = "job@1", age_ms: int = 60_000, is_savepoint: bool = False) -> FlinkJob:
    """Make a job whose checkpoint decided to commit ids of producer 7, epoch 0."""
    completed_ms = NOW_MS - age_ms
    row = FlinkJob.objects.create(
        cluster=factories.prod(), ident=ident, path=f"{PATH}/{ident}", prefixes=["copy"], checkpoint_id=41,
        completed_ms=completed_ms, is_savepoint=is_savepoint, pending=len(names), seen_ms=NOW_MS, rev=1,
    )  # fmt: skip
    FlinkCheckpointRecord.objects.create(
        job=row, name="chk-41", checkpoint_id=41, version=6, is_savepoint=is_savepoint,
        completed_ms=completed_ms,
        committables=[list(Committable(name, 7, 0, 41, "out")) for name in names],
    )  # fmt: skip
    return row


def test_what_one_job_left_open_is_one_incident_until_it_is_committed(tick: Tick) -> None:
    job("copy-0-41", "copy-1-41")
    for name in ("copy-0-41", "copy-1-41", "copy-0-42", "other-0-1"):
        factories.transaction(name, application=name[:-5], timeout_ms=3_600_000)
    assert tick() == {PENDING: "warning"}
    (finding,) = FindingRecord.objects.filter(rule=PENDING)
    assert finding.affected == ["transaction:copy-0-41", "transaction:copy-1-41"]
    assert finding.deadline_ms == NOW_MS - 120_000 + 3_600_000
    incident = Incident.objects.get(rule=PENDING)
    found = set(incident.findings.filter(until_ms=None).values_list("subject", flat=True))
    assert found >= {f"transaction:{name}" for name in ("copy-0-41", "copy-1-41", "copy-0-42")}
    assert "transaction:other-0-1" not in found
    assert Incident.objects.filter(closed_ms=None, rule="open_too_long").count() == 1
    Transaction.objects.filter(transactional_id__endswith="-41").update(
        state="CompleteCommit", producer_epoch=1
    )
    assert tick() == {}


def test_an_abort_after_the_decision_is_a_loss_of_the_same_incident(tick: Tick) -> None:
    names = "copy-0-41", "copy-1-41"
    job(*names)
    rows = [factories.transaction(name, timeout_ms=300_000) for name in names]
    assert tick() == {PENDING: "critical"}
    incident = Incident.objects.get(rule=PENDING)
    for row, expected in zip(
        rows, ({PENDING: "critical", LOST: "critical"}, {LOST: "critical"}), strict=True
    ):
        row.state, row.producer_epoch, row.updated_ms = "CompleteAbort", 1, NOW_MS
        row.save()
        assert tick() == expected
        assert list(Incident.objects.filter(closed_ms=None)) == [incident]


@cases(
    (True, NOW_MS - 120_000, "a savepoint decides only for who is restored from it"),
    (False, NOW_MS - 50_000, "the id is used again, under the same epoch"),
)
def test_what_the_checkpoint_does_not_decide_is_no_finding(
    tick: Tick, is_savepoint: bool, started_ms: int, why: str
) -> None:
    job("copy-0-41", is_savepoint=is_savepoint)
    factories.transaction("copy-0-41", started_ms=started_ms)
    assert tick() == {}, why


def test_a_hidden_folder_neither_opens_nor_closes(tick: Tick) -> None:
    job("copy-0-41")
    hidden = factories.gap("flink", f"checkpoint:{PATH}/job@1")
    factories.transaction("copy-0-41")
    assert tick() == {}
    hidden.delete()
    assert tick() == {PENDING: "critical"}
    factories.gap("flink", f"checkpoint:{PATH}/job@1")
    FlinkJob.objects.update(pending=0, checkpoint_id=None, error="cannot be read")
    assert tick() == {PENDING: "critical"}


def test_a_later_run_with_the_same_prefix_takes_the_decision(tick: Tick) -> None:
    job("copy-0-41", age_ms=90_000)
    factories.transaction("copy-0-41", state="CompleteAbort", producer_epoch=1, updated_ms=NOW_MS)
    assert tick() == {LOST: "critical"}
    job(ident="job@2", age_ms=30_000)
    assert tick() == {}


ORDERS_0 = TopicPartition("orders", 0)
STARTED_MS = NOW_MS - 1_000
#: Seconds at which the collector polls.
POLLS = (0, 1, 2, 3, 4, 5, 6)


@pytest.fixture
def watch() -> CommitWatch:
    factories.position(ahead_ms=0)
    factories.partition()
    factories.transaction(started_ms=STARTED_MS, client_version=0)
    return CommitWatch()


def follow(watch: CommitWatch, *polls_s: float) -> None:
    for at_s in polls_s:
        watch.follow(prod().pk, NOW_MS + int(at_s * 1_000))


def open_at(offset: int, *, verdict: str = "open", first_seen_ms: int = NOW_MS) -> None:
    """Let the leader name the transaction, with its first record."""
    row = factories.lso_blocker(name="payments-7", verdict=verdict, ground="owner_open")
    row.start_offset, row.first_seen_ms = offset, first_seen_ms
    row.save()


def end(kind: TransitionKind = TransitionKind.COMMIT) -> None:
    Transaction.objects.update(state="CompleteCommit", started_ms=None)
    factories.recent_end("payments-7", kind, producer_id=7, started_ms=STARTED_MS)


def queued(watch: CommitWatch) -> tuple[list[EndedCommit], list[EndedCommit]]:
    return list(watch.suspected), list(watch.others)


def test_a_commit_of_what_was_open_everywhere_is_not_suspected(watch: CommitWatch) -> None:
    open_at(800)
    follow(watch, *POLLS)
    end()
    follow(watch, 7)
    suspected, (other,) = queued(watch)
    assert suspected == []
    assert list(searches(other)) == [(ORDERS_0, 0, 800)]
    assert other.committed_ms == STARTED_MS + 50


@cases(
    (800, None, True, "it is not open there any more"),
    (800, 805, True, "its first record there is another one"),
    (None, None, True, "it never was"),
    (None, 805, False, "it is now"),
)
def test_what_is_suspected(
    watch: CommitWatch, first: int | None, then: int | None, is_suspected: bool, why: str
) -> None:
    if first is not None:
        open_at(first)
    follow(watch, 0, 1)
    PinRecord.objects.all().delete()
    if then is not None:
        open_at(then)
    follow(watch, 2, 3, 4)
    end()
    follow(watch, 5)
    assert bool(watch.suspected) is is_suspected, why


@cases(("hanging", NOW_MS, None), ("open", STARTED_MS - 1, None), ("open", STARTED_MS, 800))
def test_what_hung_before_is_not_of_the_transaction(
    watch: CommitWatch, verdict: str, first_seen_ms: int, first: int | None
) -> None:
    """Our own plan aborts such a one while the producer may begin anew under the same identity."""
    open_at(800, verdict=verdict, first_seen_ms=first_seen_ms)
    follow(watch, 0)
    end()
    follow(watch, 1)
    assert [place[2] for place in searches(watch.others[0])] == [first]


def test_an_aborted_transaction_is_not_searched_and_one_that_is_not_seen_to_end_is_given_up(
    watch: CommitWatch,
) -> None:
    open_at(800)
    follow(watch, 0, 1)
    PinRecord.objects.all().delete()
    follow(watch, *POLLS[2:])
    end(TransitionKind.CLIENT_ABORT)
    follow(watch, 7)
    assert not [*watch._watched, *watch.suspected, *watch.others]
    Transaction.objects.update(state="Ongoing", started_ms=STARTED_MS + 9)
    follow(watch, 8)
    Transaction.objects.all().delete()
    follow(watch, 68)
    assert watch._watched
    follow(watch, 609)
    assert not [*watch._watched, *watch.suspected, *watch.others]


@pytest.mark.parametrize(("known_s", "is_lost"), [(-2, True), (2, False)])
def test_only_a_topic_that_was_gone_before_the_commit_counts(
    watch: CommitWatch, known_s: int, is_lost: bool
) -> None:
    open_at(800)
    follow(watch, 0)
    end()
    follow(watch, 1)
    (ended,) = watch.others
    ended.watched.deleted["orders"] = DELETED, ended.committed_ms + known_s * 1_000
    lost = LostRecords(*ORDERS_0, 800, 5_811, None, False, DELETED, deleted=True)
    assert list(deleted_records(ended)) == ([lost] if is_lost else [])
    assert list(searches(ended)) == []


def test_an_incident_offers_the_offsets_that_its_commit_lost() -> None:
    lost = LostRecords("orders", 0, 3, 9, 5, True)
    for number, committed_ms in enumerate((NOW_MS, NOW_MS - 500_000)):
        AbortedCommit.objects.create(
            cluster=prod(), key=key_of(b"held-3"), transactional_id="held-3", producer_id=7,
            started_ms=STARTED_MS - number, committed_ms=committed_ms,
            lost=[list(lost if number == 0 else lost._replace(topic="earlier"))],
        )  # fmt: skip
    newest, earlier = read_aborted_commits(prod().pk, NOW_MS)
    assert (newest.instance, newest.lost) == (f"7@{STARTED_MS}", (lost,))
    assert earlier.lost[0].topic == "earlier"
    assert list(read_aborted_commits(prod().pk, NOW_MS + 86_400_000)) == []
    row = Incident.objects.create(
        cluster=prod(), rule="aborted_under_commit", subject="transaction:held-3", instance=newest.instance,
        severity="critical", opened_ms=NOW_MS + 1_000, closed_ms=NOW_MS + 2_000,
    )  # fmt: skip
    IncidentFinding.objects.create(
        incident=row, finding=1, rule=row.rule, subject=row.subject, role="cause", severity="critical",
        summary="", since_ms=NOW_MS,
    )  # fmt: skip
    (found,) = affected_offsets(row)
    assert found == ("orders", 0, 3, 9, 5, "aborted", "held-3", True, "")
