"""Proves the sentence that each detail page starts with: one fact of its subject, what is worst first."""

from dashboard.evaluation.blocking import NamedPartition, Waits
from dashboard.groups.queries import BlockedReader
from dashboard.models import Group, GroupOffset, PartitionRecord, PinRecord, Query, Transaction
from dashboard.streaming.lag import BlockedQuery, PartitionLag, QueryLag
from dashboard.web.headlines.detail import (
    DetailHeadline,
    blocked_words,
    group_headline,
    partition_headline,
    query_headline,
)
from dashboard.web.headlines.transaction import expired_headline, transaction_headline
from fenceline.facts import (
    NOT_REPORTED,
    TWO_PHASE_COMMIT_TIMEOUT_MS,
    Confidence,
    TransactionState,
    Transition,
    TransitionKind,
    TransitionReason,
)
from fenceline.kafka.group_observation import GroupBlocker
from fenceline.kafka.groups import SHARE
from fenceline.spark.batch_chain import BatchStep, ChainLink, LinkState
from fenceline.spark.drivers import Driver, DriverStatus
from fenceline.text import plain_text
from tests.cases import cases

#: 2026-11-18 10:40:00 UTC.
NOW = 1_795_344_000_000
MINUTE = 60_000


def words(headline: DetailHeadline) -> tuple[str, str]:
    """Return the sentence and its explanation as text."""
    sentence, explanation = (plain_text(part, now_ms=NOW) for part in headline)
    return sentence, explanation.strip()


def transaction(state: TransactionState = TransactionState.ONGOING, **fields: object) -> Transaction:
    defaults: dict[str, object] = {
        "started_ms": NOW - 7 * MINUTE,
        "updated_ms": NOW - 7 * MINUTE,
        "timeout_ms": 10 * MINUTE,
        "partition_count": 1,
    }
    return Transaction(state=state, **(defaults | fields))


def place(number: int = 0, *, lso: int = 1_920, minutes: int = 7) -> NamedPartition:
    """Return a partition whose LSO is stuck; the transaction is open in it from offset 1,920."""
    seen = PartitionRecord(
        topic="payments", partition=number, lso=lso, high_watermark=2_549, pinned_ms=NOW - minutes * MINUTE
    )
    return NamedPartition("payments", number, seen, PinRecord(start_offset=1_920), [])


def reader(group: str, behind: int | None, *, pending: bool = False, partition: int = 0) -> BlockedReader:
    return BlockedReader(group, "prod", "payments", partition, pending, True, NOW - MINUTE, behind)


class TestTransaction:
    def test_names_what_it_blocks_since_when_and_who_is_behind(self) -> None:
        waits = Waits("open", waiting=[reader("billing", 1_465)])
        sentence, explanation = words(transaction_headline(transaction(), waits, [place()], now_ms=NOW))
        assert sentence == "It has blocked payments-0 for 7 min; billing is 1,465 records behind."
        assert explanation == "Its coordinator aborts it at 10:43:00 UTC unless its producer ends it first."

    def test_adds_up_what_a_group_is_behind_and_counts_the_others(self) -> None:
        waits = Waits(
            "open",
            waiting=[reader("billing", 400), reader("billing", 65, partition=1), reader("audit", 12)],
            queries=[BlockedQuery("prod", "id", "enrich", "payments", 0, NOW)],
        )
        places = [place(0, minutes=3), place(1, minutes=7), place(2, minutes=1)]
        sentence, _ = words(transaction_headline(transaction(), waits, places, now_ms=NOW))
        assert sentence == (
            "It has blocked payments-0, payments-1 and 1 more for 7 min; "
            "billing is 465 records behind, and 2 more consumers are blocked."
        )

    def test_does_not_count_a_group_whose_own_commit_is_pending(self) -> None:
        waits = Waits("open", waiting=[reader("billing", None, pending=True)])
        sentence, _ = words(transaction_headline(transaction(), waits, [place()], now_ms=NOW))
        assert sentence == "It has blocked payments-0 for 7 min; no known consumer is blocked."

    def test_blocks_nothing_where_another_is_at_the_lso(self) -> None:
        row, behind_another = transaction(), place(lso=1_800)
        sentence, explanation = words(
            transaction_headline(row, Waits("open"), [behind_another], median_ms=2_100, now_ms=NOW)
        )
        assert sentence == "It has been open for 7 min; its own median is 2.1 s."
        assert explanation.endswith(
            "Until then read_committed consumers of its partitions stop at its first record."
        )

    def test_calls_a_hanging_one_orphaned_whatever_its_state(self) -> None:
        row = transaction(TransactionState.COMPLETE_ABORT)
        sentence, explanation = words(transaction_headline(row, Waits("hanging"), [place()], now_ms=NOW))
        assert sentence.startswith("It has blocked payments-0 for 7 min;")
        assert "its coordinator will not complete it" in explanation

    @cases(
        ({"timeout_ms": 5 * MINUTE}, "Its timeout of 5 min passed at 10:38:00 UTC; "),
        ({"timeout_ms": TWO_PHASE_COMMIT_TIMEOUT_MS}, "It is part of a two-phase commit and does not "),
        ({"timeout_ms": NOT_REPORTED}, "When it times out is unknown."),
        ({"started_ms": None}, "When it times out is unknown."),
    )
    def test_states_how_an_open_one_ends(self, fields: dict[str, object], ends: str) -> None:
        row = transaction(**fields)
        _, explanation = words(transaction_headline(row, Waits("open"), [], now_ms=NOW))
        assert explanation.startswith(ends)

    @cases(
        (TransactionState.EMPTY, "It is idle."),
        (TransactionState.PREPARE_COMMIT, "Its coordinator decided to commit it 7 min ago."),
        (TransactionState.PREPARE_ABORT, "Its coordinator decided to abort it 7 min ago."),
        (TransactionState.COMPLETE_COMMIT, "It was committed 7 min ago."),
        (TransactionState.COMPLETE_ABORT, "It was aborted 7 min ago."),
    )
    def test_states_what_became_of_one_that_blocks_nothing(self, state: TransactionState, said: str) -> None:
        sentence, explanation = words(transaction_headline(transaction(state), Waits(), [], now_ms=NOW))
        assert sentence == said
        assert explanation

    def test_names_who_fenced_an_idle_one(self) -> None:
        row = transaction(TransactionState.EMPTY)
        sentence, _ = words(transaction_headline(row, Waits(), [], fenced_by="ada", now_ms=NOW))
        assert sentence == "It is idle, fenced by ada at 10:33:00 UTC."

    @cases(
        (
            [("takeover", "probable")],
            "Its producer was fenced at 10:39:00 UTC by another one with the same id (probable).",
        ),
        (
            [("timeout", "certain")],
            "Its coordinator aborted it at 10:39:00 UTC because its timeout had passed.",
        ),
        ([("begin", "certain"), ("client_abort", "certain")], "Its producer aborted it at 10:39:00 UTC."),
        ([("reinit", "certain"), ("commit", "certain"), ("takeover", "certain")], ""),
        ([("reinit", "certain")], ""),
    )
    def test_says_first_how_its_last_transaction_ended(self, moves: list[tuple[str, str]], said: str) -> None:
        recent = [
            Transition(
                TransitionKind(kind), Confidence(confidence), TransitionReason.NEW_ID, NOW - MINUTE,
                7, 1, 0, 60_000, None, None, None, 0, 0,
            )
            for kind, confidence in moves
        ]  # fmt: skip
        idle, aborted, still = (
            words(transaction_headline(transaction(state), Waits(), [], recent=recent, now_ms=NOW))
            for state in (TransactionState.EMPTY, TransactionState.COMPLETE_ABORT, TransactionState.ONGOING)
        )
        assert idle[0] == (said or "It is idle.")
        assert aborted[0] == (said or "It was aborted 7 min ago.")
        assert (said[1:] in still[1]) if said else ("Before:" not in still[1])

    def test_states_that_an_id_expired(self) -> None:
        assert words(expired_headline(NOW - MINUTE))[0] == "Its coordinator expired it 1 min ago."
        assert words(expired_headline(None))[0] == "Its coordinator expired it."


class TestPartition:
    def test_names_what_blocks_it_and_who_is_behind(self) -> None:
        row = place().seen
        assert row
        pin = PinRecord(start_offset=1_920, transactional_id="demo-abandoned", producer_id=2_051)
        headline = partition_headline(row, [pin], [("billing", 629)])
        assert words(headline) == (
            "demo-abandoned has blocked it at offset 1,920 for 7 min; billing is 629 records behind.",
            "read_committed consumers cannot read past it: up to 629 records behind it are uncommitted.",
        )
        pin.transactional_id = ""
        assert words(partition_headline(row, [pin], []))[0].startswith("A transaction of producer 2051 has ")

    def test_states_where_it_is_stuck_while_the_blocker_is_unknown(self) -> None:
        row = place().seen
        assert row
        later = PinRecord(start_offset=2_000, transactional_id="another")
        sentence, _ = words(partition_headline(row, [later], []))
        assert sentence == "Its LSO has been stuck at 1,920 for 7 min; no known consumer is blocked."

    @cases(
        ({}, "No transaction blocks it."),
        ({"high_watermark": 48_300}, "Its LSO advances."),
        ({"lso": None, "high_watermark": None}, "Its offsets are not known yet."),
    )
    def test_states_what_is_true_while_nothing_blocks_it(self, fields: dict[str, object], said: str) -> None:
        row = PartitionRecord(**({"lso": 48_211, "high_watermark": 48_211, "seen_ms": NOW} | fields))
        assert words(partition_headline(row, [], []))[0] == said

    def test_puts_first_that_it_is_unavailable(self) -> None:
        row = place().seen
        assert row
        row.error, row.seen_ms = "leader not available", NOW - 2 * MINUTE
        expected = ("It is unavailable: leader not available.", "Data below last changed 2 min ago.")
        assert words(partition_headline(row, [], [])) == expected


class TestGroup:
    def group(self, **fields: object) -> Group:
        return Group(**({"status": "OK", "kind": "Classic", "partitions": 2, "members": 3} | fields))

    def offset(self, number: int = 0, **fields: object) -> GroupOffset:
        return GroupOffset(topic="payments", partition=number, **fields)

    def blocker(self, name: str = "demo-abandoned", *, certain: bool = True) -> GroupBlocker:
        return GroupBlocker(2_051, 3, name, 1_920, certain=certain)

    def test_names_where_it_is_blocked_since_when_and_by_what(self) -> None:
        row = self.group(status="BLOCKED", blocked=1, lag_hw=1_465, members=0)
        stuck = [self.offset(waiting="probably", waiting_ms=NOW - 7 * MINUTE)]
        sentence, explanation = words(group_headline(row, stuck, [self.blocker()]))
        assert sentence == (
            "It has likely been blocked at payments-0 for 7 min by demo-abandoned; "
            "it is 1,465 records behind."
        )
        assert explanation.endswith("It has no members.")

    def test_gives_a_number_where_not_all_partitions_were_read(self) -> None:
        row = self.group(blocked=140)
        stuck = [self.offset(number, waiting="probably") for number in range(100)]
        assert words(group_headline(row, stuck, []))[0] == "It is likely blocked at 140 partitions."

    def test_claims_no_transaction_of_a_pending_commit_that_may_be_another(self) -> None:
        row, stuck = self.group(unstable=1), [self.offset(unstable=True)]
        unsure = [self.blocker("app-1", certain=False), self.blocker("app-2", certain=False)]
        expected = "Its transactional commit for payments-0 is pending, possibly in 2 transactions."
        assert words(group_headline(row, stuck, unsure))[0] == expected
        assert words(group_headline(row, stuck, [self.blocker()]))[0].endswith(" pending in demo-abandoned.")

    @cases(
        ({"lag_hw": 1}, "It is healthy and 1 record behind."),
        ({"lag_hw": 0}, "It is healthy."),
        ({"status": "STOP", "lag_hw": 1_465}, "It has stopped committing; it is 1,465 records behind."),
        ({"status": "UNKNOWN"}, "There is not enough data for a status."),
        ({"partitions": 0}, "It has committed nothing."),
        ({"error": "not authorized"}, "Not all of it could be read."),
    )
    def test_states_its_status_where_nothing_blocks_it(self, fields: dict[str, object], said: str) -> None:
        sentence, explanation = words(group_headline(self.group(**fields), [], []))
        assert sentence == said
        assert ("not authorized" in explanation) is ("error" in fields)

    def test_explains_why_a_share_group_has_no_offsets(self) -> None:
        sentence, _ = words(group_headline(self.group(kind=SHARE, partitions=0), [], []))
        assert sentence.startswith("It is a share group")

    def test_states_that_it_reads_uncommitted(self) -> None:
        sentence, _ = words(group_headline(self.group(lag_hw=5), [self.offset(waiting="reads_past")], []))
        assert sentence == "It reads uncommitted; it is 5 records behind."


class TestQuery:
    DONE = tuple(ChainLink(step, LinkState.DONE) for step in BatchStep)
    BROKEN = (*DONE[:3], ChainLink(BatchStep.COMMITTED, LinkState.BROKEN), *DONE[4:])
    RUNNING = Driver(DriverStatus.RUNNING, NOW)
    NO_LAG = QueryLag()

    def said(
        self,
        driver: Driver = RUNNING,
        *,
        prepared: str = "",
        links: tuple[ChainLink, ...] = DONE,
        batch_id: int | None = 1_204,
        parts: tuple[PartitionLag, ...] = (),
        lag: QueryLag = NO_LAG,
        **fields: object,
    ) -> tuple[str, str]:
        row = Query(**({"sink": "kafka"} | fields))
        return words(
            query_headline(
                row, driver, prepared=prepared, links=links, batch_id=batch_id, parts=parts, lag=lag
            )
        )

    def test_puts_a_prepared_batch_that_nobody_commits_first(self) -> None:
        sentence, explanation = self.said(prepared="Batch 1,204 is prepared and so on.", links=self.BROKEN)
        assert sentence == "Batch 1,204 is prepared and so on."
        assert explanation.startswith("Batch 1,204 is not committed.")

    def test_states_which_step_of_a_batch_is_missing_once(self) -> None:
        sentence, explanation = self.said(links=self.BROKEN, restart_words="finishes batch 1204")
        assert sentence == "Batch 1,204 is not committed."
        assert explanation.startswith("On restart: finishes batch 1204.")

    def test_names_the_exception_it_failed_with(self) -> None:
        driver = Driver(DriverStatus.ENDED, NOW, NOW - 7 * MINUTE, True)
        sentence, explanation = self.said(driver, exception="StreamingQueryException: no disk\n\tat x.y\n")
        assert sentence == "It failed 7 min ago: StreamingQueryException: no disk."
        assert explanation.startswith("Batch 1,204 is checkpointed.")

    def test_states_since_when_no_heartbeat_came(self) -> None:
        driver = Driver(DriverStatus.NO_HEARTBEAT, NOW - 7 * MINUTE)
        assert self.said(driver)[0] == "Its driver has sent no heartbeat for 7 min."

    def test_names_what_blocks_its_source_and_how_far_it_is_behind(self) -> None:
        pin = PinRecord(transactional_id="demo-abandoned", start_offset=1_920)
        part = PartitionLag("source-0", "payments", 0, 1_920, reached_ms=NOW - 3 * MINUTE, seen=place().seen)
        lag = QueryLag(0, 629, partial=True, partitions=2, blockers=[pin], blocked=1)
        assert self.said(parts=(part,), lag=lag)[0] == (
            "It has likely been blocked at payments-0 for 3 min by demo-abandoned; "
            "it is at least 629 records behind."
        )

    def test_states_how_far_its_batch_is_otherwise(self) -> None:
        assert self.said(lag=QueryLag(12, 12))[0] == "Batch 1,204 is checkpointed; it is 12 records behind."
        assert self.said(batch_id=None, links=())[0] == "No batch of it is known."
        stopped = Driver(DriverStatus.ENDED, NOW, NOW - 7 * MINUTE)
        assert self.said(stopped)[0] == "It was stopped 7 min ago; batch 1,204 is checkpointed."

    def test_puts_first_that_its_checkpoint_cannot_be_read(self) -> None:
        sentence, explanation = self.said(error="The folder is gone.")
        assert sentence == "Its checkpoint cannot be read."
        assert explanation.startswith("The folder is gone. Data below is outdated.")


def test_a_consumer_of_unknown_lag_is_blocked_all_the_same() -> None:
    assert blocked_words([("billing", None)]) == "billing is blocked"
    expected = "audit is 1 record behind, and 1 more consumer is blocked"
    assert blocked_words([("billing", 0), ("audit", 1)]) == expected
