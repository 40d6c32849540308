"""Proves on rows what becomes of a Flink checkpoint's decision: a finding while it is open, an incident with
everything that its job left open, a loss when it is aborted, and nothing once it is committed."""

from collections.abc import Callable

import pytest

from dashboard.models import FindingRecord, FlinkCheckpointRecord, FlinkJob, Incident, Transaction
from fenceline.engines.flink.records import Committable
from tests.db import factories
from tests.db.conftest import NOW_MS, Take

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


@pytest.mark.parametrize(
    ("number", "is_savepoint", "started_ms", "why"),
    [
        (1, True, NOW_MS - 120_000, "a savepoint decides only for who is restored from it"),
        (2, False, NOW_MS - 50_000, "the id is used again, under the same epoch"),
    ],
)
def test_what_the_checkpoint_does_not_decide_is_no_finding(
    tick: Tick, number: int, is_savepoint: bool, started_ms: int, why: str
) -> None:
    job("copy-0-41", is_savepoint=is_savepoint)
    factories.transaction("copy-0-41", started_ms=started_ms)
    assert tick() == {}, f"case {number}: {why}"


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
