"""Capture what REST APIs of a real JobManager and a real worker of Connect answer, into tests/data/engines.

    .venv/bin/python -m tests.data.capture_engines

Each file holds the answers by path. The job and the connector are those of the tests, on loopback.
"""

import json
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sandbox.engines.flink import FlinkProcess
from sandbox.engines.kafka import connect_worker
from sandbox.kafka import Broker
from sandbox.ports import free_port
from sandbox.scenes.scene_context import steady_input
from tests.brokers import create_topics

FOLDER = Path(__file__).with_name("engines")


def answers(url: str, paths: Sequence[str]) -> dict[str, Any]:
    """Return the JSON at each path."""
    found = {}
    for path in paths:
        with urllib.request.urlopen(f"{url}{path}", timeout=30) as answer:
            found[path] = json.load(answer)
    return found


def of_flink(version: str, broker: Broker, folder: Path) -> dict[str, Any]:
    """Return the answers of a JobManager whose job has completed a checkpoint."""
    port, topic = free_port(), f"in-{version}"
    create_topics(broker.bootstrap, topic, f"out-{version}")
    job = FlinkProcess(
        version, broker.bootstrap, folder, source=topic, target=f"out-{version}", prefix="copy",
        settings={"rest.port": str(port), "rest.bind-port": str(port), "rest.bind-address": "127.0.0.1"},
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    with steady_input(broker.bootstrap, topic), job.start():
        job.wait_for_checkpoint(2)
        found = answers(url, ["/v1/config", "/v1/jobs/overview"])
        (ident,) = (each["jid"] for each in found["/v1/jobs/overview"]["jobs"])
        return found | answers(url, [f"/v1/jobs/{ident}", f"/v1/jobs/{ident}/checkpoints"])


def of_connect(broker: Broker, folder: Path) -> dict[str, Any]:
    """Return the answers of a worker with one connector of two tasks."""
    create_topics(broker.bootstrap, "connect-in", partitions=2)
    with connect_worker(folder, broker.bootstrap, "cdc") as worker:
        worker.mirror("orders-source", broker.bootstrap, "connect-in", 2)
        return answers(worker.address, ["/", "/connectors?expand=status&expand=info"])


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, Broker(Path(name) / "kafka") as broker:
        folder = Path(name)
        for version in ("2.1", "1.20"):
            write(f"flink-{version}", of_flink(version, broker, folder / version / "checkpoints"))
        write("connect-4.2", of_connect(broker, folder / "connect"))


def write(name: str, found: dict[str, Any]) -> None:
    """Write one file."""
    (FOLDER / f"{name}.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
