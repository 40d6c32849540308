"""Proves the rules about partitions and groups: what is found, how severe it is, and when nothing is."""

from dataclasses import replace
from typing import Any

from fenceline.facts import Finding
from fenceline.kafka.group_observation import GroupBlocker
from fenceline.kafka.groups import Waiting
from fenceline.kafka.partitions import PartitionVerdict, VerdictReason
from fenceline.snapshot import BlockedGroup, BlockedOffset, DeletedRead, PinnedPartition, UsualCommit
from tests.cases import cases
from tests.unit.rules.factories import (
    BLOCKER,
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
    pending_offset,
    query,
    source_position,
    transaction,
)

LATE = (PartitionVerdict.LATE, VerdictReason.PAST_TIMEOUT)


def owned(**fields: Any) -> PinnedPartition:
    """Return a partition that a transaction blocks whose coordinator owns it."""
    return blocked_partition(lso_blocker(*OWNED, name="a"), **fields)


def waiting(*at_lso_s_ago: float, **fields: Any) -> dict[str, Any]:
    """Return the facts of a group that waits at the LSO."""
    return {"groups": (blocked_group(blocked_offset(*at_lso_s_ago, **fields)),)}


HANGING = lso_blocker(*HANGS)
USUAL = {"transactions": (transaction(440),), "usual": {"payments": UsualCommit(80, 200_000)}}
PAYMENTS_7 = lso_blocker(*OWNED, name="payments-7")


@cases(
    ("hanging", blocked_partition(HANGING), ["critical"], "no coordinator owns it"),
    (
        "hanging",
        blocked_partition(HANGING, pinned_s_ago=1),
        ["critical"],
        "two looks told so",
    ),
    ("hanging", blocked_partition(PAYMENTS_7), [], "its coordinator will end it"),
    (
        "hanging",
        blocked_partition(lso_blocker(*LATE, name="a")),
        [],
        "its coordinator still owns it",
    ),
    # Never accuse on what is not seen.
    ("hanging", blocked_partition(lso_blocker(*HIDDEN)), [], "an id may be hidden from us"),
    (
        "hanging",
        blocked_partition(PAYMENTS_7, lso_blocker(*HANGS, start=900)),
        ["critical"],
        "behind one that is owned",
    ),
    ("lso_pinned", owned(pinned_s_ago=60), [], "the limit itself is within"),
    ("lso_pinned", owned(pinned_s_ago=60.1), ["info"], "the transaction's finding accuses"),
    (
        "lso_pinned",
        blocked_partition(HANGING, pinned_s_ago=61),
        ["info"],
        "the hanging one's accuses",
    ),
    (
        "lso_pinned",
        blocked_partition(lso_blocker(*HIDDEN), pinned_s_ago=61),
        ["warning"],
        "nobody is known who holds it",
    ),
    ("lso_pinned", blocked_partition(pinned_s_ago=61), ["warning"], "its leader could not be asked"),
)
def test_severity_of_a_partition(rule: str, subject: PinnedPartition, severity: list[str], why: str) -> None:
    assert finding_severities(rule, partitions=(subject,)) == severity, why


def test_hanging_gives_the_command_that_ends_it() -> None:
    hangs = lso_blocker(*HANGS, start=812, seen_s_ago=30), lso_blocker(*HANGS, start=900, seen_s_ago=20)
    finding = one("hanging", blocked_group(blocked_offset()), partitions=(blocked_partition(*hangs),))
    assert (finding.subject, finding.since_ms) == ("partition:payments-0", ago(30))
    assert "abort it in payments-0 at offset 812" in finding.next_step
    assert "producer id 4812, epoch 3" in finding.evidence
    assert finding.affected == ("group:billing",)


@cases(
    (owned(), waiting(30), "info", "a group has just come"),
    (owned(), waiting(61), "warning", "it is blocked"),
    (owned(pinned_s_ago=430), waiting(420), "critical", "7 min"),
    (
        owned(pinned_s_ago=70),
        waiting(900),
        "warning",
        "it was there before, at the end of the log: blocked since the LSO is",
    ),
    (owned(pinned_s_ago=430), {"queries": (query(positions=(source_position(),)),)}, "warning", "came later"),
    (owned(), waiting(90, partition=3), "info", "elsewhere"),
    (owned(), waiting(90, how=Waiting.READS_PAST), "info", "it reads uncommitted"),
    (blocked_partition(HANGING), waiting(90), "critical", "nothing ever ends it"),
    (
        blocked_partition(PAYMENTS_7),
        {**waiting(90), "transactions": (transaction(90, timeout_s=3_600),)},
        "critical",
        "no end in an hour",
    ),
    (blocked_partition(PAYMENTS_7, pinned_s_ago=430), {**waiting(420), **USUAL}, "info", "usual"),
    (blocked_partition(lso_blocker(*HIDDEN)), {}, "warning", "nobody is known who holds it"),
)
def test_lso_pinned_has_the_severity_of_what_it_blocks(
    subject: PinnedPartition, facts: dict[str, Any], severity: str, why: str
) -> None:
    """1,465 records and a group that is blocked for 7 minutes are no "info"."""
    assert finding_severities("lso_pinned", partitions=(subject,), **facts) == [severity], why


def one(rule: str, *groups: BlockedGroup, **facts: Any) -> Finding:
    (finding,) = findings_of(rule, groups=groups, **facts)
    return finding


def test_lso_pinned_names_the_blocker_and_the_uncommitted_backlog() -> None:
    subject = blocked_partition(
        lso_blocker(*OWNED, start=900, name="later"), lso_blocker(*OWNED, start=812, name="first")
    )
    finding = one("lso_pinned", blocked_group(blocked_offset()), partitions=(subject,))
    assert (finding.since_ms, finding.affected) == (ago(90), ("group:billing",))
    assert "up to 5,000 records" in finding.evidence or "up to 5,000+ records" in finding.evidence
    assert "blocked by first (producer id 4812, epoch 3), which is open" in finding.evidence
    assert "1 more transaction behind it" in finding.evidence
    # A group that reads past the LSO is not affected by name alone.
    past, elsewhere = blocked_offset(how=None), blocked_offset(how=Waiting.PROBABLY, partition=1)
    groups = blocked_group(past), blocked_group(elsewhere)
    assert one("lso_pinned", *groups, partitions=(subject,)).affected == ()


def test_texts_do_not_change_while_records_arrive() -> None:
    """Otherwise each new record after a stuck LSO would be an update for every browser."""
    first, later = (
        one("lso_pinned", partitions=(replace(blocked_partition(), high_watermark=end),))
        for end in (6_000, 6_500)
    )
    assert first == later


@cases(
    (blocked_offset(60), False, "the limit itself is within"),
    (blocked_offset(60.1), True, "it stands at the LSO, which somebody holds"),
    (blocked_offset(900, how=Waiting.READS_PAST), False, "it reads uncommitted"),
    (blocked_offset(900, how=Waiting.NOT_YET), False, "it has work before the LSO"),
    (blocked_offset(900, how=None), False, "nothing holds that partition"),
    (blocked_offset(None), False, "not known since when"),
)
def test_group_stalled(offset: BlockedOffset, is_stalled: bool, why: str) -> None:
    told = findings_of("group_stalled", groups=(blocked_group(offset),))
    assert [each.severity.value for each in told] == (["warning"] if is_stalled else []), why


@cases(
    (blocked_offset(70), 600, "warning", "its coordinator ends it within ten minutes"),
    (blocked_offset(301), 600, "critical", "for five minutes"),
    (blocked_offset(70), 3_600, "critical", "nothing ends it for an hour"),
    (blocked_offset(70, GroupBlocker(4_900)), 600, "critical", "nobody is known to end it"),
    (replace(blocked_offset(70), behind=20_000), 600, "critical", "so many records"),
)
def test_group_stalled_severity_grows_with_the_damage(
    offset: BlockedOffset, timeout_s: float, severity: str, why: str
) -> None:
    facts = {"groups": (blocked_group(offset),), "transactions": (transaction(90, timeout_s=timeout_s),)}
    assert finding_severities("group_stalled", **facts) == [severity], why


def test_group_stalled_names_the_blocker() -> None:
    nameless = blocked_offset(70, GroupBlocker(4_900), partition=3)
    finding = one("group_stalled", blocked_group(blocked_offset(90), nameless))
    assert (finding.subject, finding.since_ms) == ("group:billing", ago(90))
    assert finding.summary == "billing is blocked at the LSO of payments-0 and payments-3"
    assert "blocked by producer id 4900 and payments-7" in finding.evidence
    assert finding.affected == ("partition:payments-0", "partition:payments-3", "transaction:payments-7")


PENDING = BLOCKER._replace(pending=True)
YOUNG = PENDING._replace(transactional_id="young")


@cases(
    ((PENDING,), 29, None, [], "pending commits are everyday work"),
    ((PENDING,), 31, None, [31], "the transaction that holds them is open for long"),
    ((PENDING,), None, None, [], "how long is not known"),
    ((), None, 31, [31], "its partition of __consumer_offsets says how long"),
    ((), None, 29, [], "and that it is not long"),
    ((YOUNG,), 900, 900, [], "it is young, and another one holds the log"),
    ((YOUNG._replace(certain=False),), 900, 31, [31], "which one it is, is not sure"),
    ((YOUNG._replace(transactional_id=""),), 900, 31, [31], "which one it is, is not known"),
)
def test_offsets_unstable(
    blockers: tuple[GroupBlocker, ...], age_s: float | None, log_s: float | None, since_s: list[int], why: str
) -> None:
    held = blocked_group(pending_offset(*blockers), log_pinned_s_ago=log_s)
    found = findings_of("offsets_unstable", groups=(held,), transactions=(transaction(age_s),))
    assert [finding.since_ms for finding in found] == [ago(seconds) for seconds in since_s], why


def test_offsets_unstable_names_the_transaction_and_its_confidence() -> None:
    sure, unsure = (
        one(
            "offsets_unstable",
            blocked_group(pending_offset(PENDING._replace(certain=certain))),
            transactions=(transaction(90),),
        )
        for certain in (True, False)
    )
    assert "are pending in payments-7" in sure.evidence
    assert "are pending, probably in payments-7" in unsure.evidence
    assert sure.affected == ("partition:orders-1", "transaction:payments-7")
    blocked = blocked_group(blocked_offset(900), log_pinned_s_ago=900)
    assert not findings_of("offsets_unstable", groups=(blocked,)), "no commit of it is pending"


@cases(
    ((16, 4), 60, "orders-0 and orders-1 had 20 unread records for this group"),
    ((16, None), 60, "orders-0 and orders-1 had at least 16 unread records for this group"),
    ((1, 0), 86_400, "orders-0 and orders-1 had 1 unread record for this group"),
    ((16, 4), 86_401, ""),
)
def test_unread_deleted(unread: tuple[int | None, ...], ago_s: int, evidence: str) -> None:
    reads = tuple(DeletedRead("billing", "orders", n, left, ago(ago_s)) for n, left in enumerate(unread))
    told = findings_of("unread_deleted", deleted_reads=reads)
    assert [each.evidence for each in told] == [evidence] * bool(evidence)
    assert {each.subject for each in told} <= {"group:billing"}
