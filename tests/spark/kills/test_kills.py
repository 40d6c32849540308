"""Proves that a query may be killed with kill -9 at any point of a batch: its output has every row once.

A real driver, its JVM and its Python workers die together, in the middle of the sink's own steps or in one of
its tasks, again and again on one checkpoint; what a read_committed consumer gets in the end is compared with
the input. The gate has one point, amid the commits; `make soak` does each of seven twenty times, stateless
and stateful, through both adapters.
"""

import os
import random
from pathlib import Path
from statistics import median

import pytest

from sandbox.kafka import Broker
from tests.seeds import SEED
from tests.spark.kills.driver_run import Point, TaskFault
from tests.spark.kills.killed_query import KilledQuery

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

#: How often a driver dies at each point, in each cell of the soak.
TIMES = int(os.environ.get("FENCELINE_KILLS", "20"))


def test_a_driver_killed_while_it_commits_writes_each_row_once(kafka_42: Broker, tmp_path: Path) -> None:
    """With state, through foreachBatch; in the end a task fails and is run again, too."""
    print(f"FENCELINE_SEED={SEED}")
    dice = random.Random(f"{SEED} True")
    with KilledQuery(kafka_42.bootstrap, tmp_path, dice, stateful=True) as query:
        query.run_until_killed(Point.ENDING, survive=0)
        # Recovery may finish the first batch of the last run without a task, so one of the second fails: this
        # is input for two, whatever the limit of a batch.
        query.produce(1_200)
        query.run_to_end(fault=TaskFault.FAILS, survive=1)
        query.check()
        assert query.events_of("again")
        print(seconds(query))


@pytest.mark.soak
@pytest.mark.parametrize("stateful", [False, True], ids=["stateless", "stateful"])
@pytest.mark.parametrize("adapter", ["foreach_batch", "data_source"])
def test_a_driver_killed_many_times_at_each_point_writes_each_row_once(
    kafka_42: Broker, tmp_path: Path, adapter: str, stateful: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    dice = random.Random(f"{SEED} {adapter} {stateful}")
    points = list(Point) * TIMES
    dice.shuffle(points)
    with KilledQuery(kafka_42.bootstrap, tmp_path, dice, adapter, stateful) as query:
        for number, point in enumerate(points, 1):
            run = query.run_until_killed(point)
            with capsys.disabled():
                died = query.events_of("died")[-1]
                print(
                    f"{number}/{len(points)} run {run.number}: {point} in batch {died['batch']}", flush=True
                )
        query.run_to_end()
        query.check()
        with capsys.disabled():
            print(f"\n{adapter}, {'stateful' if stateful else 'stateless'}, FENCELINE_SEED={SEED}")
            print(f"{len(points)} kills, {query.produced} rows in: 0 lost, 0 doubled")
            print(seconds(query))


def seconds(query: KilledQuery) -> str:
    """Print how long recovery took, with Spark's own planning of the batch and without."""
    told = []
    for since, name in (("started", "from the started event"), ("called", "from the sink's first call")):
        if times := sorted(query.recoveries(since)):
            late = sum(each > 1 for each in times)
            told.append(f"{name}: median {median(times):.2f} s, worst {times[-1]:.2f} s, {late} over 1 s")
    return f"{len(query.recoveries())} recoveries, " + "; ".join(told)
