"""Proves the replay job on a real Kafka and Spark: what an audit found missing is written once, however often
the job runs and wherever it was killed; the output then equals that of a run without losses.
"""

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fenceline.audit.manifest import AuditVerdict
from sandbox.kafka import Broker
from spark_pipeline import replay
from spark_pipeline.audits import AuditError
from spark_pipeline.replay import Replay
from tests.spark.audits import CLUSTER, PIPELINE, delete_records
from tests.spark.test_audit_keys import GroupPipeline, records
from tests.spark.topic_records import read_messages

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

LOST = (3, 4, 7, 11, 12)


@pytest.fixture
def pipeline(kafka_42: Broker, tmp_path: Path) -> GroupPipeline:
    """Return a pipeline that has written the ids of 20 input records, five of them not."""
    made = GroupPipeline(kafka_42.bootstrap, tmp_path / "output")
    made.produce(made.source, records(range(20)))
    made.produce(made.target, [(f"k{each}", str(each)) for each in range(20) if each not in LOST])
    made.commit({0: 10, 1: 10})
    return made


def run(spark: SparkSession, pipeline: GroupPipeline, *more: str) -> str:
    arguments = [
        "--bootstrap-servers", pipeline.bootstrap, "--cluster", CLUSTER, "--pipeline", PIPELINE,
        "--output", pipeline.output.as_uri(), "--target", pipeline.target,
        "--value", "get_json_object(value, '$.id')", *more,
    ]  # fmt: skip
    return replay.run_replay(spark, replay.argument_parser().parse_args(arguments))


def committed(pipeline: GroupPipeline) -> Counter[tuple[bytes | None, bytes | None]]:
    """Return how often readers of committed records get each record of the output."""
    messages = read_messages(pipeline.bootstrap, pipeline.target)
    return Counter((each.key(), each.value()) for each in messages)


WHOLE = Counter((f"k{each}".encode(), str(each).encode()) for each in range(20))


def test_losses_are_written_once_however_often_it_runs(spark: SparkSession, pipeline: GroupPipeline) -> None:
    assert pipeline.audit(spark).missing == len(LOST)
    before = committed(pipeline)
    assert run(spark, pipeline).startswith("5 records would be written")
    assert committed(pipeline) == before, "without --execute nothing is written"
    run(spark, pipeline, "--execute")
    assert committed(pipeline) == WHOLE
    assert run(spark, pipeline, "--execute").startswith("nothing to replay")
    assert committed(pipeline) == WHOLE
    assert pipeline.audit(spark).verdict is AuditVerdict.PROVED


@pytest.mark.matrix
def test_a_killed_replay_is_continued_and_a_later_loss_is_added(
    spark: SparkSession, pipeline: GroupPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.audit(spark)
    with monkeypatch.context() as killed:
        killed.setattr(Replay, "_write_lists", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(spark, pipeline, "--execute")
    # Its driver died while it wrote the list after this one.
    lists = pipeline.audits / "replays" / "lists"
    (lists / "000000000002.json").write_text('{"ranges": [{"topic": "x", "part')
    pipeline.produce(pipeline.source, records(range(20, 22)))
    pipeline.commit({0: 11, 1: 11})
    assert pipeline.audit(spark).missing == len(LOST) + 2
    assert run(spark, pipeline).startswith("7 records would be written")
    run(spark, pipeline, "--execute")
    more = Counter((f"k{each}".encode(), str(each).encode()) for each in (20, 21))
    assert committed(pipeline) == WHOLE + more
    listed = [json.loads(path.read_text())["ranges"] for path in sorted(lists.glob("*.json"))]
    assert [sum(each["to_offset"] - each["from_offset"] for each in some) for some in listed] == [5, 2]


def test_what_is_wrong_is_one_sentence_and_writes_nothing(
    spark: SparkSession, pipeline: GroupPipeline
) -> None:
    with pytest.raises(AuditError, match="run the audit first"):
        run(spark, pipeline)
    pipeline.audit(spark)
    before = committed(pipeline)
    for wrong, text in (
        (["--value", "nonsense(value)"], "nonsense"),
        (["--where", "value >"], "Syntax error"),
        (["--target", "replay-nowhere", "--execute"], "there is no topic replay-nowhere"),
    ):
        with pytest.raises(AuditError, match=text) as raised:
            run(spark, pipeline, *wrong)
        assert "\n" not in str(raised.value)
    delete_records(pipeline.bootstrap, pipeline.source, 1, before=3)
    with pytest.raises(AuditError, match="retention has deleted them"):
        run(spark, pipeline)
    assert committed(pipeline) == before
