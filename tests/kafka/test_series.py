"""Proves on a real broker that figures over time are what Kafka said at each instant: the LSO and the high
watermark of a partition that a transaction blocks are list_offsets', a waiting group's lag is
ConsumerGroupCommand's; and that a collector that starts anew in between writes nothing twice."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from django.test import Client, override_settings

from dashboard.config import ClusterConfig, Config
from dashboard.models import Series
from dashboard.runtime import collector_store, loop
from fenceline.series import packing
from fenceline.series.points import PARTITION
from sandbox.kafka import Broker
from tests.brokers import create_topics, wait_for_markers
from tests.java.tools import KafkaTool
from tests.kafka.collected_groups import CollectedGroups, groups_by_kafka_tool
from tests.kafka.collected_partitions import CollectedPartitions
from tests.kafka.group_commits import commit_offsets, write_records
from tests.kafka.producers import open_in
from tests.kafka.topic_records import end_offset
from tests.waiting import wait_for
from tests.web.roles import client_with_role

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

TOPIC, GROUP = "se-stuck", "se-waits"


class Said(NamedTuple):
    """What Kafka said at an instant of our clock, after our collectors had polled."""

    at_ms: int
    lso: int
    high_watermark: int
    lag: int | None


class Run:
    """Both collectors on a broker, and what Kafka's own tools said whenever they had polled."""

    def __init__(self, broker: Broker, tool: KafkaTool) -> None:
        self.broker, self._tool = broker, tool
        self.partitions = CollectedPartitions(broker.bootstrap)
        self.groups = CollectedGroups({"bootstrap.servers": broker.bootstrap})
        self.said: list[Said] = []

    def close(self) -> None:
        self.partitions.close()
        self.groups.close()

    def poll(self) -> None:
        """Poll, then let Kafka say the same: nothing is written meanwhile.

        The API's steps are seconds, each with its last figure: what comes next is in another one.
        """
        self.partitions.poll()
        self.groups.poll()
        at_ms = loop.now_ms()
        ends = [end_offset(self.broker.bootstrap, TOPIC, committed=level) for level in (True, False)]
        line = groups_by_kafka_tool(self._tool).get((GROUP, TOPIC, 0))
        self.said.append(Said(at_ms, *ends, line.lag if line else None))
        wait_for(lambda: loop.now_ms() // 1_000 > at_ms // 1_000, "the next second begins", 5)


@pytest.fixture
def run(kafka: Broker, tool: KafkaTool) -> Iterator[Run]:
    made = Run(kafka, tool)
    yield made
    made.close()


def series(client: Client, path: str, said: list[Said]) -> list[tuple[int, Mapping[str, Any]]]:
    """The steps of the run, as the API shows them, with their instants."""
    instants = [
        datetime.fromtimestamp(ms / 1_000, UTC).isoformat() for ms in (said[0].at_ms - 1, said[-1].at_ms + 1)
    ]
    answer = client.get(f"/api/v1/{path}/series", {"from": instants[0], "to": instants[1]})
    assert answer.status_code == 200, answer.content
    body = answer.json()
    assert body["resolution"] == "detail"
    return [(round(datetime.fromisoformat(step["at"]).timestamp() * 1_000), step) for step in body["items"]]


def held_at(steps: list[tuple[int, Mapping[str, Any]]], at_ms: int) -> Mapping[str, Any]:
    return [step for begin_ms, step in steps if begin_ms <= at_ms][-1]


def test_a_stuck_transaction_and_a_waiting_group_are_kept_as_kafka_had_them(kafka: Broker, run: Run) -> None:
    where = kafka.bootstrap
    create_topics(where, TOPIC, partitions=1)
    write_records(where, TOPIC, 10, partitions=1)
    commit_offsets(where, GROUP, TOPIC, p0=3)
    run.poll()
    producer = open_in(where, "se-tx", TOPIC, 0)
    run.poll()
    write_records(where, TOPIC, 10, partitions=1)
    run.poll()
    commit_offsets(where, GROUP, TOPIC, p0=end_offset(where, TOPIC, committed=True))
    run.poll()
    # The collector dies, and another one goes on with what the database knows.
    run.partitions.close()
    run.partitions.start()
    run.poll()
    producer.abort()
    wait_for_markers(where, TOPIC)
    run.poll()
    run.poll()
    stuck = [said for said in run.said if said.lso < said.high_watermark]
    assert len(stuck) == 4, run.said
    names = run.partitions.name, run.groups.cluster.name
    collector_store.sync_clusters(names)
    config = Config(clusters={name: ClusterConfig(name, {"bootstrap.servers": where}) for name in names})
    with override_settings(FENCELINE=config):
        client = client_with_role("viewer")
        offsets = series(client, f"partitions/{names[0]}/{TOPIC}/0", run.said)
        lags = series(client, f"groups/{names[1]}/{GROUP}", run.said)
    for said in run.said:
        partition, group = held_at(offsets, said.at_ms), held_at(lags, said.at_ms)
        assert (partition["lso"]["last"], partition["high_watermark"]) == said[1:3], said
        assert group["lag_hw"]["last"] == said.lag, said
        assert partition["uncommitted"]["last"] == said.high_watermark - said.lso
    row = Series.objects.get(cluster__name=names[0], kind=PARTITION.code, name=f"{TOPIC}-0")
    points = packing.unpack_points(bytes(row.points), len(PARTITION.columns))
    changes = [said for n, said in enumerate(run.said) if not n or said[1:3] != run.said[n - 1][1:3]]
    expected = [said[1:3] for said in changes]
    assert [(values[0], sum(each or 0 for each in values)) for _, values in points] == expected
