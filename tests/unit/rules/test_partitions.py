"""Proves the rules about partitions by numbered cases: what is a finding, how severe it is, and what never
is one.
"""

from typing import Any

import pytest

from fenceline.kafka.groups import Waiting
from fenceline.kafka.partitions import PartitionVerdict, VerdictReason
from fenceline.snapshot import PinnedPartition, UsualCommit
from tests.unit.rules.factories import (
    HANGS,
    HIDDEN,
    OWNED,
    ago,
    blocked_group,
    blocked_offset,
    blocked_partition,
    finding_severities,
    findings_of,
    lso_blocker,
    query,
    source_position,
    transaction,
)

LATE = (PartitionVerdict.LATE, VerdictReason.PAST_TIMEOUT)


@pytest.mark.parametrize(
    ("number", "subject", "severity", "why"),
    [
        (1, blocked_partition(lso_blocker(*HANGS)), "critical", "no coordinator owns it"),
        (
            2,
            blocked_partition(lso_blocker(*HANGS), pinned_s_ago=1),
            "critical",
            "two looks told so: no need to wait for more",
        ),
        (3, blocked_partition(lso_blocker(*OWNED, name="payments-7")), None, "its coordinator will end it"),
        (4, blocked_partition(lso_blocker(*LATE, name="payments-7")), None, "its coordinator still owns it"),
        (
            5,
            blocked_partition(lso_blocker(*HIDDEN)),
            None,
            "an id may be hidden from us: never accuse on what is not seen",
        ),
        (
            6,
            blocked_partition(lso_blocker(*OWNED, name="a"), lso_blocker(*HANGS, start=900)),
            "critical",
            "behind one that is owned",
        ),
    ],
)
def test_hanging(number: int, subject: PinnedPartition, severity: str | None, why: str) -> None:
    told = finding_severities("hanging", partitions=(subject,))
    assert told == ([severity] if severity else []), f"case {number}: {why}"


def test_hanging_gives_the_command_that_ends_it() -> None:
    hangs = lso_blocker(*HANGS, start=812, seen_s_ago=30), lso_blocker(*HANGS, start=900, seen_s_ago=20)
    (finding,) = findings_of(
        "hanging", partitions=(blocked_partition(*hangs),), groups=(blocked_group(blocked_offset()),)
    )
    assert finding.subject == "partition:payments-0"
    assert finding.since_ms == ago(30)
    assert "abort it in payments-0 at offset 812" in finding.next_step
    assert "producer id 4812, epoch 3" in finding.evidence
    assert finding.affected == ("group:billing",)


@pytest.mark.parametrize(
    ("number", "subject", "severity", "why"),
    [
        (
            1,
            blocked_partition(lso_blocker(*OWNED, name="a"), pinned_s_ago=60),
            None,
            "the limit itself is within",
        ),
        (
            2,
            blocked_partition(lso_blocker(*OWNED, name="a"), pinned_s_ago=60.1),
            "info",
            "the transaction's finding accuses",
        ),
        (
            3,
            blocked_partition(lso_blocker(*HANGS), pinned_s_ago=61),
            "info",
            "the hanging one's finding accuses",
        ),
        (
            4,
            blocked_partition(lso_blocker(*HIDDEN), pinned_s_ago=61),
            "warning",
            "nobody is known who holds it",
        ),
        (5, blocked_partition(pinned_s_ago=61), "warning", "its leader could not be asked"),
    ],
)
def test_lso_pinned(number: int, subject: PinnedPartition, severity: str | None, why: str) -> None:
    told = finding_severities("lso_pinned", partitions=(subject,))
    assert told == ([severity] if severity else []), f"case {number}: {why}"


@pytest.mark.parametrize(
    ("number", "subject", "facts", "severity", "why"),
    [
        (
            1,
            blocked_partition(lso_blocker(*OWNED, name="a")),
            {"groups": (blocked_group(blocked_offset(30)),)},
            "info",
            "a group has just come",
        ),
        (
            2,
            blocked_partition(lso_blocker(*OWNED, name="a")),
            {"groups": (blocked_group(blocked_offset(61)),)},
            "warning",
            "it is blocked",
        ),
        (
            3,
            blocked_partition(lso_blocker(*OWNED, name="a"), pinned_s_ago=430),
            {"groups": (blocked_group(blocked_offset(420)),)},
            "critical",
            "7 min",
        ),
        (
            4,
            blocked_partition(lso_blocker(*OWNED, name="a"), pinned_s_ago=70),
            {"groups": (blocked_group(blocked_offset(900)),)},
            "warning",
            "it was there before, at the end of the log: blocked since the LSO is",
        ),
        (
            5,
            blocked_partition(lso_blocker(*OWNED, name="a"), pinned_s_ago=430),
            {"queries": (query(positions=(source_position(),)),)},
            "warning",
            "a query came later",
        ),
        (
            6,
            blocked_partition(lso_blocker(*OWNED, name="a")),
            {"groups": (blocked_group(blocked_offset(90, partition=3)),)},
            "info",
            "elsewhere",
        ),
        (
            7,
            blocked_partition(lso_blocker(*OWNED, name="a")),
            {"groups": (blocked_group(blocked_offset(90, how=Waiting.READS_PAST)),)},
            "info",
            "it reads uncommitted",
        ),
        (
            8,
            blocked_partition(lso_blocker(*HANGS)),
            {"groups": (blocked_group(blocked_offset(90)),)},
            "critical",
            "nothing ever ends it",
        ),
        (
            9,
            blocked_partition(lso_blocker(*OWNED, name="payments-7")),
            {
                "groups": (blocked_group(blocked_offset(90)),),
                "transactions": (transaction(90, timeout_s=3_600),),
            },
            "critical",
            "no end in an hour",
        ),
        (
            10,
            blocked_partition(lso_blocker(*OWNED, name="payments-7"), pinned_s_ago=430),
            {
                "groups": (blocked_group(blocked_offset(420)),),
                "transactions": (transaction(440),),
                "usual": {"payments": UsualCommit(80, 200_000)},
            },
            "info",
            "usual",
        ),
        (11, blocked_partition(lso_blocker(*HIDDEN)), {}, "warning", "nobody is known who holds it"),
    ],
)
def test_lso_pinned_has_the_severity_of_what_it_blocks(
    number: int, subject: PinnedPartition, facts: dict[str, Any], severity: str, why: str
) -> None:
    """1,465 records and a group that is blocked for 7 minutes are no "info"."""
    assert finding_severities("lso_pinned", partitions=(subject,), **facts) == [severity], (
        f"case {number}: {why}"
    )


def test_lso_pinned_names_the_blocker_and_the_uncommitted_backlog() -> None:
    subject = blocked_partition(
        lso_blocker(*OWNED, start=900, name="later"), lso_blocker(*OWNED, start=812, name="first")
    )
    (finding,) = findings_of("lso_pinned", partitions=(subject,), groups=(blocked_group(blocked_offset()),))
    assert finding.since_ms == ago(90)
    assert "up to 5,000 records" in finding.evidence or "up to 5,000+ records" in finding.evidence
    assert "blocked by first (producer id 4812, epoch 3), which is open" in finding.evidence
    assert "1 more transaction behind it" in finding.evidence
    assert finding.affected == ("group:billing",)


def test_a_group_that_reads_past_the_lso_is_not_affected_by_name_alone() -> None:
    groups = (
        blocked_group(blocked_offset(how=None)),
        blocked_group(blocked_offset(how=Waiting.PROBABLY, partition=1)),
    )
    (finding,) = findings_of(
        "lso_pinned", partitions=(blocked_partition(lso_blocker(*HIDDEN)),), groups=groups
    )
    assert finding.affected == ()


def test_texts_do_not_change_while_records_arrive() -> None:
    """Otherwise each new record after a stuck LSO would be an update for every browser."""
    told = [
        findings_of(
            "lso_pinned",
            partitions=(PinnedPartition("payments", 0, ago(90), 812, end, PartitionVerdict.UNKNOWN),),
        )
        for end in (6_000, 6_500)
    ]
    assert told[0] == told[1]
