"""Proves that what real jobs of Flink 1.20, 2.0 and 2.1 left in their checkpoints is decoded, in `_metadata`
and in files beside it; and that a file that is cut, damaged or of an unknown version is never half read."""

import struct
import tracemalloc

import pytest

from fenceline.engines.flink.data_input import MalformedState, read_compressed_entry
from fenceline.engines.flink.metadata import CheckpointMetadata, decode_checkpoint_metadata
from fenceline.engines.flink.records import Committable, TransactionOwnership, WriterState
from fenceline.engines.flink.sink_state import SinkStates, decode_sink_states
from fenceline.facts import Undecoded
from tests.cases import cases
from tests.unit import flink_states as states

PLACES = ("inline", "files", "merged", "compressed")


def decoded(raw: bytes) -> CheckpointMetadata:
    found = decode_checkpoint_metadata(raw)
    assert isinstance(found, CheckpointMetadata), found
    return found


def names(found: SinkStates) -> list[tuple[str, int | None]]:
    return [(each.transactional_id, each.checkpoint_id) for each in found.committables]


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("version", states.VERSIONS)
def test_what_a_job_has_pre_committed_is_read_wherever_its_state_lies(version: str, kind: str) -> None:
    found = states.golden_sink_states(version, kind)
    assert names(found) == [("copy-0-4", 4), ("copy-1-4", 4)]
    assert len({each.producer_id for each in found.committables}) == 2
    assert {each.prefix for each in found.writers} == {"copy"}
    assert len(found.writers) == 2
    assert found.other_entries == 0


@pytest.mark.parametrize(("version", "number"), states.VERSIONS.items())
def test_a_checkpoint_and_a_savepoint_are_told_apart(version: str, number: int) -> None:
    for kind, checkpoint_id in (("inline", 4), ("savepoint", 5)):
        found = decoded(states.golden(version, kind).read_bytes())
        expected = (number, checkpoint_id, kind == "savepoint")
        assert (found.version, found.checkpoint_id, found.is_savepoint) == expected
        assert {ident for _, ident in names(states.golden_sink_states(version, kind))} == {checkpoint_id}


def test_a_pool_of_ids_is_owned_by_the_writers_state_and_connector_3_records_a_prefix_alone() -> None:
    for version in ("2.0", "2.1"):
        found = states.golden_sink_states(version, "pooled")
        assert names(found) == [("copy-0-0", 4), ("copy-1-0", 4)]
        owned = TransactionOwnership.EXPLICIT_BY_WRITER_STATE
        expected = [("copy", 0, 2, owned, ("copy-0-0",)), ("copy", 1, 2, owned, ("copy-1-0",))]
        assert [each[:5] for each in sorted(found.writers)] == expected
    writers = states.golden_sink_states("1.20", "inline").writers
    implicit = TransactionOwnership.IMPLICIT_BY_SUBTASK_ID
    assert set(writers) == {WriterState("copy", -1, -1, implicit, (), writers[0].operator)}


@cases(
    # Not compressed: in one frame, behind a stream's beginning, in two frames.
    ("010a0000 00000000 00000002 6869", b"hi"),
    ("ff060000734e61507059 010a0000 00000000 00000002 6869", b"hi"),
    ("01080000 00000000 00000002 01060000 00000000 6869", b"hi"),
    # A literal, and a copy that reaches into itself, near and far.
    ("000e0000 00000000 0e 140000000a6162 1102", b"ababababab"),
    ("000f0000 00000000 0e 140000000a6162 1e0200", b"ababababab"),
)
def test_an_entry_is_read_from_its_frames(frames: str, entry: bytes) -> None:
    assert read_compressed_entry(b"before" + bytes.fromhex(frames), 6) == entry


@cases(
    ("", "truncated"),
    ("010a0000 00000000 0000", "truncated"),
    ("7f000000", "compressed"),
    ("01080000 00000000 ffffffff", "compressed"),
    # A copy from before the beginning, more than was announced, an endless length.
    ("00090000 00000000 0e 1e0200", "compressed"),
    ("000a0000 00000000 02 0c61626364", "compressed"),
    ("000a0000 00000000 ffffffffffff", "compressed"),
)
def test_frames_that_are_damaged_are_named(frames: str, reason: str) -> None:
    with pytest.raises(MalformedState) as raised:
        read_compressed_entry(bytes.fromhex(frames), 0)
    assert raised.value.reason in (reason, "truncated")


@pytest.mark.parametrize(("version", "kind"), [("1.14", "producer"), ("1.20", "inline"), ("2.1", "inline")])
def test_a_file_that_is_cut_anywhere_is_not_read(version: str, kind: str) -> None:
    raw = states.golden(version, kind).read_bytes()
    whole = decoded(raw)
    for length in range(len(raw)):
        found = decode_checkpoint_metadata(raw[:length])
        # Where only the end of the properties is missing, nothing that is used is.
        assert found == whole or isinstance(found, Undecoded), length
    if version != "1.14":  # It has no properties.
        assert isinstance(decode_checkpoint_metadata(raw[: raw.index(b"CheckpointType")]), Undecoded)


@cases(("1.20", "inline"), ("2.1", "compressed"), ("1.20", "producer-compressed"))
def test_a_damaged_byte_never_raises(version: str, kind: str) -> None:
    raw = bytearray(states.golden(version, kind).read_bytes())
    for place in range(len(raw)):
        before, raw[place] = raw[place], raw[place] ^ 0xFF
        found = decode_checkpoint_metadata(bytes(raw))
        if isinstance(found, CheckpointMetadata):
            decode_sink_states(found, dict.fromkeys(found.state_files(), b""))
        raw[place] = before


@cases(
    (b"", "magic"),
    (b"\x49\x60\x67", "magic"),
    (b"PK\x03\x04 a zip, not a checkpoint", "magic"),
    (struct.pack(">Iiq", 0x4960672D, 1, 7), "version"),
    (struct.pack(">Iiq", 0x4960672D, 7, 7), "version"),
    (struct.pack(">Iiq", 0x4960672D, 6, -7), "checkpoint_id"),
    (struct.pack(">Iiqii", 0x4960672D, 6, 7, 0, 2**31 - 1), "count"),
    (struct.pack(">Iiqiii", 0x4960672D, 6, 7, 1, 0x1234, 0), "master_state"),
)
def test_what_is_no_checkpoint_is_named(raw: bytes, reason: str) -> None:
    found = decode_checkpoint_metadata(raw)
    assert isinstance(found, Undecoded)
    assert found.reason == reason


def test_a_state_file_that_is_shorter_than_recorded_is_named_by_its_path() -> None:
    path = states.golden("2.1", "files")
    metadata = decoded(path.read_bytes())
    files = states.golden_files(metadata, path)
    found = decode_sink_states(metadata, {each: raw[:-1] for each, raw in files.items()})
    assert isinstance(found, Undecoded)
    assert found.reason == "truncated"
    assert metadata.state_files()[0].path in found.detail


def sink_states(*entries: bytes) -> SinkStates:
    found = decode_sink_states(decoded(states.metadata_6(9, [*entries])), {})
    assert isinstance(found, SinkStates)
    return found


def test_a_commit_of_an_older_format_has_no_checkpoint_and_one_that_two_subtasks_name_counts_once() -> None:
    # Two name it after a rescaling.
    older = sink_states(states.sink_v1_entry([states.committable("copy-0-9", 12, 3)]))
    assert older.committables == (Committable("copy-0-9", 12, 3, None, "out"),)
    entry = states.collector_entry(9, [states.committable("copy-0-9", 12, 3)])
    assert len(sink_states(entry, entry).committables) == 1


@cases(b"", b"s3://table/data-00001.parquet", states.committable("copy-0-9", 12, 3) + b"\0",
     states.committable("copy-0-9", -1, 3), states.committable("", 12, 3),
)  # fmt: skip
def test_another_sinks_commit_is_counted_and_never_half_read(theirs: bytes) -> None:
    assert sink_states(states.collector_entry(9, [theirs])) == SinkStates((), (), 1)


def test_an_id_outside_ascii_is_that_of_the_broker() -> None:
    # Java writes 𝄞 as two surrogates of three bytes each; the broker has its four bytes of UTF-8.
    name = struct.pack(">hq", 3, 12) + b"\x00\x0a\xc3\xa4-\xed\xa0\xb4\xed\xb4\x9e-"
    found = sink_states(states.collector_entry(9, [name]))
    assert [each.transactional_id for each in found.committables] == ["ä-𝄞-"]


def test_2_000_subtasks_take_little_memory() -> None:
    entries = [
        states.collector_entry(9, [states.committable(f"copy-{index}-9", index, 0)]) for index in range(2_000)
    ]
    raw = states.metadata_6(9, entries)
    tracemalloc.start()
    found = decode_sink_states(decoded(raw), {})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(found, SinkStates)
    assert len(found.committables) == 2_000
    assert peak < 20 * len(raw)
