"""Proves the rules about groups by numbered cases: which group is blocked, by what, and when its status is
unknown.
"""

from dataclasses import replace

import pytest

from fenceline.kafka.groups import Waiting
from fenceline.snapshot import BlockedOffset, Blocker, DeletedRead
from tests.unit.rules.factories import (
    BLOCKER,
    ago,
    blocked_group,
    blocked_offset,
    finding_severities,
    findings_of,
    pending_offset,
    transaction,
)


@pytest.mark.parametrize(
    ("number", "offset", "is_stalled", "why"),
    [
        (1, blocked_offset(60), False, "the limit itself is within"),
        (2, blocked_offset(60.1), True, "it stands at the LSO, which somebody holds"),
        (3, blocked_offset(900, how=Waiting.READS_PAST), False, "it reads uncommitted"),
        (4, blocked_offset(900, how=Waiting.NOT_YET), False, "it has work before the LSO"),
        (5, blocked_offset(900, how=None), False, "nothing holds that partition"),
        (6, blocked_offset(None), False, "not known since when"),
    ],
)
def test_group_stalled(number: int, offset: BlockedOffset, is_stalled: bool, why: str) -> None:
    told = findings_of("group_stalled", groups=(blocked_group(offset),))
    assert [each.severity.value for each in told] == (["warning"] if is_stalled else []), f"{number}: {why}"


@pytest.mark.parametrize(
    ("number", "offset", "timeout_s", "severity", "why"),
    [
        (1, blocked_offset(70), 600, "warning", "its coordinator ends it within ten minutes"),
        (2, blocked_offset(301), 600, "critical", "for five minutes"),
        (3, blocked_offset(70), 3_600, "critical", "nothing ends it for an hour"),
        (4, blocked_offset(70, Blocker(4_900, "")), 600, "critical", "nobody is known to end it"),
        (5, replace(blocked_offset(70), behind=20_000), 600, "critical", "so many records"),
    ],
)
def test_group_stalled_severity_grows_with_the_damage(
    number: int, offset: BlockedOffset, timeout_s: float, severity: str, why: str
) -> None:
    facts = {"groups": (blocked_group(offset),), "transactions": (transaction(90, timeout_s=timeout_s),)}
    assert finding_severities("group_stalled", **facts) == [severity], f"case {number}: {why}"


def test_group_stalled_names_the_blocker() -> None:
    nameless = Blocker(4_900, "")
    (finding,) = findings_of(
        "group_stalled",
        groups=(blocked_group(blocked_offset(90), blocked_offset(70, nameless, partition=3)),),
    )
    assert finding.subject == "group:billing"
    assert finding.since_ms == ago(90)
    assert finding.summary == "billing is blocked at the LSO of payments-0 and payments-3"
    assert "blocked by producer id 4900 and payments-7" in finding.evidence
    assert finding.affected == (
        "partition:payments-0",
        "partition:payments-3",
        "transaction:payments-7",
    )


PENDING = BLOCKER._replace(pending=True)
YOUNG = PENDING._replace(transactional_id="young")


@pytest.mark.parametrize(
    ("number", "blockers", "age_s", "log_s", "since_s", "why"),
    [
        (1, (PENDING,), 29, None, None, "pending commits are everyday work"),
        (2, (PENDING,), 31, None, 31, "the transaction that holds them is open for long"),
        (3, (PENDING,), None, None, None, "how long is not known"),
        (4, (), None, 31, 31, "its partition of __consumer_offsets says how long"),
        (5, (), None, 29, None, "and that it is not long"),
        (6, (YOUNG,), 900, 900, None, "it is young, and another one holds the log"),
        (7, (YOUNG._replace(certain=False),), 900, 31, 31, "which one it is, is not sure"),
        (8, (YOUNG._replace(transactional_id=""),), 900, 31, 31, "which one it is, is not known"),
    ],
)
def test_offsets_unstable(
    number: int,
    blockers: tuple[Blocker, ...],
    age_s: float | None,
    log_s: float | None,
    since_s: float | None,
    why: str,
) -> None:
    held = blocked_group(pending_offset(*blockers), log_pinned_s_ago=log_s)
    told = findings_of("offsets_unstable", groups=(held,), transactions=(transaction(age_s),))
    assert [each.since_ms for each in told] == ([] if since_s is None else [ago(since_s)]), f"{number}: {why}"


def test_offsets_unstable_names_the_transaction_and_its_confidence() -> None:
    sure, unsure = (
        findings_of(
            "offsets_unstable",
            groups=(blocked_group(pending_offset(PENDING._replace(certain=certain))),),
            transactions=(transaction(90),),
        )[0]
        for certain in (True, False)
    )
    assert "are pending in payments-7" in sure.evidence
    assert "are pending, probably in payments-7" in unsure.evidence
    assert sure.affected == ("partition:orders-1", "transaction:payments-7")


def test_a_blocked_group_without_a_pending_commit_is_not_unstable() -> None:
    assert not findings_of(
        "offsets_unstable", groups=(blocked_group(blocked_offset(900), log_pinned_s_ago=900),)
    )


@pytest.mark.parametrize(
    ("number", "unread", "ago_s", "evidence"),
    [
        (1, (16, 4), 60, "orders-0 and orders-1 had 20 unread records for this group"),
        (2, (16, None), 60, "orders-0 and orders-1 had at least 16 unread records for this group"),
        (3, (1, 0), 86_400, "orders-0 and orders-1 had 1 unread record for this group"),
        (4, (16, 4), 86_401, ""),
    ],
)
def test_unread_deleted(number: int, unread: tuple[int | None, ...], ago_s: int, evidence: str) -> None:
    reads = tuple(DeletedRead("billing", "orders", n, left, ago(ago_s)) for n, left in enumerate(unread))
    told = findings_of("unread_deleted", deleted_reads=reads)
    assert [each.evidence for each in told] == [evidence] * bool(evidence), f"case {number}"
    assert {each.subject for each in told} <= {"group:billing"}
