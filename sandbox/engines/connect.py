"""A worker of Kafka Connect in a JVM of its own, driven over its REST API."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sandbox import SandboxError, wait_until
from sandbox.engines.gateway import java_gateway
from sandbox.java import fetch_jars, find_java
from sandbox.ports import HOST, free_port

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
#: A connector that copies topics; each task copies some partitions.
MIRROR = "org.apache.kafka.connect.mirror.MirrorSourceConnector"


class ConnectWorker:
    """A worker that writes exactly once (KIP-618); `address` is its REST API's."""

    def __init__(self, address: str) -> None:
        self.address = address

    def mirror(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        tasks: int,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Start a connector that copies a topic with a number of tasks; wait until all tasks run."""
        self.configure(name, tasks, {
            "connector.class": MIRROR, "tasks.max": str(tasks), "topics": topic,
            "source.cluster.alias": "from", "source.cluster.bootstrap.servers": bootstrap,
            "target.cluster.alias": "to", "target.cluster.bootstrap.servers": bootstrap,
            "replication.factor": "1", "offset-syncs.topic.replication.factor": "1",
            "sync.topic.configs.enabled": "false", "sync.topic.acls.enabled": "false",
            **(settings or {}),
        })  # fmt: skip

    def configure(self, name: str, tasks: int, config: Mapping[str, str]) -> None:
        """Start or reconfigure a connector; wait until a number of tasks runs."""
        wait_until(lambda: self._answers("PUT", f"connectors/{name}/config", config), "it is configured", 120)
        wait_until(lambda: self._running(name) == tasks, f"{tasks} tasks run", 120)

    def delete(self, name: str) -> None:
        """Delete a connector; its tasks commit their open transactions and end."""
        wait_until(lambda: self._answers("DELETE", f"connectors/{name}"), "it is deleted", 60)

    def _running(self, name: str) -> int:
        try:
            status = self._ask("GET", f"connectors/{name}/status")
        except urllib.error.HTTPError:
            return 0  # Not created yet.
        return sum(task["state"] == "RUNNING" for task in status["tasks"])

    def _answers(self, method: str, path: str, body: Mapping[str, str] | None = None) -> bool:
        try:
            self._ask(method, path, body)
        except urllib.error.HTTPError as error:
            if error.code == 400:
                raise SandboxError(f"Connect refused {path}: {error.read().decode()}") from None
            return False  # A rebalance is under way.
        except (urllib.error.URLError, ConnectionError):
            return False  # It is starting.
        return True

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.address}/{path}", data, headers, method=method)  # noqa: S310 - its own http
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return json.loads(answer.read() or b"null")


@contextmanager
def connect_worker(
    folder: Path, bootstrap: str, group: str, jars: str = "connect-mirror"
) -> Iterator[ConnectWorker]:
    """Start a worker in its own group from a set of jars; kill its JVM afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    address = f"http://{HOST}:{free_port()}"
    topics = {f"{use}.storage.topic": f"{group}-{use}" for use in ("config", "offset", "status")}
    factors = {f"{use}.storage.replication.factor": "1" for use in ("config", "offset", "status")}
    settings = {
        "bootstrap.servers": bootstrap, "group.id": group,
        "key.converter": BYTES, "value.converter": BYTES,
        "exactly.once.source.support": "enabled", "listeners": address, **topics, **factors,
        # A returning worker gets its tasks at once.
        "scheduled.rebalance.max.delay.ms": "0",
    }  # fmt: skip
    paths = fetch_jars(jars)
    with (folder / "connect.log").open("ab") as log, java_gateway(find_java(folder), paths, log) as gateway:
        no_arguments = gateway.new_array(gateway.jvm.java.lang.String, 0)
        gateway.jvm.org.apache.kafka.connect.cli.ConnectDistributed(no_arguments).startConnect(settings)
        yield ConnectWorker(address)
