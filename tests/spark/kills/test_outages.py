"""Proves that a query lives through brokers that are away for less than outageTimeoutMs, whatever it is doing
just then, and that each row is in its output once: in the gate a broker that is killed amid the commits and
starts again, in `make soak` brokers that are away for 20 s and for 50 s, and rolling restarts of three, each
twenty times at a random moment."""

import os
import random
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sandbox.cluster import KafkaCluster
from sandbox.kafka import Broker
from spark_pipeline.sink import SinkError, Step
from spark_pipeline.sink.patience import ask_patiently
from tests.brokers import PROPERTIES
from tests.seeds import SEED
from tests.spark.kills.outages import RunningQuery
from tests.spark.kills.test_faults import Query
from transaction_admin.api import AdminUnavailable

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

_EARLY = 0.7
TIMES = int(os.environ.get("FENCELINE_OUTAGES", "20"))


@pytest.mark.parametrize(
    "step",
    [
        Step.PREPARED,
        *(
            pytest.param(each, marks=pytest.mark.soak)
            for each in (Step.BEFORE_WRITE, Step.WRITTEN, Step.VERIFIED, Step.ENDING, Step.ENDED)
        ),
    ],
)
def test_a_broker_that_is_killed_at_a_step_is_waited_for(
    spark: SparkSession, tmp_path: Path, step: Step
) -> None:
    with Broker(tmp_path / "kafka", properties=PROPERTIES) as broker:
        query = Query(spark, broker.bootstrap, tmp_path)
        query.add()
        restarts: list[threading.Thread] = []

        def hook(at: Step, batch: int) -> None:
            if at is step and not restarts:
                broker.kill()
                restarts.append(threading.Thread(target=broker.start))
                restarts[0].start()

        assert query.run(hook) == "", "the query has not noticed"
        assert restarts
        assert query.differences() == ""
        assert query.open() == []


@pytest.mark.soak
@pytest.mark.parametrize(("away_s", "adapter"), [(20, "foreach_batch"), (50, "data_source")])
def test_a_broker_that_is_away_at_any_moment_ends_no_query(
    spark: SparkSession, tmp_path: Path, away_s: int, adapter: str, capsys: pytest.CaptureFixture[str]
) -> None:
    dice = random.Random(f"{SEED} {away_s}")
    with (
        Broker(tmp_path / "kafka", properties=PROPERTIES) as broker,
        RunningQuery(spark, broker.bootstrap, tmp_path, adapter) as query,
    ):
        for number in range(TIMES):
            query.await_moment(dice)
            broker.kill()
            gone_s = time.monotonic()
            # It takes a while to start, and is to be back within the time.
            back = threading.Timer(_EARLY * away_s, broker.start)
            back.start()
            back.join()
            broker.wait_ready()
            with capsys.disabled():
                print(f"{number + 1}/{TIMES}: away for {time.monotonic() - gone_s:.0f} s", flush=True)
        query.await_batches(2)
        amount = query.check()
    with capsys.disabled():
        print(f"FENCELINE_SEED={SEED}: {TIMES} outages of {away_s} s, {amount} rows: 0 lost, 0 doubled")


@pytest.mark.soak
def test_rolling_restarts_of_three_brokers_end_no_query(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dice = random.Random(f"{SEED} rolling")
    with (
        KafkaCluster(tmp_path / "kafka", properties=PROPERTIES) as cluster,
        RunningQuery(spark, cluster.bootstrap, tmp_path, "foreach_batch", replicas=3) as query,
    ):
        for number in range(TIMES):
            for broker in cluster.brokers:
                query.await_moment(dice)
                broker.stop()
                broker.start()
                cluster.wait_ready()
            with capsys.disabled():
                print(f"rolling restart {number + 1}/{TIMES}, batch {query.batch}", flush=True)
        query.await_batches(2)
        amount = query.check()
    with capsys.disabled():
        print(f"FENCELINE_SEED={SEED}: {TIMES} rolling restarts, {amount} rows: 0 lost, 0 doubled")


def test_what_cannot_pass_is_not_waited_for_and_what_stays_away_is_reported() -> None:
    asked: list[bool] = []

    def unavailable(*, passing: bool) -> None:
        asked.append(passing)
        raise AdminUnavailable("cannot ask the coordinators at b:1: no connection", passing=passing)

    with pytest.raises(SinkError, match="no connection"):
        ask_patiently(lambda: unavailable(passing=False), 60)
    assert asked == [False]
    with pytest.raises(
        SinkError, match=r"no connection\. The cluster was away for longer than 0\.2 s \(outage"
    ):
        ask_patiently(lambda: unavailable(passing=True), 0.2)
    assert len(asked) > 2
