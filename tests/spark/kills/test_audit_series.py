"""Proves over long series that the audit finds what was injected and nothing else.

1,000 transactions with dropped, doubled and aborted sends, by key and offset; Spark's own Kafka sink under
kill -9; 1,000 batches of our sink with faults behind its ledger and 10,000 without, by counts; and a job that
is killed 20 times.
"""

import json
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from fenceline.audit.manifest import DUPLICATES, LOSSES, AuditManifest, AuditVerdict
from fenceline.decode.ledger import FOLDER
from sandbox.kafka import Broker
from tests.brokers import wait_for_markers
from tests.seeds import SEED
from tests.spark.conftest import ROOT
from tests.spark.kills.killed_job import kill_job
from tests.spark.test_audit import Pipeline
from tests.spark.test_audit_keys import GroupPipeline, Place
from tests.spark.topic_records import read_messages

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.soak]

#: The driver of Spark's own Kafka sink.
COPY = ROOT / "tests" / "spark" / "kills" / "copy_query.py"
#: Audits come in between: the ledger keeps 100 batches.
AUDIT_EACH = 80


@pytest.fixture
def group(kafka_42: Broker, tmp_path: Path) -> GroupPipeline:
    return GroupPipeline(kafka_42.bootstrap, tmp_path / "output")


@pytest.fixture
def pipeline(kafka_42: Broker, tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path / "checkpoint", kafka_42.bootstrap, tmp_path / "output")


def test_a_thousand_transactions_with_dropped_doubled_and_aborted_sends(
    spark: SparkSession, group: GroupPipeline
) -> None:
    print(f"FENCELINE_SEED={SEED}")
    dice = random.Random(SEED)
    places = send(group.bootstrap, group.source, range(5_000))
    producer = Producer({"bootstrap.servers": group.bootstrap, "transactional.id": group.target})
    producer.init_transactions(60)
    lost: set[Place] = set()
    doubled: list[Place] = []
    for number in range(1_000):
        batch = range(5 * number, 5 * number + 5)
        fault = dice.choice(["drop", "double", "abort", "abort and repeat", *["none"] * 16])
        dropped = set(dice.sample(batch, 2)) if fault == "drop" else set(batch) if fault == "abort" else set()
        lost |= {places[each] for each in dropped}
        if fault.startswith("abort"):
            transact(producer, group.target, batch, commit=False)
        if fault != "abort":
            transact(producer, group.target, [each for each in batch if each not in dropped])
        if fault == "double":
            doubled += transact(producer, group.target, dice.sample(batch, 3)).values()
    group.commit(dict.fromkeys((0, 1), 2_500))
    wait_for_markers(group.bootstrap, group.target)
    found = group.audit(spark)
    assert lost
    assert doubled
    assert (found.missing, found.duplicated) == (len(lost), len(doubled))
    assert group.places(found, LOSSES) == lost
    assert group.places(found, DUPLICATES) == set(doubled)


def send(bootstrap: str, topic: str, numbers: Iterable[int]) -> Mapping[int, Place]:
    """Write a record for each number; return where each of them is."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    return _produced(producer, topic, numbers)


def transact(
    producer: Producer, topic: str, numbers: Iterable[int], *, commit: bool = True
) -> Mapping[int, Place]:
    producer.begin_transaction()
    found = _produced(producer, topic, numbers)
    if commit:
        producer.commit_transaction(60)
    else:
        producer.abort_transaction(60)
    return found


def _produced(producer: Producer, topic: str, numbers: Iterable[int]) -> Mapping[int, Place]:
    found: dict[int, Place] = {}

    def note(number: int) -> object:
        return lambda error, sent: found.update({number: (sent.partition(), sent.offset())})

    for number in numbers:
        producer.produce(topic, str(number), f"k{number}", number % 2, on_delivery=note(number))
    assert producer.flush(60) == 0
    return found


def test_what_spark_s_own_sink_doubles_under_kill_9_is_found(
    spark: SparkSession, group: GroupPipeline, tmp_path: Path
) -> None:
    send(group.bootstrap, group.source, range(20_000))
    checkpoint = tmp_path / "checkpoint"
    arguments = [group.bootstrap, group.source, group.target, str(checkpoint)]
    dice = random.Random(SEED)

    def finished() -> int:
        return len(batches_in(checkpoint / "commits"))

    for _ in range(8):
        wanted = finished() + dice.randint(2, 6)
        kill_job(COPY, arguments, tmp_path, lambda wanted=wanted: finished() >= wanted)
    kill_job(COPY, arguments, tmp_path, lambda: finished() >= 100)
    found = group.run(spark, "--checkpoint", str(checkpoint))
    assert (found.missing, found.readable) == (0, found.input)
    assert group.places(found, DUPLICATES) == doubled_records(group)
    print(f"{found.duplicated} of {found.input} records doubled by Spark's own sink")


def batches_in(log: Path) -> list[int]:
    return sorted(int(path.name) for path in log.glob("*") if path.name.isdecimal())


def test_an_edited_checkpoint_loses_and_doubles_exactly_what_is_found(
    spark: SparkSession, group: GroupPipeline, tmp_path: Path
) -> None:
    """It goes back over three batches, then over records that it has not read."""
    places = send(group.bootstrap, group.source, range(6_000))
    checkpoint = tmp_path / "checkpoint"
    arguments = [group.bootstrap, group.source, group.target, str(checkpoint)]
    kill_job(COPY, arguments, tmp_path, lambda: len(batches_in(checkpoint / "commits")) >= 10)
    last = batches_in(checkpoint / "commits")[-1]
    for log in ("commits", "offsets"):
        for batch in batches_in(checkpoint / log):
            if batch > last - 3:
                (checkpoint / log / str(batch)).unlink()
                (checkpoint / log / f".{batch}.crc").unlink(missing_ok=True)
    kill_job(COPY, arguments, tmp_path, lambda: len(batches_in(checkpoint / "commits")) >= 15)
    newest = checkpoint / "offsets" / str(batches_in(checkpoint / "commits")[-1])
    for later in (each for each in batches_in(checkpoint / "offsets") if each > int(newest.name)):
        (checkpoint / "offsets" / str(later)).unlink()
    *head, line = newest.read_text().splitlines()
    ends = {name: offset + 150 for name, offset in json.loads(line)[group.source].items()}
    newest.write_text("\n".join([*head, json.dumps({group.source: ends})]))
    (checkpoint / "offsets" / f".{newest.name}.crc").unlink(missing_ok=True)
    kill_job(COPY, arguments, tmp_path, lambda: len(batches_in(checkpoint / "commits")) >= 25)
    found = group.run(spark, "--checkpoint", str(checkpoint))
    keys, due = copied(group), {each.partition: each.to_offset for each in found.compared}
    lost = {place for number, place in places.items() if f"k{number}".encode() not in keys}
    assert group.places(found, LOSSES) == {place for place in lost if place[1] < due[place[0]]}
    assert group.places(found, DUPLICATES) == doubled_records(group)
    print(f"{found.missing} lost, {found.duplicated} doubled")
    assert found.missing
    assert found.duplicated


def doubled_records(group: GroupPipeline) -> set[Place]:
    """Return the records of the output whose key was there before, as a consumer reads them."""
    return {
        (partition, offset) for some in copied(group).values() for _, offset, partition in sorted(some)[1:]
    }


def copied(group: GroupPipeline) -> Mapping[bytes | None, Sequence[tuple[int, int, int]]]:
    """Return timestamp, offset and partition of each record of the output, by its key."""
    by_key: defaultdict[bytes | None, list[tuple[int, int, int]]] = defaultdict(list)
    for message in read_messages(group.bootstrap, group.target):
        place = message.timestamp()[1], message.offset() or 0, message.partition() or 0
        by_key[message.key()].append(place)
    return by_key


def test_a_thousand_batches_with_faults_behind_the_ledger(spark: SparkSession, pipeline: Pipeline) -> None:
    print(f"FENCELINE_SEED={SEED}")
    dice = random.Random(SEED)
    expected: dict[int, tuple[int, int]] = {}
    found: dict[int, tuple[int | None, int | None]] = {}
    for batch in range(1_000):
        pipeline.batch(batch)
        if dice.random() < 0.05:
            by = dice.choice([-2, -1, 1, 2])
            declare(pipeline, batch, by)
            expected[batch] = max(0, by), max(0, -by)
        if batch % AUDIT_EACH == AUDIT_EACH - 1 or batch == 999:
            found |= violations(pipeline.run(spark))
    assert found == expected
    print(f"{len(expected)} faults in 1,000 batches: found, and nothing else")


def declare(pipeline: Pipeline, batch: int, by: int) -> None:
    """Let the ledger have counted so many records more than were sent."""
    path = pipeline.folder / FOLDER / f"{batch}.0.decision"
    content = json.loads(path.read_text())
    content["transactions"][0]["records"] += by
    path.unlink()
    path.write_text(json.dumps(content))


def violations(manifest: AuditManifest) -> Mapping[int, tuple[int | None, int | None]]:
    """Return what is missing and duplicated, by batch."""
    violated = (each for each in manifest.batches if each.verdict is AuditVerdict.VIOLATED)
    return {each.batch_id: (each.missing, each.duplicated) for each in violated}


def test_ten_thousand_clean_batches_are_proved(spark: SparkSession, pipeline: Pipeline) -> None:
    for batch in range(10_000):
        pipeline.batch(batch, 2)
        if batch % AUDIT_EACH == AUDIT_EACH - 1:
            found = pipeline.run(spark)
            assert (found.verdict, found.proved_through) == (AuditVerdict.PROVED, batch), found.obstacles
    assert (found.missing, found.duplicated, found.readable) == (0, 0, found.input)


def test_a_job_that_is_killed_twenty_times_finds_what_an_undisturbed_one_does(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:
    print(f"FENCELINE_SEED={SEED}")
    dice = random.Random(SEED)
    log = pipeline.audits / "log"
    for kill in range(20):
        for number in (0, 1):
            pipeline.batch(2 * kill + number)
        before, after = len(list(log.glob("*.json"))), time.monotonic() + dice.uniform(0, 6)

        def now(before: int = before, after: float = after) -> bool:
            return len(list(log.glob("*.json"))) > before or time.monotonic() > after

        arguments = [*pipeline.arguments(), "--trigger", "1 seconds"]
        kill_job(ROOT / "spark_pipeline" / "audit.py", arguments, tmp_path, now)
    killed = pipeline.run(spark)
    rows = pipeline.partitions(killed)
    pipeline.output = tmp_path / "undisturbed"
    whole = pipeline.run(spark)
    assert replace(killed, run=whole.run, at_ms=whole.at_ms, parts=whole.parts) == whole
    assert rows == pipeline.partitions(whole)
