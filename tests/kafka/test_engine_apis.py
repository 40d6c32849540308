"""Proves with a real Flink mini cluster and a real worker of Connect that their REST APIs are read: a job
with operators and checkpoints, a connector with its tasks; and what is left of both when they are gone."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from collectors.engines import EnginesCollector
from dashboard.config.engines import EngineEndpoint
from fenceline.engines.status import EngineAnswer, EngineKind
from sandbox.engines.flink import FlinkProcess
from sandbox.engines.kafka import connect_worker
from sandbox.kafka import Broker
from sandbox.ports import free_port
from sandbox.scenes.scene_context import steady_input
from tests.brokers import create_topics
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]


Polled = tuple[Sequence[EngineAnswer], Mapping[str, tuple[int, str]]]


def poller(kind: EngineKind, url: str) -> Callable[[], Polled]:
    collector = EnginesCollector([EngineEndpoint(kind, url, "prod")])
    return lambda: collector.poll(1, every_s=0)


@pytest.mark.parametrize("version", ["1.20", "2.0", "2.1"])
def test_a_job_manager_reports_its_job(kafka_42: Broker, tmp_path: Path, version: str) -> None:
    port, source, target = free_port(), f"rest-in-{version}", f"rest-out-{version}"
    create_topics(kafka_42.bootstrap, source, target)
    settings = {"rest.port": str(port), "rest.bind-port": str(port), "rest.bind-address": "127.0.0.1"}
    job = FlinkProcess(
        version, kafka_42.bootstrap, tmp_path / "job", source=source, target=target, prefix="rest",
        settings=settings,
    )  # fmt: skip
    poll = poller(EngineKind.FLINK, f"http://127.0.0.1:{port}")
    with steady_input(kafka_42.bootstrap, source), job.start():
        folder = job.wait_for_checkpoint(2).parent

        def reported() -> Polled | None:
            found = poll()
            return found if found[0] and found[0][0].runs[0].completed else None

        found = wait_for(reported, "a completed checkpoint is reported", 30)
        assert found is not None
        answers, gaps = found
        ((run,),) = (each.runs for each in answers)
        assert answers[0].version.startswith(version)
        assert (run.job_id, run.state) == (folder.name, "RUNNING")
        assert sum(each.parallelism for each in run.operators) >= 2
        assert not gaps
    answers, gaps = poll()
    ((_, reason),) = gaps.values()
    assert "does not answer" in reason
    assert not answers


def test_a_worker_of_connect_reports_its_connector(kafka_42: Broker, tmp_path: Path) -> None:
    create_topics(kafka_42.bootstrap, "rest-connect-in")
    with connect_worker(tmp_path / "worker", kafka_42.bootstrap, "rest-cdc") as worker:
        worker.mirror("orders", kafka_42.bootstrap, "rest-connect-in", 2)
        ((connector,),) = (each.connectors for each in poller(EngineKind.CONNECT, worker.address)()[0])
        assert (connector.name, connector.kind, connector.state) == ("orders", "source", "RUNNING")
        assert [(each.number, each.state) for each in connector.tasks] == [(0, "RUNNING"), (1, "RUNNING")]
        worker.delete("orders")
        wait_for(lambda: not poller(EngineKind.CONNECT, worker.address)()[0][0].connectors, "it is gone")
