"""A cluster of several nodes on one machine, each a broker and a controller.

    with KafkaCluster(tmp_path / "kafka") as cluster:           # three nodes, started, all of them ready
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        cluster.node(2).kill()                                  # the other two are still a majority
        cluster.node(2).start()
        cluster.wait_ready()

Topics have three replicas, of which two must be in sync. The same folder and ports give the same cluster
with its data again. `prepare()` serves the supervisor, which runs each node as a part of its own.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from sandbox import SandboxError
from sandbox.java import Progress
from sandbox.kafka import VERSIONS, Broker, live_brokers
from sandbox.ports import free_port
from sandbox.prepared import new_id

SIZE = 3
#: Kafka's recommendation for three nodes, with little memory per node.
REPLICATED: Mapping[str, str] = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}
HEAP = "256m"


class KafkaCluster:
    """Three nodes, numbered from 1, each in its own folder below `folder`. Missing ports are chosen.

    Each node has its own `start()`, `wait_ready()`, `stop()` and `kill()`.
    """

    def __init__(
        self,
        folder: Path,
        version: str = VERSIONS[0],
        *,
        ports: Sequence[int] = (),
        controller_ports: Sequence[int] = (),
        properties: Mapping[str, str] | None = None,
        progress: Progress = print,
    ) -> None:
        """Raises SandboxError for an unknown version, or if the folder is not writable."""
        self.folder = Path(folder).absolute()
        numbers = range(1, SIZE + 1)
        quorum = dict(zip(numbers, controller_ports or [free_port() for _ in numbers], strict=True))
        own = dict(zip(numbers, ports or [free_port() for _ in numbers], strict=True))
        cluster_id = _remembered_id(self.folder)
        self.brokers = tuple(
            Broker(
                self.folder / str(number),
                version,
                own[number],
                quorum[number],
                {**REPLICATED, **(properties or {})},
                heap=HEAP,
                progress=progress,
                node_id=number,
                quorum=quorum,
                cluster_id=cluster_id,
            )
            for number in numbers
        )
        self._preparing = threading.Lock()

    @property
    def bootstrap(self) -> str:
        """`host:port` of every node's plain listener, with commas between."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    @property
    def version(self) -> str:
        return self.brokers[0].version

    def node(self, node_id: int) -> Broker:
        """Return a node by its id, from 1."""
        return self.brokers[node_id - 1]

    def prepare(self, broker: Broker) -> None:
        """Prepare one node at a time: the first one fetches the jars for all."""
        with self._preparing:
            broker.prepare()

    def start(self) -> None:
        """Start every stopped node."""
        for broker in self.brokers:
            if broker.process is None:
                broker.start()

    def wait_ready(self, deadline_s: float = 120) -> None:
        """Return once every node answers and knows all others. Raises SandboxError with the log's reason."""
        until = time.monotonic() + deadline_s
        for broker in self.brokers:
            broker.wait_ready(max(1.0, until - time.monotonic()))
            while len(live_brokers(broker.bootstrap)) < SIZE:
                if time.monotonic() > until:
                    raise SandboxError(
                        f"node {broker.node_id} does not see all nodes after {deadline_s:.0f} s: "
                        f"see {broker.log_file}"
                    )
                time.sleep(0.1)

    def stop(self, deadline_s: float = 20) -> None:
        """Shut all nodes down at once: one by one, the last node would wait in vain for a majority."""
        with ThreadPoolExecutor(SIZE) as pool:
            list(pool.map(lambda broker: broker.stop(deadline_s), self.brokers))

    def kill(self) -> None:
        """Kill all nodes with SIGKILL, as a power cut would."""
        for broker in self.brokers:
            broker.kill()

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def require_size(folder: Path, size: int) -> None:
    """Raise SandboxError if a folder holds the data of a Kafka with another number of brokers."""
    brokers = 1 if (folder / "data").exists() else SIZE if (folder / "cluster.id").exists() else size
    if brokers != size:
        raise SandboxError(
            f"{folder} holds a Kafka of {brokers} broker{'s' if brokers > 1 else ''}: say BROKERS={brokers}, "
            "or choose another folder with FENCELINE_DATA="
        )


def _remembered_id(folder: Path) -> str:
    """Return the cluster id of all nodes in a folder, made once."""
    path = folder / "cluster.id"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(new_id() + "\n")
        return path.read_text().strip()
    except OSError as error:
        raise SandboxError(f"cannot write to {folder}: {error.strerror}: free or repair it") from None
