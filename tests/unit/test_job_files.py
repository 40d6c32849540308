"""Proves that files of our jobs read back what was written, and that everything else is refused by name and
makes no reader raise: the sink's ledger, and the manifests of the audit and of the history job."""

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.audit.manifest import (
    AuditedBatch,
    AuditedKey,
    AuditedPosition,
    AuditedRange,
    AuditManifest,
    AuditMode,
    AuditObstacle,
    AuditVerdict,
    ObstacleKind,
    read_audit,
    write_audit,
)
from fenceline.decode import ledger
from fenceline.decode.ledger import Generation, Names, Round
from fenceline.decode.typed import NewerFile, TornFile
from fenceline.facts import TopicPartition, TransitionKind
from fenceline.history.reports import (
    FORMAT,
    Manifest,
    ReportFigures,
    ReportPart,
    manifest_name,
    manifest_number,
    read_manifest,
    sum_figures,
    write_manifest,
)
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
from tests.cases import cases

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
    # Unknown fields are ignored.
    later = json.loads(ledger.encode_completion(DONE)) | {"later": [1]}
    assert ledger.decode_completion(WHICH, json.dumps(later).encode()) == DONE
    assert read_audit(write_audit(AUDIT)) == AUDIT
    assert read_manifest(write_manifest(REPORT)) == REPORT


def test_a_file_of_another_batch_than_its_name_is_broken() -> None:
    said = ledger.decode_decision(Round(13, 1), ledger.encode_decision(DECISION))
    assert isinstance(said, Broken)
    assert "batch_id is 12, by its name it is 13" in said.detail


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


@cases(
    (None, Damage.MISSING),
    (b"", Damage.EMPTY),
    (b"\xff\xfe", Damage.TORN),
    (b"{}", Damage.TORN),
    (b"[1]", Damage.TORN),
    (b'{"v":1,"batch_id":12', Damage.TORN),
    (b'{"v":2,"all":"new"}', Damage.NEWER),
    (b'{"v":true}', Damage.TORN),
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


def test_records_by_partition_and_digest_read_back_and_an_older_ledger_has_neither() -> None:
    for written in (None, (), (PartitionRecords("out", 0, 17, 200), PartitionRecords("ö-✓", 11, 0, 50))):
        transaction = TRANSACTION._replace(written=written, digest="0f" * 16)
        decision = replace(DECISION, transactions=(transaction,))
        assert ledger.decode_decision(WHICH, ledger.encode_decision(decision)) == decision
    said = ledger.transaction_to_json(transaction)
    old = {name: value for name, value in said.items() if name not in ("written", "digest")}
    assert ledger.transaction_from_json(old) == TRANSACTION
    assert (TRANSACTION.written, TRANSACTION.digest) == (None, None)


@cases({"written": [["out", 0, "17", 1]]}, {"written": [["out", 0, 17]]}, {"written": 5}, {"digest": 5})
def test_wrong_records_by_partition_or_digest_break_the_file(wrong: dict[str, object]) -> None:
    said = json.loads(ledger.encode_decision(DECISION))
    said["transactions"][0] |= wrong
    found = ledger.decode_decision(WHICH, json.dumps(said).encode())
    assert isinstance(found, Broken)
    assert found.damage is Damage.TORN


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


BATCH = AuditedBatch(
    7, AuditVerdict.VIOLATED, 1_700_000_000_000, 10, 0, 9, 9, 9, 0, 1, (AuditedRange("orders", 3, 5, 6),)
)
GONE = AuditObstacle(ObstacleKind.RETENTION, "orders-3", "records 0 to 4 are gone", "batch 6 is not proved")
AUDIT = AuditManifest(
    "prod", "orders_enrich", AuditMode.COUNTS, 3, 1_700_000_000_500, "q", ("orders",), ("enriched",), 6, None,
    10, 9, 0, 1, (BATCH,), (GONE,), ("000000000003-1f",), 8,
    (AuditedPosition("enriched", 0, "id", 5, ((7, 6),)),),
    "key > 3", (AuditedRange("orders", 0, 0, 5),), (AuditedRange("orders", 0, 2, 3),),
    duplicate_keys=(AuditedKey("delta:/out", "k7", 1),),
)  # fmt: skip


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": 1}', '{"format": "1"}', "3"])
def test_what_is_no_manifest_is_named_and_a_later_layout_told_apart(text: str) -> None:
    with pytest.raises(TornFile, match="no manifest of the audit job"):
        read_audit(text)
    with pytest.raises(NewerFile, match="knows formats up to 1"):
        read_audit(json.dumps({"format": 2}))


@cases(
    ("input", "10"), ("at_ms", None), ("run", True), ("query_id", 7), ("sources", [1]),
    ("compared", [["a", 0, 1, "2"]]), ("batches", [{**asdict(BATCH), "input": "x"}]),
    ("obstacles", [["retention", 1, "gone", "not proved"]]),
    ("positions", [["enriched", 0, "id", 5, [[7, "6"]]]]), ("mode", "guess"), ("nonsense", 1),
)  # fmt: skip
def test_a_value_of_another_type_is_no_manifest(name: str, value: object) -> None:
    document = json.loads(write_audit(AUDIT)) | {name: value}
    with pytest.raises(TornFile, match="no manifest of the audit job"):
        read_audit(json.dumps(document))


@cases(
    ({}, AuditVerdict.VIOLATED),
    ({"missing": 0}, AuditVerdict.UNPROVED),
    ({"missing": 0, "obstacles": ()}, AuditVerdict.UNPROVED),
    ({"missing": 0, "obstacles": (), "proved_through": 7}, AuditVerdict.PROVED),
    ({"missing": 0, "duplicated": 1, "proved_through": 7}, AuditVerdict.VIOLATED),
    ({"missing": 0, "obstacles": (), "mode": AuditMode.KEYS}, AuditVerdict.PROVED),
    # An input that is a table has no ranges.
    ({"missing": 0, "obstacles": (), "mode": AuditMode.KEYS, "compared": ()}, AuditVerdict.PROVED),
    (
        {"missing": 0, "obstacles": (), "mode": AuditMode.KEYS, "compared": (), "input": 0},
        AuditVerdict.UNPROVED,
    ),
)
def test_a_pipeline_is_proved_only_where_nothing_is_missing_or_hidden(
    changed: dict[str, object], verdict: AuditVerdict
) -> None:
    fields = {name: getattr(AUDIT, name) for name in AUDIT.__dataclass_fields__}
    assert AuditManifest(**{**fields, **changed}).verdict is verdict


REPORT = Manifest(
    "prod", "__transaction_state", "b9f0", 7, 1_795_000_000_000, {0: 5, 49: 2**40}, {49: 12}, 99,
    {"value_version": 2}, {"value_version": (49, 17, "value version 99")},
    (ReportPart("000000000007-1f3a", 0, "2026-11-21", "2026-11-22"),), ("000000000007-1f3a",),
    ("000000000003-00aa",),
)  # fmt: skip


@cases("", "{", "[]", "7", '"x"', "{}", '{"format": "1"}', '{"format": 1}',
       '{"format": 1, "cluster": "x", "no": 1}')  # fmt: skip
def test_anything_else_is_no_manifest_and_a_newer_layout_is_refused_as_newer(text: str) -> None:
    with pytest.raises(TornFile, match="torn or no manifest"):
        read_manifest(text)
    with pytest.raises(NewerFile, match=f"format is {FORMAT + 1}"):
        read_manifest(json.dumps({"format": FORMAT + 1}))


def test_each_cut_of_a_manifest_is_no_manifest() -> None:
    text = write_manifest(REPORT)
    for end in range(0, len(text), 7):
        with pytest.raises(TornFile):
            read_manifest(text[:end])


def test_names_of_manifests_sort_as_their_batches_and_other_files_are_none() -> None:
    batches = [0, 9, 10, 99_999, 10**12, 10**13]
    names = [manifest_name(batch) for batch in batches]
    assert names[2] == "000000000010.json"
    assert [manifest_number(name) for name in names] == batches
    assert names[:4] == sorted(names[:4])
    for other in "_SUCCESS", ".000000000001.json.crc", "000000000001.json.tmp", "1.json", "notes.txt":
        assert manifest_number(other) is None


def test_figures_add_up_and_take_back() -> None:
    first = ReportFigures({TransitionKind.COMMIT: 3, TransitionKind.ABORT: 1}, 4, {7: 3}, {1: 2})
    revised = ReportFigures({TransitionKind.ABORT: -1, TransitionKind.TIMEOUT: 1}, 0, {}, {1: 1})
    sums = sum_figures([first, revised])
    assert sums == ReportFigures({TransitionKind.COMMIT: 3, TransitionKind.TIMEOUT: 1}, 4, {7: 3}, {1: 3})
    assert (sums.commits, sums.aborts) == (3, 1)
    assert sum_figures([]) == ReportFigures()
