"""Bytes of Flink's checkpoints for unit tests: of real jobs, and some written here by its rules."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from fenceline.engines.flink.metadata import (
    COMMITTER_STATE,
    CheckpointMetadata,
    FlinkStateFile,
    decode_checkpoint_metadata,
)
from fenceline.engines.flink.sink_state import SinkStates, decode_sink_states

GOLDEN = Path(__file__).parents[1] / "data" / "flink"
#: Version of Flink -> version of its `_metadata`.
VERSIONS = {"1.20": 4, "2.0": 5, "2.1": 6}
#: The end of a checkpoint's `_metadata`: as much of its serialized properties as is read.
_PROPERTIES = b"\xac\xed\x00\x05 org.apache.flink.runtime.checkpoint.CheckpointType"


def golden(version: str, kind: str) -> Path:
    """Return the `_metadata` that a real job left (tests/data/capture_flink.py)."""
    (found,) = (GOLDEN / version / kind).glob("*/_metadata")
    return found


def golden_sink_states(version: str, kind: str) -> SinkStates:
    """Return what is decoded of a golden `_metadata` and of the files that it names."""
    path = golden(version, kind)
    metadata = decode_checkpoint_metadata(path.read_bytes())
    assert isinstance(metadata, CheckpointMetadata), metadata
    found = decode_sink_states(metadata, golden_files(metadata, path))
    assert isinstance(found, SinkStates), found
    return found


def golden_files(metadata: CheckpointMetadata, path: Path) -> Mapping[FlinkStateFile, bytes]:
    """Return the files that a golden `_metadata` names."""
    return {each: _bytes(each, path) for each in metadata.state_files()}


def _bytes(file: FlinkStateFile, path: Path) -> bytes:
    # What is not relative was made elsewhere: its folder there is the one of the kind here.
    below = path.parent if file.relative else path.parents[1]
    name = file.path if file.relative else file.path[file.path.index("taskowned") :]
    return (below / name).read_bytes()[file.start : file.start + file.size]


def utf(text: str) -> bytes:
    """Return what `writeUTF` writes."""
    raw = text.encode()
    return struct.pack(">H", len(raw)) + raw


def sized(raw: bytes) -> bytes:
    """Return bytes behind their length."""
    return struct.pack(">i", len(raw)) + raw


def committable(name: str, producer_id: int, epoch: int) -> bytes:
    """Return an entry of `KafkaCommittableSerializer`."""
    return struct.pack(">hq", epoch, producer_id) + utf(name)


def collector_entry(checkpoint_id: int, committables: Sequence[bytes]) -> bytes:
    """Return an entry of the committer's list as Flink 2.1 writes it (`CommittableCollectorSerializer`)."""
    requests = b"".join(sized(struct.pack(">i", 1) + sized(each) + bytes(8)) for each in committables)
    subtask = (
        struct.pack(">iii", 0, 0, len(committables)) + requests + struct.pack(">ii", len(committables), 0)
    )
    checkpoint = struct.pack(">qiii", checkpoint_id, 1, 2, 1) + sized(subtask)
    data = struct.pack(">Iii", 0xB91F252C, 1, 1) + sized(checkpoint)
    return sized(struct.pack(">i", 2) + sized(data))


def sink_v1_entry(committables: Sequence[bytes]) -> bytes:
    """Return an entry of the committer's list as Sink V1 wrote it."""
    data = struct.pack(">ii", 1, len(committables)) + b"".join(map(sized, committables))
    return sized(struct.pack(">i", 1) + sized(data))


def metadata_6(checkpoint_id: int, entries: Sequence[bytes]) -> bytes:
    """Return a `_metadata` of version 6: one committer whose subtasks have an entry each, inside the file."""
    subtasks = b"".join(_subtask(index, entry) for index, entry in enumerate(entries))
    operator = utf("Sink: Committer") + utf("out") + bytes(16) + struct.pack(">iib", len(entries), 128, 0)
    return (
        struct.pack(">Iiqii", 0x4960672D, 6, checkpoint_id, 0, 1)
        + operator
        + struct.pack(">i", len(entries))
        + subtasks
        + _PROPERTIES
    )


def _subtask(index: int, entry: bytes) -> bytes:
    header = struct.pack(">ibh", 6, 0, 0)
    state = struct.pack(">bi", 4, 1) + utf(COMMITTER_STATE) + struct.pack(">biq", 0, 1, len(header))
    stream = struct.pack(">b", 1) + utf(f"state-{index}") + sized(header + entry)
    return struct.pack(">ii", index, 1) + state + stream + struct.pack(">ibbii", 0, 0, 0, 0, 0)
