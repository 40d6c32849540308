"""Proves that the exactly-once sink writes each row once on older Sparks, each in its own environment.

foreachBatch from 3.5 on, the data source from 4.0 on. Kafka's connector is not needed: rows come from Spark's
own rate source.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from sandbox.kafka import Broker
from sandbox.prepared import spark_archive
from tests.brokers import create_topics, kafka_42
from tests.matrix.sink_driver import ROWS
from tests.matrix.spark_versions import FOR_SINK, SPARKS, python_with
from tests.spark.conftest import ROOT, environment, settings
from tests.spark.kills.killed_query import committed_records

__all__ = ["kafka_42"]
pytestmark = [pytest.mark.matrix, pytest.mark.spark]


@pytest.mark.parametrize("version", SPARKS)
def test_older_sparks_write_each_row_once(version: str, kafka_42: Broker, tmp_path: Path) -> None:
    python = python_with(version, tmp_path / "venv", *FOR_SINK)
    own = {key: value for key, value in settings(tmp_path).items() if key != "spark.jars"}
    around = environment(tmp_path) | {
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        spark_archive.VARIABLE: "",
    }
    adapters = ["foreach_batch"] if version.startswith("3.") else ["foreach_batch", "data_source"]
    for adapter in adapters:
        topic = f"spark-{version}-{adapter}"
        create_topics(kafka_42.bootstrap, topic)
        command = [python, "-m", "tests.matrix.sink_driver", kafka_42.bootstrap, topic]
        subprocess.run(
            [*command, str(tmp_path / adapter), adapter, json.dumps(own)],
            cwd=ROOT,
            env={**os.environ, **around},
            check=True,
            timeout=600,
        )
        found = sorted(int(key) for key, _ in committed_records(kafka_42.bootstrap, topic))
        assert found == list(range(len(found)))
        assert len(found) >= 4 * ROWS
        assert len(found) % ROWS == 0, "batches are whole"
