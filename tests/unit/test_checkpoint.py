"""Proves that files of a checkpoint become facts, or Broken with the damage, and that no bytes raise. The
golden ones are real Spark's (tests/data/capture_checkpoints.py)."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.decode import checkpoint as decode
from fenceline.facts import TopicPartition
from fenceline.spark.records import Broken, CommitsEntry, Damage, OffsetsEntry, SourceOffset, StateOperator
from fenceline.spark.restart_prediction import is_sparse
from tests.cases import cases

CAPTURED = Path(__file__).parents[1] / "data" / "checkpoints" / "spark-4.2.0.jsonl"
MADE = [json.loads(line) for line in CAPTURED.read_text().splitlines()]
META = '{"batchWatermarkMs":0,"batchTimestampMs":1795315140394,"conf":{"a":"b"}}'
READERS: dict[str, Callable[[bytes], Any]] = {
    "metadata": decode.decode_metadata,
    "offsets": partial(decode.decode_offsets, 7),
    "commits": partial(decode.decode_commits, 7),
    "initial": partial(decode.decode_initial_offsets, "sources/0/0"),
    "operator": partial(decode.decode_state_operator, "state/0/_metadata/metadata"),
}


def kind(name: str) -> dict[str, Any]:
    return next(each for each in MADE if each["kind"] == name)


def offsets_of(made: dict[str, Any], batch: int) -> OffsetsEntry:
    found = decode.decode_offsets(batch, made["files"][f"offsets/{batch}"].encode())
    assert isinstance(found, OffsetsEntry), found
    return found


@pytest.mark.parametrize("made", MADE, ids=lambda each: each["kind"])
def test_captured_offsets_are_sparks_own_figures(made: dict[str, Any]) -> None:
    for event in made["progress"]:
        if f"offsets/{event['batchId']}" not in made["files"]:
            continue
        found = offsets_of(made, event["batchId"])
        ends = {json.dumps(each["endOffset"], sort_keys=True) for each in event["sources"]}
        read = {
            json.dumps(None if each.raw is None else json.loads(each.raw), sort_keys=True)
            for each in found.sources
        }
        assert read == ends


def test_version_1_numbers_its_sources_and_version_2_names_them() -> None:
    found = offsets_of(kind("no offset yet"), 0)
    assert (found.version, [each.source for each in found.sources]) == (1, ["0", "1"])
    # It leaves a dash where nothing was read.
    assert found.sources[0] == SourceOffset("0", None)
    assert found.sources[1].raw == '{"offset":5,"timestamp":10000}'
    assert found.conf["spark.sql.shuffle.partitions"] == "2"
    assert found.planned_ms is not None
    named = offsets_of(kind("named sources"), 1)
    assert (named.version, sorted(each.source for each in named.sources)) == (2, ["a_b", "orders"])
    # Continuous processing leaves the metadata empty.
    continuous = offsets_of(kind("continuous"), 1)
    assert (continuous.planned_ms, continuous.conf, len(continuous.sources)) == (None, {}, 1)


def test_kafkas_offsets_are_positions() -> None:
    made = kind("kafka")
    newest = max(int(path.split("/")[1]) for path in made["files"] if path.startswith("offsets/"))
    positions = offsets_of(made, newest).sources[0].positions
    assert positions is not None
    ((topic, partitions),) = made["progress"][-1]["sources"][0]["endOffset"].items()
    assert positions == {TopicPartition(topic, int(number)): at for number, at in partitions.items()}
    began = decode.decode_initial_offsets("sources/0/0", made["files"]["sources/0/0"].encode())
    assert began == {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0, TopicPartition(topic, 2): 0}


def test_commits_of_version_2_have_the_ids_of_state_files_and_those_of_version_3_name_their_sink() -> None:
    second, third = (
        decode.decode_commits(1, kind(name)["files"]["commits/1"].encode())
        for name in ("state format 2", "named sink")
    )
    assert isinstance(second, CommitsEntry)
    assert (second.version, [len(stores) for stores in second.state_ids["0"]]) == (2, [1, 1])
    assert isinstance(third, CommitsEntry)
    assert (third.version, third.next_watermark_ms) == (3, 0)


def test_operators_of_both_versions() -> None:
    join = kind("join")["files"]["state/0/_metadata/metadata"]
    found = decode.decode_state_operator("state/0/_metadata/metadata", join.encode())
    assert isinstance(found, StateOperator)
    assert (found.name, len(found.stores)) == ("symmetricHashJoin", 4)
    assert found.stores[0] == ("left-keyToNumValues", 2)
    made = kind("transform with state")
    path = next(path for path in made["files"] if "/_metadata/v2/" in path)
    newer = decode.decode_state_operator(path, made["files"][path].encode())
    assert isinstance(newer, StateOperator)
    assert newer.name == made["progress"][-1]["stateOperators"][0]["operatorName"]


def test_asynchronous_progress_is_recognised_by_its_holes() -> None:
    files = kind("async progress")["files"]
    logs = [
        sorted(int(path.split("/")[1]) for path in files if path.startswith(log))
        for log in ("offsets/", "commits/")
    ]
    assert is_sparse(*logs)


@cases(
    ([], [], False),
    ([0], [], False),
    ([0, 1, 2], [0, 1], False),
    ([0, 1, 4], [0, 1], True),
    ([0, 1, 4], [0, 1, 4], True),
    ([0, 1, 4], [0, 1, 2, 3, 4], False),
    ([0, 1, 4, 7], [0, 1, 2, 4, 7], False),
    ([5, 9], [5], True),
    ([0, 2**62], [0], True),
)
def test_holes(planned: list[int], finished: list[int], sparse: bool) -> None:
    assert is_sparse(planned, finished) is sparse


def test_a_named_source_may_have_colons_in_its_offset_and_nothing_yet() -> None:
    found = decode.decode_offsets(3, f'v2\n{META}\norders:{{"t:x":{{"0":1}}}}\nb:-\nc:12:30\n'.encode())
    assert isinstance(found, OffsetsEntry)
    expected = [("orders", '{"t:x":{"0":1}}'), ("b", None), ("c", "12:30")]
    assert [(each.source, each.raw) for each in found.sources] == expected
    # A colon is in no topic's name: these offsets are of another kind of source.
    assert found.sources[0].positions is None


def test_a_control_batch_has_its_operation_and_text_that_no_database_accepts_is_escaped() -> None:
    meta = '{"batchWatermarkMs":5,"controlBatchInfo":{"operationType":"REPARTITION","operationInfo":"{}"}}'
    found = decode.decode_offsets(3, f"v2\n{meta}\n0:-".encode())
    assert isinstance(found, OffsetsEntry)
    assert (found.control, found.watermark_ms, found.planned_ms) == ("REPARTITION", 5, None)
    found = decode.decode_offsets(1, b'v1\n{"conf":{"a\\u0000b":"\\ud800"}}\n-')
    assert isinstance(found, OffsetsEntry)
    assert found.conf == {r"a\x00b": r"\ud800"}


@cases(
    ("metadata", b"", Damage.EMPTY),
    ("metadata", b"{}", Damage.TORN),
    ("metadata", b'{"id":"9e0e', Damage.TORN),
    ("metadata", b'{"id":"nobody"}', Damage.TORN),
    ("metadata", b'["id"]', Damage.TORN),
    ("offsets", b"", Damage.EMPTY),
    ("offsets", b"v1", Damage.TORN),
    ("offsets", b"v1\n", Damage.TORN),
    ("offsets", b"v3\n{}\n", Damage.NEWER),
    ("offsets", b"hello\n{}\n", Damage.TORN),
    ("offsets", b"v0\n{}\n", Damage.TORN),
    ("offsets", b"\xff\xfe", Damage.TORN),
    ("offsets", b"v1\n{}\n\0", Damage.TORN),
    ("offsets", b"v1\n[]\n", Damage.TORN),
    ("offsets", b'v1\n{"batchWater', Damage.TORN),
    ("offsets", b'v1\n{}\n{"t":{"0":', Damage.TORN),
    ("offsets", b'v1\n{}\n\n{"t":{"0":1}}', Damage.TORN),
    ("offsets", b'v2\n{}\n{"t"}', Damage.TORN),
    ("commits", b"", Damage.EMPTY),
    ("commits", b'v1\n{"nextBatch', Damage.TORN),
    ("commits", b"v4\n{}", Damage.NEWER),
    ("initial", b"", Damage.EMPTY),
    ("initial", b"\0", Damage.EMPTY),
    ("initial", b"\0v1\n", Damage.TORN),
    ("initial", b'\0v2\n{"t":{"0":1}}', Damage.NEWER),
    ("initial", b'\0v1\n{"t":{"0":', Damage.TORN),
    ("operator", b"", Damage.EMPTY),
    ("operator", b"v1\n", Damage.TORN),
    ("operator", b"v1\n{}", Damage.TORN),
    ("operator", b"v3\n{}", Damage.NEWER),
)
def test_damage_is_reported(reader: str, raw: bytes, damage: Damage) -> None:
    found = READERS[reader](raw)
    assert isinstance(found, Broken)
    assert found.damage is damage
    assert found.detail


@pytest.mark.parametrize("raw", [b"v1", b"v1\n", b"v1\n{}", b'v2\n{"nextBatchWatermarkMs":0}\n'])
def test_a_commit_needs_no_more_than_its_version(raw: bytes) -> None:
    assert isinstance(decode.decode_commits(1, raw), CommitsEntry)


@cases(
    '{"t":{"0":1.5}}',
    '{"t":{"0":true}}',
    '{"t":{"x":1}}',
    '{"t":{"01":1}}',
    '{"t":{"0":99999999999999999999}}',
    '{"t":{"99999999999":1}}',
    '{"t":[]}',
    '{"t":{}}',
    "{}",
    '{"a b":{"0":1}}',
    '{"logOffset":1}',
    '{"offset":5,"timestamp":10000}',
    "7",
    "-",
    None,
)
def test_offsets_of_other_sources_are_no_positions_and_no_initial_offsets(raw: str | None) -> None:
    assert decode.parse_positions(raw) is None
    assert decode.decode_initial_offsets("sources/0/0", b"v1\n1795315420951") is None


@cases(
    ("0", 0),
    ("17", 17),
    ("9223372036854775807", 2**63 - 1),
    ("9223372036854775808", None),
    ("017", None),
    ("-1", None),
    ("1.crc", None),
    (".1.crc", None),
    ("1.compact", None),
    ("１", None),
    ("", None),
)
def test_names_of_batch_files(name: str, batch: int | None) -> None:
    assert decode.batch_of(name) == batch


def test_foreign_names() -> None:
    names = ["metadata", ".metadata.crc", "offsets", "kafka_exactly_once", "README", "x.tmp", "_SUCCESS"]
    assert decode.foreign_files(names) == ("README", "_SUCCESS")
    assert decode.foreign_files(["__tmp_path_dir", "offsets_$folder$", "sources_$folder$"]) == ()
    assert decode.foreign_files(["__tmp", "$folder$"]) == ("$folder$", "__tmp")


PIECES = st.sampled_from(
    [b"v1", b"v2", b"\n", b"{}", b"-", b":", b'"', b"{", b"[", b"\0", b"0", b'{"t":{"0":1}}', META.encode()]
)


@pytest.mark.parametrize("reader", READERS)
@given(st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=8).map(b"".join)))
def test_no_bytes_raise(reader: str, raw: bytes) -> None:
    found = READERS[reader](raw)
    known = (str, Broken, OffsetsEntry, CommitsEntry, StateOperator, dict, type(None))
    assert isinstance(found, known)


@given(st.integers(min_value=0, max_value=len(META) + 40))
def test_a_file_that_is_cut_anywhere_is_broken_or_has_fewer_sources(keep: int) -> None:
    whole = f'v1\n{META}\n{{"t":{{"0":1}}}}\n{{"t":{{"1":1}}}}'.encode()
    found = decode.decode_offsets(1, whole[:keep])
    assert isinstance(found, Broken) or len(found.sources) < 2 or keep >= len(whole) - 1


def test_deep_and_long_json_is_broken_and_raises_nothing() -> None:
    for text in ("[" * 100_000, "9" * 100_000):
        assert isinstance(decode.decode_offsets(1, f"v1\n{{}}\n{text}".encode()), (Broken, OffsetsEntry))
        assert isinstance(decode.decode_commits(1, f"v1\n{text}".encode()), Broken)
