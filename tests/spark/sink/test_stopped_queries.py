"""Proves that an ordinary stop of a query, while its tasks write, logs no fatal error and no advice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.spark.conftest import ROOT, environment

pytestmark = [pytest.mark.kafka]

#: What a task logs that was fenced, and the classes of the sink's own errors.
NOISE = ("Fatal", "TXNERR", "_FENCED", "SinkError", "transaction_timeout_ms", "could not be rolled back")


@pytest.mark.parametrize("stops", [1, pytest.param(10, marks=pytest.mark.soak)])
def test_a_stop_logs_one_line_at_most(kafka_42: Broker, tmp_path: Path, stops: int) -> None:
    topics = [f"stopped-{stops}-{number}" for number in range(stops)]
    create_topics(kafka_42.bootstrap, *topics, partitions=1)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.spark.sink.stopped_queries",
            kafka_42.bootstrap,
            str(tmp_path),
            *topics,
        ],
        cwd=ROOT,
        env={**os.environ, **environment(tmp_path)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    logged = done.stderr.partition(f"stopping {topics[0]}")[2]
    assert [word for word in NOISE if word in logged] == [], logged
    for topic in topics:
        ours = logged.partition(f"stopping {topic}")[2].partition("stopping")[0].splitlines()
        assert len([line for line in ours if "given up" in line]) <= 1, logged
