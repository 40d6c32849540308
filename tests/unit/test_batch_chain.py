"""Proves the chain of a batch by numbered cases: the state of each link, and which recovery completes it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fenceline.facts import (
    Confidence,
    TopicPartition,
    TransactionState,
    Transition,
    TransitionKind,
    TransitionReason,
)
from fenceline.spark.batch_chain import (
    LOST,
    RECOVER_AND_ABORT,
    RECOVER_AND_COMMIT,
    BatchFacts,
    BatchStep,
    ChainLink,
    LinkState,
    chain_links,
    first_broken_link,
    no_chain,
)
from fenceline.spark.records import (
    Decided,
    Decision,
    DecisionOutcome,
    Done,
    PartitionRecords,
    SinkTransaction,
)
from fenceline.spark.sink_fates import (
    Coordinated,
    EndedTransaction,
    TransactionFate,
    outcome_by_coordinator,
    outcome_by_history,
    rows_written,
)

NOW_MS = 1_795_000_000_000
STARTED_MS = NOW_MS - 2_000
#: How a chain is written below: a letter for each link, in their order.
LETTERS = {
    LinkState.DONE: "D",
    LinkState.WAITING: "w",
    LinkState.BROKEN: "B",
    LinkState.UNKNOWN: "?",
    LinkState.ABSENT: "-",
}


def written(partition: int = 0, *, epoch: int = 3) -> SinkTransaction:
    name = f"orders-0a1b2c3d-p{partition}-g1-b1-s0"
    where = (TopicPartition("enriched", partition),)
    return SinkTransaction(partition, 0, name, 4_000 + partition, epoch, where, 500, STARTED_MS, 60_000)


def decided(how: Decided = Decided.PREPARED, *, number: int = 2, reason: str = "") -> Decision:
    transactions = tuple(map(written, range(number)))
    return Decision(17, 0, how, "driver", NOW_MS - 1_000, "0a1b2c3d", "q", "r", 1, transactions, (), reason)


def done(outcome: DecisionOutcome = DecisionOutcome.COMMITTED, *lost: str) -> Done:
    return Done(17, 0, outcome, NOW_MS - 500, "driver", lost)


def ended(*fates: TransactionFate) -> tuple[EndedTransaction, ...]:
    return tuple(
        EndedTransaction(written(n).transactional_id, fate, NOW_MS - 700) for n, fate in enumerate(fates)
    )


def links(sink: str = "exactly_once", **facts: Any) -> tuple[ChainLink, ...]:
    return chain_links(BatchFacts(17, sink, **{"planned": True, "planned_ms": NOW_MS - 3_000, **facts}))


def letters(found: tuple[ChainLink, ...]) -> str:
    assert [each.link for each in found] == list(BatchStep)
    assert all(each.evidence for each in found), "a link without evidence"
    assert all(bool(each.recovery) == (each.state is LinkState.BROKEN) for each in found)
    return "".join(LETTERS[each.state] for each in found)


OPEN, GOING, GOOD, BAD, DARK = (
    TransactionFate.OPEN,
    TransactionFate.COMMITTING,
    TransactionFate.COMMITTED,
    TransactionFate.ABORTED,
    TransactionFate.UNKNOWN,
)


@pytest.mark.parametrize(
    ("number", "facts", "wanted", "recovery", "why"),
    [
        (1, {"alive": True}, "Dwwwww", "", "it is under way"),
        (2, {"alive": None}, "Dwwwww", "", "nothing tells whether its driver lives"),
        (3, {"alive": False}, "DBwwww", RECOVER_AND_ABORT, "nothing was decided, and nobody will"),
        (4, {"checkpointed": True}, "DD???D", "", "its decision was swept away, and Spark has gone on"),
        (5, {"planned": False, "checkpointed": True}, "DD???D", "", "its end proves its beginning"),
        (6, {"planned": False}, "?wwwww", "", "nothing at all was seen of it"),
        (7, {"progress_ended_ms": NOW_MS}, "DD???D", "", "its progress event comes after commits/N"),
        (10, {"decision": decided(), "ended": ended(OPEN, OPEN), "alive": True}, "DDDwww", "", "at it"),
        (
            11,
            {"decision": decided(), "ended": ended(OPEN, OPEN), "alive": False},
            "DDDBww",
            RECOVER_AND_COMMIT,
            "its driver died between the decision and the first commit",
        ),
        (
            12,
            {"decision": decided(), "ended": ended(GOOD, OPEN), "alive": False},
            "DDDBww",
            RECOVER_AND_COMMIT,
            "in the middle of the commits",
        ),
        (
            13,
            {"decision": decided(), "ended": ended(OPEN, OPEN), "alive": True, "overdue": True},
            "DDDBww",
            RECOVER_AND_COMMIT,
            "a listener is heard, but nobody has gone on",
        ),
        (14, {"decision": decided(), "ended": ended(OPEN, OPEN)}, "DDDwww", "", "just decided; who knows"),
        (
            15,
            {"decision": decided(), "ended": ended(GOING, GOOD), "alive": False},
            "DDDwww",
            "",
            "the coordinators have decided: their markers come by themselves",
        ),
        (
            16,
            {"decision": decided(), "ended": ended(GOOD, GOOD), "alive": True},
            "DDDDww",
            "",
            "the ledger is to be told",
        ),
        (
            17,
            {"decision": decided(), "ended": ended(GOOD, GOOD), "alive": False},
            "DDDDBw",
            RECOVER_AND_COMMIT,
            "its driver died before it told the ledger",
        ),
        (
            18,
            {"decision": decided(), "ended": ended(GOOD, BAD), "alive": False},
            "DDDBww",
            LOST,
            "one timed out before it was committed",
        ),
        (
            19,
            {"decision": decided(), "ended": ended(BAD, OPEN), "alive": True},
            "DDDBww",
            LOST,
            "lost, whoever is at it",
        ),
        (
            20,
            {"decision": decided(), "ended": ended(DARK, GOOD), "alive": True},
            "DDD?ww",
            "",
            "an id has gone on",
        ),
        (
            21,
            {"decision": decided(), "done": done(), "ended": ended(DARK, DARK), "alive": True},
            "DDDDDw",
            "",
            "the ledger tells of what no coordinator does",
        ),
        (
            22,
            {"decision": decided(), "done": done(), "ended": ended(GOOD, GOOD), "alive": False},
            "DDDDDB",
            RECOVER_AND_COMMIT,
            "its driver died before commits/N: a restart skips the batch",
        ),
        (
            23,
            {"decision": decided(), "done": done(), "checkpointed": True, "alive": True},
            "DDDDDD",
            "",
            "all of it",
        ),
        (
            24,
            {"decision": decided(), "done": done(DecisionOutcome.LOST, "a"), "alive": True},
            "DDDBDw",
            LOST,
            "the ledger itself says that it is lost",
        ),
        (
            25,
            {"decision": decided(), "done": done(), "ended": ended(GOOD, BAD), "checkpointed": True},
            "DDDBDD",
            LOST,
            "the ledger says committed, a coordinator says aborted: never believe the better",
        ),
        (
            26,
            {"decision": decided(number=0), "alive": True},
            "DDDDww",
            "",
            "no rows, nothing to commit",
        ),
        (
            27,
            {"decision": decided(), "ended": ended(GOOD, GOOD), "checkpointed": True, "alive": True},
            "DDDDBD",
            RECOVER_AND_COMMIT,
            "Spark went on, and the ledger does not know why",
        ),
        (
            30,
            {"decision": decided(Decided.ABORTED), "ended": ended(BAD, BAD), "alive": True},
            "Dwwwww",
            "",
            "the round was aborted, the next one is to come",
        ),
        (
            31,
            {"decision": decided(Decided.ABORTED), "ended": ended(OPEN, BAD), "alive": False},
            "DBwwww",
            RECOVER_AND_ABORT,
            "decided to abort, and one is still open",
        ),
        (
            32,
            {"decision": decided(Decided.ABORTED), "done": done(DecisionOutcome.ABORTED), "alive": False},
            "Dwwwww",
            "",
            "aborted to the end: a restart writes it again",
        ),
    ],
)
def test_with_our_sink(number: int, facts: dict[str, Any], wanted: str, recovery: str, why: str) -> None:
    found = links(**facts)
    assert letters(found) == wanted, f"case {number}: {why}"
    first = first_broken_link(found)
    assert (first.recovery if first else "") == recovery, f"case {number}: {why}"


@pytest.mark.parametrize(
    ("number", "sink", "facts", "wanted"),
    [
        (1, "kafka", {"alive": True}, "Dw---w"),
        (2, "kafka", {"alive": False}, "Dw---w"),
        (3, "kafka", {"checkpointed": True}, "DD---D"),
        (4, "other", {"progress_ended_ms": NOW_MS}, "DD---D"),
        (5, "", {"checkpointed": True}, "DD???D"),
        (6, "", {"alive": True}, "Dw???w"),
    ],
)
def test_with_other_sinks(number: int, sink: str, facts: dict[str, Any], wanted: str) -> None:
    assert letters(links(sink, **facts)) == wanted, f"case {number}"


@pytest.mark.parametrize(
    ("sink", "wanted"), [("exactly_once", "wwwwww"), ("", "wwwwww"), ("kafka", "ww---w")]
)
def test_before_the_first_batch(sink: str, wanted: str) -> None:
    assert letters(no_chain(sink)) == wanted


def test_each_link_has_its_time_and_its_evidence() -> None:
    found = {
        each.link: each
        for each in links(
            decision=decided(),
            done=done(),
            ended=ended(GOOD, GOOD),
            checkpointed=True,
            checkpointed_ms=NOW_MS,
        )
    }
    assert {link: each.at_ms for link, each in found.items()} == {
        BatchStep.PLANNED: NOW_MS - 3_000,
        BatchStep.WRITTEN: STARTED_MS,
        BatchStep.PREPARED: NOW_MS - 1_000,
        # The coordinators' own records are stronger than the ledger's mark, so their time counts.
        BatchStep.COMMITTED: NOW_MS - 700,
        BatchStep.RECORDED: NOW_MS - 500,
        BatchStep.CHECKPOINTED: NOW_MS,
    }
    assert found[BatchStep.WRITTEN].evidence == "2 transactions, 1,000 records"
    assert found[BatchStep.CHECKPOINTED].evidence == "commits/17 is there"
    assert found[BatchStep.RECORDED].evidence == "17.0.done by the driver: committed"
    swept = links(decision=decided(), done=replace(done(), by=""))
    assert swept[4].evidence == "17.0.done, swept away since: committed"


def test_a_broken_link_names_the_open_transactions_and_why_they_stay_open() -> None:
    said = first_broken_link(links(decision=decided(), ended=ended(GOOD, OPEN), alive=False))
    assert said is not None
    assert said.evidence == (
        "1 of 2 transactions committed, orders-0a1b2c3d-p1-g1-b1-s0 still open, and its driver is gone"
    )
    late = first_broken_link(links(decision=decided(), ended=ended(OPEN, OPEN), overdue=True))
    assert late is not None
    assert "nobody has gone on with it since" in late.evidence


AGAIN = EndedTransaction("orders-0a1b2c3d-p0-g1-b1-s0", DARK, None, id_used_again=True)
ANSWERED = "EndTxn was answered for 2 transactions (17.0.done by the driver)"


@pytest.mark.parametrize(
    ("number", "facts", "state", "evidence"),
    [
        (1, {"done": done(), "ended": ended(GOOD, GOOD)}, "done",
         "2 of 2 coordinators: CompleteCommit"),
        (2, {"ended": ended(GOOD, GOOD)}, "done",
         "2 of 2 coordinators: CompleteCommit"),
        (3, {"decision": decided(number=1), "done": done(), "ended": ended(GOOD)}, "done",
         "1 of 1 coordinator: CompleteCommit"),
        (4, {"done": done(), "ended": ended(GOOD, GOING)}, "done",
         f"{ANSWERED}; 1 CompleteCommit at the coordinator; 1 PrepareCommit: markers are being written"),
        (5, {"done": done(), "ended": (AGAIN, *ended(DARK))}, "done",
         f"ledger only: {ANSWERED}; 1 not confirmed by a coordinator: its id used again since; "
         "1 not confirmed by a coordinator: no record of its id is known"),
        (6, {"done": replace(done(), by=""), "ended": ended(DARK, DARK)}, "done",
         "ledger only: Spark went on after 2 transactions; 17.0.done was not seen; "
         "2 not confirmed by a coordinator: no record of their ids is known"),
        (7, {"done": done(), "ended": ended(GOOD, OPEN)}, "done",
         f"{ANSWERED}; 1 CompleteCommit at the coordinator; "
         "1 still Ongoing in the coordinator's newest record"),
        (8, {"done": done(), "ended": ended(GOOD, OPEN), "overdue": True}, "unknown",
         f"{ANSWERED}; 1 CompleteCommit at the coordinator; "
         "1 still Ongoing in the coordinator's newest record"),
        (9, {"ended": (AGAIN, *ended(GOOD))}, "unknown",
         "2 transactions: 1 CompleteCommit at the coordinator; "
         "1 not confirmed by a coordinator: its id used again since"),
    ],
)  # fmt: skip
def test_the_strongest_evidence_of_a_commit_comes_first(
    number: int, facts: dict[str, Any], state: str, evidence: str
) -> None:
    found = links(**{"decision": decided(), "checkpointed": True, **facts})[3]
    assert (found.state, found.evidence) == (state, evidence), f"case {number}"


@pytest.mark.parametrize(
    "unknown", [(AGAIN, AGAIN), ended(DARK, DARK), (AGAIN, *ended(GOOD)), ended(GOING, DARK)]
)
@pytest.mark.parametrize("by", ["driver", "operator", ""])
def test_an_unconfirmed_commit_is_never_shown_as_confirmed(
    unknown: tuple[EndedTransaction, ...], by: str
) -> None:
    said = links(decision=decided(), done=replace(done(), by=by), ended=unknown, checkpointed=True)[
        3
    ].evidence
    assert "not confirmed by a coordinator" in said
    assert "2 of 2 coordinators" not in said


def test_a_confirmed_commit_names_where_its_records_begin() -> None:
    first, second = (
        written(number)._replace(
            written=(PartitionRecords("out", 0, 70 + offset, 5), PartitionRecords("out", 1, 9, 1))
        )
        for number, offset in enumerate((6, 0))
    )
    decision = replace(decided(), transactions=(first, second))
    said = links(decision=decision, done=done(), ended=ended(GOOD, GOOD))[3].evidence
    assert said.startswith("2 of 2 coordinators: CompleteCommit; records from offsets out-0: 70")
    assert "out-1: 9" in said


@pytest.mark.parametrize(
    ("number", "decision", "outcome", "rows"),
    [
        (1, decided(), done(), 1_000),
        (2, decided(), None, None),
        (3, decided(), done(DecisionOutcome.LOST, written(1).transactional_id), 500),
        (4, decided(Decided.ABORTED), done(DecisionOutcome.ABORTED), None),
        (5, decided(number=0), done(), 0),
    ],
)
def test_rows_written_are_the_ledgers(
    number: int, decision: Decision, outcome: Done | None, rows: int | None
) -> None:
    assert rows_written(decision, outcome) == rows, f"case {number}"


def newest(state: TransactionState, *, epoch: int = 3, version: int = 0, **more: Any) -> Coordinated:
    values = {"producer_id": 4_000, "started_ms": STARTED_MS, **more}
    return Coordinated(state, producer_epoch=epoch, updated_ms=NOW_MS, client_version=version, **values)


@pytest.mark.parametrize(
    ("number", "now", "fate", "why"),
    [
        (1, newest(TransactionState.ONGOING), OPEN, "as it was left"),
        (2, newest(TransactionState.PREPARE_COMMIT), GOING, "decided, markers are being written"),
        (
            3,
            newest(TransactionState.COMPLETE_COMMIT),
            GOOD,
            "the same epoch: a client of librdkafka, ended by EndTxn v4",
        ),
        (
            4,
            newest(TransactionState.COMPLETE_COMMIT, epoch=4, version=2),
            GOOD,
            "protocol 2 commits under the next epoch",
        ),
        (
            5,
            newest(TransactionState.COMPLETE_COMMIT, epoch=4),
            DARK,
            "an older one does not: another's commit",
        ),
        (
            6,
            newest(TransactionState.PREPARE_ABORT, epoch=4),
            BAD,
            "the coordinator's timeout raises the epoch",
        ),
        (7, newest(TransactionState.COMPLETE_ABORT, epoch=4, version=2), BAD, "so does protocol 2"),
        (8, newest(TransactionState.COMPLETE_ABORT), BAD, "aborted under its own epoch"),
        (9, newest(TransactionState.COMPLETE_ABORT, epoch=5), DARK, "two epochs on: another's abort"),
        (
            10,
            newest(TransactionState.EMPTY, epoch=4, started_ms=None),
            DARK,
            "initialised again: after what?",
        ),
        (11, newest(TransactionState.ONGOING, epoch=4), DARK, "another's transaction"),
        (12, newest(TransactionState.ONGOING, started_ms=NOW_MS), DARK, "the next one of the same producer"),
        (
            13,
            newest(TransactionState.COMPLETE_ABORT, started_ms=NOW_MS),
            DARK,
            "of the same epoch, and not ours",
        ),
        (14, newest(TransactionState.COMPLETE_COMMIT, producer_id=9), DARK, "another producer id"),
        (15, newest(TransactionState.COMPLETE_COMMIT, epoch=2), DARK, "older than ours: the row is old"),
        (
            16,
            newest(TransactionState.COMPLETE_COMMIT, started_ms=None),
            GOOD,
            "no start is told, the rest agrees",
        ),
        (17, None, DARK, "no such id is known"),
    ],
)
def test_the_outcome_of_a_transaction_follows_its_coordinator(
    number: int, now: Coordinated | None, fate: TransactionFate, why: str
) -> None:
    assert outcome_by_coordinator(written(), now).fate is fate, f"case {number}: {why}"


@pytest.mark.parametrize(
    ("number", "now", "again"),
    [
        (1, newest(TransactionState.ONGOING, epoch=4), True),
        (2, newest(TransactionState.ONGOING, started_ms=NOW_MS), True),
        (3, newest(TransactionState.COMPLETE_COMMIT, producer_id=9), True),
        (4, newest(TransactionState.EMPTY, epoch=4, started_ms=None), True),
        (5, newest(TransactionState.COMPLETE_COMMIT, epoch=2), False),
        (
            6,
            newest(TransactionState.COMPLETE_COMMIT, producer_id=9)._replace(updated_ms=STARTED_MS - 1),
            False,
        ),
        (7, None, False),
    ],
)
def test_an_id_is_used_again_only_by_a_later_record(
    number: int, now: Coordinated | None, again: bool
) -> None:
    assert outcome_by_coordinator(written(), now).id_used_again is again, f"case {number}"


def transition(kind: TransitionKind, *, started_ms: int = STARTED_MS, producer_id: int = 4_000) -> Transition:
    at_ms = NOW_MS - 700
    opened, certain = at_ms - started_ms, Confidence.CERTAIN
    return Transition(
        kind,
        certain,
        TransitionReason.SAME_EPOCH,
        at_ms,
        producer_id,
        3,
        3,
        60_000,
        opened,
        NOW_MS,
        None,
        5,
        9,
    )


@pytest.mark.parametrize(
    ("number", "past", "fate", "why"),
    [
        (1, [transition(TransitionKind.COMMIT)], GOOD, "what began when ours did was committed"),
        (2, [transition(TransitionKind.TIMEOUT)], BAD, "or aborted"),
        (3, [transition(TransitionKind.COMMIT, started_ms=STARTED_MS + 1)], DARK, "that was another one"),
        (4, [transition(TransitionKind.COMMIT, producer_id=9)], DARK, "another producer's"),
        (
            5,
            [transition(TransitionKind.BEGIN), transition(TransitionKind.CLIENT_ABORT)],
            BAD,
            "the next one is of no interest",
        ),
        (6, [], DARK, "nothing is known"),
    ],
)
def test_the_outcome_of_a_transaction_follows_later_transitions_of_its_id(
    number: int, past: list[Transition], fate: TransactionFate, why: str
) -> None:
    assert outcome_by_history(written(), past).fate is fate, f"case {number}: {why}"
