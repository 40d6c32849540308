"""Kafka's own engines in JVMs of their own: an instance of a Kafka Streams application, which can be paused,
and a worker of Kafka Connect, driven over its REST API. Python drives a JVM by py4j: no JDK, nothing to
compile.
"""

import json
import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import IO, Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from sandbox import SandboxError, wait_until
from sandbox.java import Java, classpath, fetch_jars, find_java
from sandbox.ports import HOST, free_port

#: 60 producers and an admin client live in it at once.
OPTIONS = (
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)
STRING = "org.apache.kafka.common.serialization.Serdes$StringSerde"
_CLIENT = re.compile(r"-([0-9a-f-]{36})-StreamThread-\d+")
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
#: A connector that copies topics; each task copies some partitions.
MIRROR = "org.apache.kafka.connect.mirror.MirrorSourceConnector"


@contextmanager
def java_gateway(
    java: Java, jars: Iterable[Path], log: IO[bytes], options: Iterable[str] = OPTIONS
) -> Iterator[JavaGateway]:
    """Start a JVM with these jars and yield its gateway; end it afterwards."""
    gateway, process = start_jvm(java, jars, log, options)
    try:
        yield gateway
    finally:
        # Not close(): objects collected later would try to reach the JVM.
        gateway.shutdown()
        process.kill()
        process.wait()


def start_jvm(
    java: Java, jars: Iterable[Path], log: IO[bytes], options: Iterable[str], *, collects: bool = True
) -> tuple[JavaGateway, Popen[bytes]]:
    """Start a JVM with these jars; return its gateway and its process.

    It listens on a random loopback port, requires a token, writes to `log`, and ends with this process,
    because its standard input then closes. `collects`: it forgets objects that Python has forgotten.
    """
    port, token, process = launch_gateway(
        classpath=classpath(jars),
        javaopts=list(options),
        java_path=java.command,
        die_on_exit=True,
        enable_auth=True,
        redirect_stdout=log,
        redirect_stderr=log,
        return_proc=True,
    )
    parameters = GatewayParameters(
        port=port, auth_token=token, auto_convert=True, enable_memory_management=collects
    )
    return JavaGateway(gateway_parameters=parameters), process


class StreamsInstance:
    """Counts the records of `source` by key into `target`, exactly once (version 2)."""

    def __init__(
        self, gateway: JavaGateway, folder: Path, source: str, target: str, settings: Mapping[str, str]
    ) -> None:
        jvm: Any = gateway.jvm
        streams, properties = jvm.org.apache.kafka.streams, jvm.java.util.Properties()
        values = {
            "processing.guarantee": "exactly_once_v2", "state.dir": str(folder / "state"),
            "default.key.serde": STRING, "default.value.serde": STRING, "auto.offset.reset": "earliest",
            "replication.factor": "1", **settings,
        }  # fmt: skip
        for key, value in values.items():
            properties.put(key, value)
        builder = streams.StreamsBuilder()
        counts = builder.stream(source).groupByKey().count().toStream()
        longs = jvm.org.apache.kafka.common.serialization.Serdes.Long()
        counts.to(target, streams.kstream.Produced.valueSerde(longs))
        self._streams = streams.KafkaStreams(builder.build(), properties)
        self._jvm, self._pid = jvm, int(jvm.java.lang.ProcessHandle.current().pid())
        self._streams.start()

    @property
    def process(self) -> str:
        """The process id that its transactional ids hold."""
        (client, *_) = (_CLIENT.search(str(thread)) for thread in self._streams.metadataForLocalThreads())
        if client is None:
            raise SandboxError("no thread of the instance names its client")
        return client[1]

    @property
    def state(self) -> str:
        """Its state in Kafka's terms: RUNNING, REBALANCING, …"""
        return str(self._streams.state())

    def wait_running(self) -> None:
        wait_until(lambda: self.state == "RUNNING", "the instance runs", 120)

    @property
    def pid(self) -> int:
        """The process of its JVM."""
        return self._pid

    def close(self) -> None:
        """Commit open transactions and leave the group."""
        self._streams.close(self._jvm.java.time.Duration.ofSeconds(30))

    def pause(self) -> None:
        """Pause the whole process, like a long pause of its machine."""
        os.kill(self._pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._pid, signal.SIGCONT)


@contextmanager
def streams_instance(
    folder: Path, source: str, target: str, settings: Mapping[str, str]
) -> Iterator[StreamsInstance]:
    """Start an instance and end its JVM afterwards."""
    folder.mkdir(parents=True)
    jars = fetch_jars("kafka-streams")
    with (folder / "streams.log").open("ab") as log, java_gateway(find_java(folder), jars, log) as gateway:
        instance = StreamsInstance(gateway, folder, source, target, settings)
        try:
            yield instance
        finally:
            instance.resume()
            instance.close()


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
