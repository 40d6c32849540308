"""Proves the rules about Flink jobs by numbered cases: when a decided commit is late, how bad that is, what
is lost, and when they are silent."""

from typing import Any

import pytest

from fenceline.engines.flink.restore import CommitFate, DecidedTransaction, FlinkJobFacts
from fenceline.facts import Severity
from fenceline.formatting import format_clock
from tests.unit.rules.factories import (
    ago,
    finding_severities,
    findings_of,
)

PENDING, LOST = "flink_commit_pending", "flink_commit_lost"


def open_commit(left_s: float | None = 3_600, name: str = "copy-0-41") -> DecidedTransaction:
    return DecidedTransaction(name, CommitFate.PENDING, None if left_s is None else ago(-left_s))


def lost_commit(ago_s: float = 60, name: str = "copy-1-41") -> DecidedTransaction:
    return DecidedTransaction(name, CommitFate.LOST, aborted_ms=ago(ago_s))


def job(*transactions: DecidedTransaction, age_s: float | None = 60, **fields: Any) -> FlinkJobFacts:
    completed_ms = None if age_s is None else ago(age_s)
    return FlinkJobFacts("job@1", "copy", "chk-41", completed_ms, ("copy",), transactions, **fields)


@pytest.mark.parametrize(
    ("number", "facts", "severities", "why"),
    [
        (1, job(open_commit()), ["warning"], "an hour is left"),
        (2, job(open_commit(601)), ["warning"], "just more than the limit"),
        (3, job(open_commit(599)), ["critical"], "less than loss_critical_s"),
        (4, job(open_commit(-5)), ["critical"], "any moment"),
        (5, job(open_commit(), open_commit(60, "copy-1-41")), ["critical"], "the first counts"),
        (6, job(open_commit(None)), ["warning"], "two-phase commit: no coordinator aborts it"),
        (7, job(open_commit(), age_s=9), [], "a running job is about to commit it"),
        (8, job(open_commit(), age_s=None), ["warning"], "the store reports no time"),
        (9, job(lost_commit()), [], "nothing is open"),
        (10, job(), [], "nothing is left"),
    ],
)
def test_a_decided_commit_is_late(number: int, facts: FlinkJobFacts, severities: list[str], why: str) -> None:
    assert finding_severities(PENDING, flink_jobs=(facts,)) == severities, f"case {number}: {why}"


def test_a_late_commit_names_when_records_are_lost_and_whom_to_commit() -> None:
    (found,) = findings_of(PENDING, flink_jobs=(job(open_commit(), open_commit(700, "copy-1-41")),))
    assert found.subject == "flink_job:job@1"
    assert found.summary == "copy: 2 transactions of chk-41 are decided and not committed"
    assert found.affected == ("transaction:copy-0-41", "transaction:copy-1-41")
    assert (found.since_ms, found.deadline_ms) == (ago(60), ago(-700))
    assert format_clock(ago(-700)) in found.evidence
    assert "Commit what the checkpoint decided" in found.next_step


@pytest.mark.parametrize(
    ("number", "facts", "is_found", "why"),
    [
        (1, job(lost_commit()), True, "aborted a minute ago"),
        (2, job(lost_commit(86_401)), False, "reported for a day"),
        (3, job(lost_commit(), newer_job="other@2"), False, "another run has decided otherwise"),
        (4, job(open_commit()), False, "open still"),
        (5, job(lost_commit(), open_commit()), True, "one is, the other is open"),
    ],
)
def test_a_lost_commit_is_critical(number: int, facts: FlinkJobFacts, is_found: bool, why: str) -> None:
    found = findings_of(LOST, flink_jobs=(facts,))
    assert bool(found) is is_found, f"case {number}: {why}"
    assert all(each.severity is Severity.CRITICAL for each in found)


def test_a_lost_commit_names_the_checkpoint_and_the_instant() -> None:
    (found,) = findings_of(LOST, flink_jobs=(job(lost_commit(90), lost_commit(60, "copy-2-41")),))
    assert found.summary == "copy has lost records: 2 transactions of chk-41 were aborted"
    assert found.since_ms == ago(90)
    assert found.deadline_ms is None
    assert format_clock(ago(90)) in found.evidence
