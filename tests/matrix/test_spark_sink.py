"""Proves that the exactly-once sink writes each row once on each Spark and Python that users have, its driver
killed in between.

foreachBatch from 3.5 on, the data source from 4.0 on. Kafka's connector is not needed: rows come from Spark's
own rate source.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from sandbox import prepared
from sandbox.kafka import Broker
from tests.brokers import create_topics, kafka_42
from tests.matrix.sink_driver import ROWS
from tests.matrix.spark_versions import FOR_SINK, PLATFORMS, python_for_arrow, python_with
from tests.spark.conftest import ROOT, environment, settings
from tests.spark.kills.killed_query import committed_records
from tests.waiting import wait_for

__all__ = ["kafka_42"]
pytestmark = [pytest.mark.matrix, pytest.mark.spark]


@pytest.mark.parametrize("platform", PLATFORMS, ids="-".join)
def test_each_row_is_written_once_on_every_platform(
    platform: tuple[str, str], kafka_42: Broker, tmp_path: Path
) -> None:
    python = python_with(platform, tmp_path / "venv", *FOR_SINK)
    own = {key: value for key, value in settings(tmp_path).items() if key != "spark.jars"}
    around = environment(tmp_path) | {
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        prepared.VARIABLE: "",
    }
    adapters = ["foreach_batch"] if platform[0].startswith("3.") else ["foreach_batch", "data_source"]
    for adapter in adapters:
        topic = f"spark-{'-'.join(platform)}-{adapter}"
        create_topics(kafka_42.bootstrap, topic)
        checkpoint = tmp_path / adapter
        command = [python, "-m", "tests.matrix.sink_driver", kafka_42.bootstrap, topic, str(checkpoint)]
        run_killed_once([*command, adapter, json.dumps(own)], os.environ | around, checkpoint)
        found = sorted(int(key) for key, _ in committed_records(kafka_42.bootstrap, topic))
        assert found == list(range(len(found)))
        assert len(found) >= 4 * ROWS
        assert len(found) % ROWS == 0, "batches are whole"


def run_killed_once(command: Sequence[str], environment: Mapping[str, str], checkpoint: Path) -> None:
    """Run a driver that is killed while it writes, then one that ends."""
    first = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        began = checkpoint / "offsets" / "1"
        wait_for(lambda: began.exists() or first.poll() is not None, "its second batch begins", 300)
        assert first.poll() is None, "the driver has ended by itself"
    finally:
        first.kill()
        first.wait()
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=600)


def test_an_executor_without_the_package_is_named_before_the_first_batch(
    kafka_42: Broker, tmp_path: Path
) -> None:
    """Its Python has what Spark needs for Arrow, and nothing of the sink's."""
    bare = python_for_arrow(tmp_path / "bare")
    own = {key: value for key, value in settings(tmp_path).items() if key != "spark.jars"}
    around = environment(tmp_path) | {"PYSPARK_PYTHON": bare, "PYSPARK_DRIVER_PYTHON": sys.executable}
    create_topics(kafka_42.bootstrap, "bare")
    checkpoint = tmp_path / "checkpoint"
    command = [sys.executable, "-m", "tests.matrix.sink_driver", kafka_42.bootstrap, "bare", str(checkpoint)]
    done = subprocess.run(
        [*command, "foreach_batch", json.dumps(own)],
        cwd=ROOT,
        env=os.environ | around,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode != 0
    assert "executors have no Python module confluent_kafka: install fenceline[spark]" in done.stderr
    assert not list(checkpoint.glob("kafka_exactly_once/*"))
