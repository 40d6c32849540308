"""Proves the rule about commits that lost records: what it says of whom, and when it is silent."""

import pytest

from fenceline.facts import Severity
from fenceline.losses.recoveries import DELETED, LostRecords
from fenceline.snapshot import AbortedCommitFacts
from tests.unit.rules.factories import ago, findings_of

RULE = "aborted_under_commit"
MARKED = LostRecords("payments", 2, 1_000, 1_004, 5, True)
ONE = LostRecords("payments", 3, 7, 7, 1, True)
GONE = LostRecords("orders", 0, 10, 29, None, False, DELETED, deleted=True)


def commit(*lost: LostRecords, name: str = "held-3", ago_s: float = 60) -> AbortedCommitFacts:
    return AbortedCommitFacts(name, 7, ago(ago_s + 30), ago(ago_s), lost)


@pytest.mark.parametrize(
    ("number", "lost", "summary", "evidence"),
    [
        (
            1,
            (MARKED,),
            "held-3: aborted by a marker before the commit, 5 records lost",
            "payments-2: 5 records, offsets 1,000 to 1,004",
        ),
        (
            2,
            (MARKED, ONE),
            "held-3: aborted by a marker before the commit, 6 records lost",
            "payments-2: 5 records, offsets 1,000 to 1,004 and payments-3: 1 record, offset 7",
        ),
        (
            3,
            (GONE,),
            "held-3: its topic was deleted before the commit, at most 20 records lost",
            "orders-0: offsets 10 to 29 at most (the topic was deleted)",
        ),
        (
            4,
            (GONE, MARKED),
            "held-3: aborted by a marker and its topic was deleted before the commit, "
            "at most 25 records lost",
            "payments-2: 5 records",
        ),
    ],
)
def test_a_commit_that_lost_records(
    number: int, lost: tuple[LostRecords, ...], summary: str, evidence: str
) -> None:
    (found,) = findings_of(RULE, aborted_commits=(commit(*lost),))
    assert found.summary == summary, f"case {number}"
    assert evidence in found.evidence, f"case {number}"
    assert (found.subject, found.severity) == ("transaction:held-3", Severity.CRITICAL)
    assert (found.since_ms, found.instance) == (ago(60), f"7@{ago(90)}")
    assert ("Write the lost records again" in found.next_step) is (MARKED in lost)


def test_of_one_id_the_newest_commit_is_named() -> None:
    told = findings_of(RULE, aborted_commits=(commit(ONE), commit(MARKED, ago_s=600), commit(ONE, name="b")))
    assert [each.subject for each in told] == ["transaction:held-3", "transaction:b"]
    assert "1 record lost" in told[0].summary
    assert "1 earlier commit of this id lost records" in told[0].evidence
