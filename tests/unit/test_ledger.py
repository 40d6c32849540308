"""Proves that the sink's ledger reads back what was written, that its names sort as numbers, that no content
of a file makes a reader raise, and that a file of a newer version or of another batch is reported as such."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.decode import ledger
from fenceline.decode.ledger import Generation, Names, Round
from fenceline.facts import TopicPartition
from fenceline.spark.records import (
    Broken,
    Damage,
    Decided,
    Decision,
    DecisionOutcome,
    Done,
    InputRange,
    Ledger,
    PartitionRecords,
    SinkTransaction,
)

IDENTITY = Ledger("0225f62c5efd493e8b1ec2e52adb6bc1", "afee5b6d", "orders-enrich", 1_795_316_221_968, 3)
TRANSACTION = SinkTransaction(
    1, 2, "orders-enrich-0225f62c-p1-g3-b0-s17", 4_000_000_001, 32_766,
    (TopicPartition("out", 0), TopicPartition("ö-✓", 11)), 250, 1_795_316_221_129, 900_000,
)  # fmt: skip
DECISION = Decision(
    12, 1, Decided.PREPARED, "driver", 1_795_316_221_968, IDENTITY.ledger_id, "afee5b6d", "9a3bc0c2", 3,
    (TRANSACTION,), (InputRange("0", None, '{"orders":{"0":5}}'), InputRange("clicks", "{}", None)), "",
)  # fmt: skip
DONE = Done(12, 1, DecisionOutcome.LOST, 1_795_316_222_000, "operator", (TRANSACTION.transactional_id,))
WHICH = Round(12, 1)


def test_every_file_reads_back_what_was_written() -> None:
    assert ledger.decode_ledger(ledger.encode_ledger(IDENTITY)) == IDENTITY
    assert ledger.decode_decision(WHICH, ledger.encode_decision(DECISION)) == DECISION
    assert ledger.decode_dropped(12, ledger.encode_dropped(12, 5)) == 5
    assert ledger.decode_completion(WHICH, ledger.encode_completion(DONE)) == DONE
    claimed = Generation(7, "9a3bc0c2", 1_795_316_221_968)
    assert ledger.decode_generation(7, ledger.encode_generation(claimed)) == claimed
    assert ledger.transaction_from_json(ledger.transaction_to_json(TRANSACTION)) == TRANSACTION


def test_a_folder_is_read_whole_and_in_the_order_of_numbers() -> None:
    aborted = Decision(
        2, 0, Decided.ABORTED, "operator", 5, IDENTITY.ledger_id, "afee5b6d", "", 9, reason="rolled back"
    )
    files: dict[str, bytes | None] = {
        "ledger.json": ledger.encode_ledger(IDENTITY),
        "9.generation": b"gone astray",
        "10.generation": ledger.encode_generation(Generation(10, "run", 1)),
        "12.1.decision": ledger.encode_decision(DECISION),
        "2.0.decision": ledger.encode_decision(aborted),
        "2.0.done": b"",
        "note.txt": b"of somebody else",
    }
    state = ledger.decode_folder("/checkpoint/kafka_exactly_once", files)
    assert state.ledger == IDENTITY
    assert (state.generation, state.run_id) == (10, "run")
    assert state.decisions == (aborted, DECISION)
    assert state.done == ()
    assert state.open_decisions() == (aborted, DECISION)
    assert state.broken == (Broken("kafka_exactly_once/2.0.done", Damage.EMPTY, "the file has no content"),)


def test_file_names_give_generations_rounds_and_open_decisions() -> None:
    names = ledger.read_names(
        ["10.0.done", "10.0.decision", "9.1.decision", "9.0.decision", "9.0.done", "2.generation",
         "11.generation", "ledger.json", "01.0.decision", ".10.1.decision.tmp", "x.generation", "-1.0.done"]
    )  # fmt: skip
    assert names == Names((2, 11), (Round(9, 0), Round(9, 1), Round(10, 0)), (Round(9, 0), Round(10, 0)))
    assert names.generation == 11
    assert names.open_rounds() == (Round(9, 1),)
    assert names.rounds_of(9) == (Round(9, 0), Round(9, 1))
    assert ledger.read_names([]).generation == 0
    assert ledger.read_names([ledger.decision_name(WHICH), ledger.completion_name(WHICH)]).open_rounds() == ()


@pytest.mark.parametrize(
    ("data", "damage"),
    [
        (None, Damage.MISSING),
        (b"", Damage.EMPTY),
        (b"\xff\xfe", Damage.TORN),
        (b"{}", Damage.TORN),
        (b"[1]", Damage.TORN),
        (b'{"v":1,"batch_id":12', Damage.TORN),
        (b'{"v":2,"all":"new"}', Damage.NEWER),
        (b'{"v":true}', Damage.TORN),
    ],
)
def test_an_unusable_file_is_reported_with_its_path(data: bytes | None, damage: Damage) -> None:
    for path, said in (
        ("ledger.json", ledger.decode_ledger(data)),
        ("12.1.decision", ledger.decode_decision(WHICH, data)),
        ("12.1.done", ledger.decode_completion(WHICH, data)),
        ("7.generation", ledger.decode_generation(7, data)),
    ):
        assert isinstance(said, Broken)
        assert (said.path, said.damage) == (f"kafka_exactly_once/{path}", damage)
        assert said.detail


def test_a_file_of_another_batch_than_its_name_is_broken() -> None:
    said = ledger.decode_decision(Round(13, 1), ledger.encode_decision(DECISION))
    assert isinstance(said, Broken)
    assert "batch_id is 12, by its name it is 13" in said.detail


@pytest.mark.parametrize(
    "written", [None, (), (PartitionRecords("out", 0, 17, 200), PartitionRecords("ö-✓", 11, 0, 50))]
)
def test_records_by_partition_and_digest_read_back(written: tuple[PartitionRecords, ...] | None) -> None:
    transaction = TRANSACTION._replace(written=written, digest="0f" * 16)
    decision = replace(DECISION, transactions=(transaction,))
    assert ledger.decode_decision(WHICH, ledger.encode_decision(decision)) == decision


def test_a_transaction_of_an_older_ledger_has_neither_records_by_partition_nor_digest() -> None:
    said = ledger.transaction_to_json(TRANSACTION._replace(written=(), digest="00"))
    old = {name: value for name, value in said.items() if name not in ("written", "digest")}
    assert ledger.transaction_from_json(old) == TRANSACTION
    assert (TRANSACTION.written, TRANSACTION.digest) == (None, None)


@pytest.mark.parametrize(
    "wrong",
    [{"written": [["out", 0, "17", 1]]}, {"written": [["out", 0, 17]]}, {"written": 5}, {"digest": 5}],
)
def test_wrong_records_by_partition_or_digest_break_the_file(wrong: dict[str, object]) -> None:
    said = json.loads(ledger.encode_decision(DECISION))
    said["transactions"][0] |= wrong
    found = ledger.decode_decision(WHICH, json.dumps(said).encode())
    assert isinstance(found, Broken)
    assert found.damage is Damage.TORN


def test_unknown_fields_are_ignored() -> None:
    said = json.loads(ledger.encode_completion(DONE)) | {"later": [1]}
    assert ledger.decode_completion(WHICH, json.dumps(said).encode()) == DONE


#: Any JSON: made once, which takes longer than to draw from it.
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(st.sampled_from(sorted(json.loads(ledger.encode_decision(DECISION)))), JSON_VALUES)
def test_no_change_of_a_value_makes_a_reader_raise(key: str, value: object) -> None:
    said = json.loads(ledger.encode_decision(DECISION))
    said[key] = value
    assert isinstance(ledger.decode_decision(WHICH, json.dumps(said).encode()), Decision | Broken)


@given(st.binary(max_size=200))
def test_no_bytes_make_a_reader_raise(data: bytes) -> None:
    assert isinstance(ledger.decode_decision(WHICH, data), Decision | Broken)
    assert isinstance(ledger.decode_ledger(data), Ledger | Broken)
