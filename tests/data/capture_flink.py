"""Make checkpoints and savepoints of a job with Kafka's sink with each version of Flink, and keep them.

    python -m tests.data.capture_flink [VERSION…]

Writes `flink/VERSION/KIND/…`: `_metadata`, and the files beside it that hold state.

    inline      state of the sinks in `_metadata` itself, as it is by default below 20 kB
    files       every state in a file of its own beside it
    merged      states merged into files (`execution.checkpointing.file-merging`), by absolute paths
    compressed  lists of operators' state compressed (`execution.checkpointing.snapshot-compression`)
    pooled      transactional ids of a pool (connector 4.0 and newer)
    savepoint   a canonical savepoint

Those whose name begins with `producer` are of the older sink, `FlinkKafkaProducer` (Flink 1.14 to 1.20).

Absolute paths in them begin with the folder in which they were made, `made-flink` in the temporary one.
"""

import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import Producer

from sandbox.engines.flink import FlinkProcess
from sandbox.jar_sets import FLINKS, OLDER_FLINKS
from sandbox.kafka import Broker
from tests.brokers import create_topics

TARGET = Path(__file__).with_name("flink")
KINDS: Mapping[str, Mapping[str, str]] = {
    "inline": {},
    "files": {"execution.checkpointing.data-inline-threshold": "0b"},
    "merged": {
        "execution.checkpointing.data-inline-threshold": "0b",
        "execution.checkpointing.file-merging.enabled": "true",
    },
    "compressed": {"execution.checkpointing.snapshot-compression": "true"},
    "pooled": {},
    "savepoint": {},
    "producer": {},
    "producer-files": {
        "execution.checkpointing.data-inline-threshold": "0b",
        "state.storage.fs.memory-threshold": "0b",
    },
    "producer-compressed": {"execution.checkpointing.snapshot-compression": "true"},
    "producer-savepoint": {},
}
#: The one version that has both sinks, and what a version lacks: pools, a savepoint of a named format.
_WITH_BOTH = "1.20"
_LACKING = {("1.20", "pooled"), ("1.14", "producer-savepoint")}
_ROOT = Path(tempfile.gettempdir()) / "made-flink"


def main(versions: Sequence[str]) -> None:
    """Play every kind with every version."""
    with tempfile.TemporaryDirectory() as name, Broker(Path(name) / "kafka", version="4.2.0") as broker:
        for version in versions or (FLINKS | OLDER_FLINKS):
            shutil.rmtree(TARGET / version, ignore_errors=True)
            for kind, settings in KINDS.items():
                if not _is_possible(version, kind):
                    continue
                folder = _ROOT / version / kind
                shutil.rmtree(folder, ignore_errors=True)
                _capture(broker.bootstrap, version, kind, settings, folder)
    shutil.rmtree(_ROOT)


def _is_possible(version: str, kind: str) -> bool:
    """Return whether a version has the sink of a kind."""
    with_sink = [_WITH_BOTH, *OLDER_FLINKS] if kind.startswith("producer") else list(FLINKS)
    return version in with_sink and (version, kind) not in _LACKING


def _capture(bootstrap: str, version: str, kind: str, settings: Mapping[str, str], folder: Path) -> None:
    source, target = f"in-{version}-{kind}", f"out-{version}-{kind}"
    create_topics(bootstrap, source, target)
    producer = Producer({"bootstrap.servers": bootstrap})
    job = FlinkProcess(
        version, bootstrap, folder, source=source, target=target, prefix="copy", interval_ms=300,
        pooling=kind == "pooled", is_older_sink=kind.startswith("producer"), settings=settings,
    )  # fmt: skip
    with job.start():
        number, checkpoint = 0, job.wait_for_checkpoint()
        # Some checkpoints on, each with records of both subtasks.
        while int(checkpoint.name.removeprefix("chk-")) < 4:
            for _ in range(30):
                producer.produce(source, str(number), partition=number % 3)
                number += 1
            producer.flush()
            checkpoint = job.wait_for_checkpoint(int(checkpoint.name.removeprefix("chk-")))
        if kind.endswith("savepoint"):
            producer.produce(source, str(number))
            producer.flush()
            checkpoint = job.savepoint(folder)
    _keep(checkpoint, TARGET / version / kind)
    print(version, kind, checkpoint, flush=True)


def _keep(checkpoint: Path, kept: Path) -> None:
    """Copy a checkpoint and the files that its `_metadata` names elsewhere in the job's folder."""
    metadata = (checkpoint / "_metadata").read_bytes()
    kept.mkdir(parents=True)
    shutil.copytree(checkpoint, kept / checkpoint.name)
    for path in checkpoint.parent.rglob("*"):
        if path.is_file() and str(path).encode() in metadata:
            copied = kept / path.relative_to(checkpoint.parent)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copied)


if __name__ == "__main__":
    main(sys.argv[1:])
