"""Make a checkpoint of every kind with real Spark, and keep those of its files that are text.

    python -m tests.data.capture_checkpoints

Writes `checkpoints/spark-4.2.0.jsonl`: one object per kind of tests/spark/checkpoint_kinds.py, with the
text of `metadata`, of the newest files of both logs, of `sources/<i>/0` and of operators' metadata by path;
and of Spark's own progress events id, batch, offsets of sources and names of operators. Kafka's zero byte is
in the text; the folder in which it was made is not.
"""

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from sandbox.kafka import Broker
from tests.spark.checkpoint_kinds import KINDS, Progress, Stage
from tests.spark.conftest import environment, settings

TARGET = Path(__file__).with_name("checkpoints") / "spark-4.2.0.jsonl"
#: Of each log so many of the newest files: enough for a hole that asynchronous progress tracking leaves.
NEWEST = 3
TEXT = ("metadata", "sources/*/0", "state/*/_metadata/metadata", "state/*/_metadata/v2/*")


def main() -> None:
    """Play every kind and write what is left of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.update(environment(folder))
        builder = SparkSession.builder.appName("capture")
        for key, value in settings(folder).items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        with Broker(folder / "kafka", version="4.2.0", properties={}) as broker:
            lines = [json.dumps(each) for each in _played(spark, folder, broker.bootstrap)]
        spark.stop()
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text("\n".join(lines) + "\n")


def _played(spark: SparkSession, folder: Path, bootstrap: str) -> Iterable[Mapping[str, Any]]:
    for number, (kind, play) in enumerate(KINDS.items()):
        stage = Stage(spark, folder / f"kind-{number}" / "checkpoint", bootstrap)
        stage.folder.parent.mkdir()
        progress = play(stage)
        print(kind, len(progress), flush=True)
        yield {"kind": kind, "files": _files(stage.folder), "progress": _events(progress)}


def _files(folder: Path) -> Mapping[str, str]:
    logs = [_newest(folder / log) for log in ("offsets", "commits")]
    beside = [sorted(folder.glob(pattern)) for pattern in TEXT]
    paths = [path for part in (*logs, *beside) for path in part if not path.name.startswith(".")]
    return {
        str(path.relative_to(folder)): path.read_text().replace(str(folder.parents[1]), "/made")
        for path in paths
        if not path.suffix
    }


def _newest(log: Path) -> list[Path]:
    numbered = [path for path in log.iterdir() if path.name.isdigit()]
    return sorted(numbered, key=lambda path: int(path.name))[-NEWEST:]


def _events(progress: Progress) -> list[Mapping[str, Any]]:
    return [
        {
            "id": str(event["id"]),
            "batchId": event["batchId"],
            "sources": [{"endOffset": _plain(each["endOffset"])} for each in event["sources"]],
            "stateOperators": [{"operatorName": each["operatorName"]} for each in event["stateOperators"]],
        }
        for event in progress[-NEWEST:]
    ]


def _plain(offset: Any) -> Any:
    """Return an offset as JSON has it: PySpark's events have it as text."""
    return json.loads(offset) if isinstance(offset, str) else offset


if __name__ == "__main__":
    main()
