"""Proves the chain of a batch by cases: the state of each link, and which recovery completes it."""

from dataclasses import replace
from typing import Any, NamedTuple

import pytest

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
from fenceline.spark.records import Decided, DecisionOutcome, PartitionRecords
from fenceline.spark.sink_fates import EndedTransaction, TransactionFate
from tests.cases import cases
from tests.unit.sink_batches import BAD, DARK, GOING, GOOD, NOW_MS, OPEN, STARTED_MS, decided, done, written

#: How a chain is written below: a letter for each link, in their order.
LETTERS = {
    LinkState.DONE: "D",
    LinkState.WAITING: "w",
    LinkState.BROKEN: "B",
    LinkState.UNKNOWN: "?",
    LinkState.ABSENT: "-",
}


def ended(*fates: TransactionFate) -> tuple[EndedTransaction, ...]:
    return tuple(
        EndedTransaction(written(n).transactional_id, fate, NOW_MS - 700) for n, fate in enumerate(fates)
    )


def links(sink: str = "exactly_once", **facts: Any) -> tuple[ChainLink, ...]:
    return chain_links(BatchFacts(17, sink, **{"planned": True, "planned_ms": NOW_MS - 3_000, **facts}))


def prepared(*fates: TransactionFate, **facts: Any) -> dict[str, Any]:
    """Return the facts of a batch that was decided, whose transactions ended so."""
    return {"decision": decided(), "ended": ended(*fates), **facts}


def aborted(*fates: TransactionFate, **facts: Any) -> dict[str, Any]:
    """Return the facts of a batch whose round was aborted."""
    return {**prepared(*fates, **facts), "decision": decided(Decided.ABORTED)}


def letters(found: tuple[ChainLink, ...]) -> str:
    assert [each.link for each in found] == list(BatchStep)
    assert all(each.evidence for each in found), "a link without evidence"
    assert all(bool(each.recovery) == (each.state is LinkState.BROKEN) for each in found)
    return "".join(LETTERS[each.state] for each in found)


class Case(NamedTuple):
    """What is known of a batch, its links, and what repairs the first broken one."""

    facts: dict[str, Any]
    links: str
    recovery: str = ""


OUR_SINK = {
    "it is under way": Case({"alive": True}, "Dwwwww"),
    "nothing tells whether its driver lives": Case({"alive": None}, "Dwwwww"),
    "nothing was decided, and nobody will": Case({"alive": False}, "DBwwww", RECOVER_AND_ABORT),
    "its decision was swept away, and Spark has gone on": Case({"checkpointed": True}, "DD???D"),
    "its end proves its beginning": Case({"planned": False, "checkpointed": True}, "DD???D"),
    "nothing at all was seen of it": Case({"planned": False}, "?wwwww"),
    "its progress event comes after commits/N": Case({"progress_ended_ms": NOW_MS}, "DD???D"),
    "at it": Case(prepared(OPEN, OPEN, alive=True), "DDDwww"),
    "its driver died between the decision and the first commit": Case(
        prepared(OPEN, OPEN, alive=False), "DDDBww", RECOVER_AND_COMMIT
    ),
    "in the middle of the commits": Case(prepared(GOOD, OPEN, alive=False), "DDDBww", RECOVER_AND_COMMIT),
    "a listener is heard, but nobody has gone on": Case(
        prepared(OPEN, OPEN, alive=True, overdue=True), "DDDBww", RECOVER_AND_COMMIT
    ),
    "just decided; who knows": Case(prepared(OPEN, OPEN), "DDDwww"),
    "the coordinators have decided: their markers come by themselves": Case(
        prepared(GOING, GOOD, alive=False), "DDDwww"
    ),
    "the ledger is to be told": Case(prepared(GOOD, GOOD, alive=True), "DDDDww"),
    "its driver died before it told the ledger": Case(
        prepared(GOOD, GOOD, alive=False), "DDDDBw", RECOVER_AND_COMMIT
    ),
    "one timed out before it was committed": Case(prepared(GOOD, BAD, alive=False), "DDDBww", LOST),
    "lost, whoever is at it": Case(prepared(BAD, OPEN, alive=True), "DDDBww", LOST),
    "an id has gone on": Case(prepared(DARK, GOOD, alive=True), "DDD?ww"),
    "the ledger tells of what no coordinator does": Case(
        prepared(DARK, DARK, done=done(), alive=True), "DDDDDw"
    ),
    "its driver died before commits/N: a restart skips the batch": Case(
        prepared(GOOD, GOOD, done=done(), alive=False), "DDDDDB", RECOVER_AND_COMMIT
    ),
    "all of it": Case(prepared(done=done(), checkpointed=True, alive=True), "DDDDDD"),
    "the ledger itself says that it is lost": Case(
        prepared(done=done(DecisionOutcome.LOST, "a"), alive=True), "DDDBDw", LOST
    ),
    "the ledger says committed, a coordinator says aborted: never believe the better": Case(
        prepared(GOOD, BAD, done=done(), checkpointed=True), "DDDBDD", LOST
    ),
    "no rows, nothing to commit": Case({"decision": decided(number=0), "alive": True}, "DDDDww"),
    "Spark went on, and the ledger does not know why": Case(
        prepared(GOOD, GOOD, checkpointed=True, alive=True), "DDDDBD", RECOVER_AND_COMMIT
    ),
    "the round was aborted, the next one is to come": Case(aborted(BAD, BAD, alive=True), "Dwwwww"),
    "decided to abort, and one is still open": Case(
        aborted(OPEN, BAD, alive=False), "DBwwww", RECOVER_AND_ABORT
    ),
    "aborted to the end: a restart writes it again": Case(
        aborted(done=done(DecisionOutcome.ABORTED), alive=False), "Dwwwww"
    ),
}


@pytest.mark.parametrize("why", OUR_SINK)
def test_with_our_sink(why: str) -> None:
    case = OUR_SINK[why]
    found = links(**case.facts)
    assert letters(found) == case.links
    first = first_broken_link(found)
    assert (first.recovery if first else "") == case.recovery


@cases(
    ("kafka", {"alive": True}, "Dw---w"),
    ("kafka", {"alive": False}, "Dw---w"),
    ("kafka", {"checkpointed": True}, "DD---D"),
    ("other", {"progress_ended_ms": NOW_MS}, "DD---D"),
    ("", {"checkpointed": True}, "DD???D"),
    ("", {"alive": True}, "Dw???w"),
)
def test_with_other_sinks_and_before_the_first_batch(sink: str, facts: dict[str, Any], wanted: str) -> None:
    assert letters(links(sink, **facts)) == wanted
    for before, waiting in (("exactly_once", "wwwwww"), ("", "wwwwww"), ("kafka", "ww---w")):
        assert letters(no_chain(before)) == waiting


def test_each_link_has_its_time_and_its_evidence() -> None:
    facts = {"decision": decided(), "done": done(), "ended": ended(GOOD, GOOD)}
    found = {each.link: each for each in links(checkpointed=True, checkpointed_ms=NOW_MS, **facts)}
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


@cases(
    ({"done": done(), "ended": ended(GOOD, GOOD)}, "done", "2 of 2 coordinators: CompleteCommit"),
    ({"ended": ended(GOOD, GOOD)}, "done", "2 of 2 coordinators: CompleteCommit"),
    ({"decision": decided(number=1), "done": done(), "ended": ended(GOOD)}, "done",
     "1 of 1 coordinator: CompleteCommit"),
    ({"done": done(), "ended": ended(GOOD, GOING)}, "done",
     f"{ANSWERED}; 1 CompleteCommit at the coordinator; 1 PrepareCommit: markers are being written"),
    ({"done": done(), "ended": (AGAIN, *ended(DARK))}, "done",
     f"ledger only: {ANSWERED}; 1 not confirmed by a coordinator: its id used again since; "
     "1 not confirmed by a coordinator: no record of its id is known"),
    ({"done": replace(done(), by=""), "ended": ended(DARK, DARK)}, "done",
     "ledger only: Spark went on after 2 transactions; 17.0.done was not seen; "
     "2 not confirmed by a coordinator: no record of their ids is known"),
    ({"done": done(), "ended": ended(GOOD, OPEN)}, "done",
     f"{ANSWERED}; 1 CompleteCommit at the coordinator; "
     "1 still Ongoing in the coordinator's newest record"),
    ({"done": done(), "ended": ended(GOOD, OPEN), "overdue": True}, "unknown",
     f"{ANSWERED}; 1 CompleteCommit at the coordinator; "
     "1 still Ongoing in the coordinator's newest record"),
    ({"ended": (AGAIN, *ended(GOOD))}, "unknown",
     "2 transactions: 1 CompleteCommit at the coordinator; "
     "1 not confirmed by a coordinator: its id used again since"),
)  # fmt: skip
def test_the_strongest_evidence_of_a_commit_comes_first(
    facts: dict[str, Any], state: str, evidence: str
) -> None:
    found = links(**{"decision": decided(), "checkpointed": True, **facts})[3]
    assert (found.state, found.evidence) == (state, evidence)


@pytest.mark.parametrize(
    "unknown", [(AGAIN, AGAIN), ended(DARK, DARK), (AGAIN, *ended(GOOD)), ended(GOING, DARK)]
)
@pytest.mark.parametrize("by", ["driver", "operator", ""])
def test_an_unconfirmed_commit_is_never_shown_as_confirmed(
    unknown: tuple[EndedTransaction, ...], by: str
) -> None:
    facts = {"decision": decided(), "done": replace(done(), by=by), "ended": unknown}
    said = links(checkpointed=True, **facts)[3].evidence
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
