"""A one-node Kafka without Docker: format, start, wait, stop.

    with Broker(tmp_path / "kafka", version="3.9.1") as broker:       # start + wait_ready … stop
        producer = Producer({"bootstrap.servers": broker.bootstrap})

    Broker(
        folder,
        properties={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"},
        sasl=Sasl(users={"viewer": "secret"}),                         # a second listener, SASL/PLAIN
        authorizer=True,                                               # SASL users need ACLs
    )

A folder is formatted once; the same folder and ports give the same cluster with its data again, also
after `kill()`. Everything listens on 127.0.0.1. `prepare()` and `command()` serve the supervisor.
For a cluster of several brokers see sandbox/cluster.py.
"""

import fcntl
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from sandbox import SandboxError, clients, prepared
from sandbox.jar_sets import EVERYDAY_KAFKA, MATRIX_KAFKA
from sandbox.java import Java, Progress, cache_folder, classpath, fetch_jars, find_java
from sandbox.ports import HOST, free_port, require_free

#: The versions in the lock file.
VERSIONS = EVERYDAY_KAFKA + MATRIX_KAFKA
LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showThreadName=false",
)
#: Patterns of log lines to omit: a combined node logs them at every start and stop.
LOG_LEVELS: Mapping[str, str] = {
    "kafka.server.KafkaRaftServer": "info",
    "org.apache.kafka.controller.QuorumController": "error",
    "org.apache.kafka.clients.NetworkClient": "error",
    "kafka.server.DefaultAutoTopicCreationManager": "error",
}
#: Patterns of further lines that each node logs when another one stops: they stop together.
LOG_LEVELS_AMONG_SEVERAL: Mapping[str, str] = {
    "kafka.server.ReplicaFetcherThread": "error",
    "kafka.server.ControllerApis": "off",
    "org.apache.kafka.raft.KafkaRaftClient": "error",
    "org.apache.kafka.raft.KafkaRaftClientDriver": "off",
}
#: Bytes of the log to search for the reason of a failed start.
LOG_TAIL = 20_000


@dataclass(frozen=True, slots=True)
class Sasl:
    """A SASL/PLAIN listener in the clear: user -> password, and its port (0 picks a free one)."""

    users: Mapping[str, str]
    port: int = 0


@dataclass(slots=True)
class Broker:
    """One combined broker and controller in its own folder. Ports of 0 are chosen at construction.

    It is a cluster of its own unless `quorum` names the controller port of every node, including its own.
    """

    folder: Path
    version: str = VERSIONS[0]
    port: int = 0
    controller_port: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    sasl: Sasl | None = None
    #: Deny what no ACL allows; the plain listener's ANONYMOUS stays a super user, so tests can grant there.
    authorizer: bool = False
    heap: str = "384m"
    node_id: int = 1
    quorum: Mapping[int, int] = field(default_factory=dict)
    #: The cluster id of the storage; "" generates one, for a single node only.
    cluster_id: str = ""
    java: Java | None = None
    #: Options of its JVM; by default those of its class archive.
    jvm_options: Sequence[str] | None = None
    progress: Progress = print
    sasl_port: int = field(default=0, init=False)
    process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)
    _jars: list[Path] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.version not in VERSIONS:
            raise SandboxError(
                f"no Kafka {self.version} in the lock file: choose one of {', '.join(VERSIONS)}"
            )
        self.folder = Path(self.folder).absolute()
        self.port = self.port or free_port()
        self.controller_port = self.controller_port or free_port()
        if self.sasl:
            self.sasl_port = self.sasl.port or free_port()

    @property
    def bootstrap(self) -> str:
        """`host:port` of the plain listener."""
        return f"{HOST}:{self.port}"

    @property
    def sasl_bootstrap(self) -> str:
        return f"{HOST}:{self.sasl_port}"

    @property
    def log_file(self) -> Path:
        """The log of a broker started by `start()`."""
        return self.folder / "broker.log"

    def prepare(self) -> None:
        """Fetch the jars, write server.properties, format new storage.

        Raises SandboxError, without changes, while another broker runs on the folder.
        """
        self._refuse_second()
        self.java = self.java or find_java(self.folder)
        self._jars = fetch_jars(f"kafka-{self.version}", self.progress)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lines = (f"{key}={value}\n" for key, value in self._settings().items())
            self._config.write_text("".join(lines))
        except OSError as error:
            raise SandboxError(
                f"cannot write to {self.folder}: {error.strerror}: free or repair it"
            ) from None
        if self.jvm_options is None:
            self.jvm_options = self._class_archive(self.java)
        self._format()

    def command(self) -> list[str]:
        """Return the argument list that runs the prepared broker in the foreground."""
        return self.tool_command("kafka.Kafka", str(self._config), heap=self.heap)

    def tool_command(self, main_class: str, *arguments: str, heap: str = "256m") -> list[str]:
        """Return the argument list of one of Kafka's own command-line classes. Call `prepare()` first."""
        if self.java is None:
            raise RuntimeError("prepare() comes first")
        levels = {**LOG_LEVELS, **(LOG_LEVELS_AMONG_SEVERAL if self.quorum else {})}
        logging = (f"-Dorg.slf4j.simpleLogger.log.{name}={level}" for name, level in levels.items())
        return [
            self.java.command, *(self.jvm_options or ()), f"-Xmx{heap}", "-XX:+UseSerialGC",
            "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true", *LOGGING, *logging,
            "-cp", classpath(self._jars), main_class, *arguments,
        ]  # fmt: skip

    def start(self) -> None:
        """Prepare and start it. Raises SandboxError if a port is taken or the folder is not writable."""
        self.prepare()
        for port in filter(None, (self.port, self.controller_port, self.sasl_port)):
            require_free(port, "Kafka", "stop what listens there or choose another")
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_ready(self, deadline_s: float = 60) -> None:
        """Return once it answers a metadata request that lists it. Raises SandboxError with the reason."""
        until = time.monotonic() + deadline_s
        while self.node_id not in live_brokers(self.bootstrap):
            if self.process and self.process.poll() is not None:
                reason = explain_log(self.log_file.read_bytes()[-LOG_TAIL:].decode(errors="replace"))
                raise SandboxError(f"Kafka stopped while starting: {reason} (see {self.log_file})")
            if time.monotonic() > until:
                raise SandboxError(
                    f"Kafka did not answer on {self.bootstrap} in {deadline_s:.0f} s: see {self.log_file}"
                )
            time.sleep(0.1)

    def stop(self, deadline_s: float = 20) -> None:
        """Shut it down; kill it after the deadline."""
        self._end(signal.SIGTERM, deadline_s)

    def kill(self) -> None:
        """Kill it with SIGKILL, as a crash would."""
        self._end(signal.SIGKILL, 20)

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

    def _end(self, number: signal.Signals, deadline_s: float) -> None:
        process, self.process = self.process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _config(self) -> Path:
        return self.folder / "server.properties"

    def _refuse_second(self) -> None:
        """Try the lock of a running Kafka on its data: two brokers would corrupt each other's files."""
        try:
            with (self._data / ".lock").open("r+") as lock:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return
        except OSError:
            raise SandboxError(f"another broker runs on {self.folder}: stop it first") from None

    def _class_archive(self, java: Java) -> list[str]:
        name = f"kafka-{self.version}"
        return prepared.archive_options(name, cache_folder(), java, self._jars, self._train, self.progress)

    def _train(self, folder: Path, options: Sequence[str]) -> None:
        """Start and stop a broker of this version, so that its JVM loads the classes of brokers."""
        one = Broker(folder / "kafka", self.version, java=self.java, jvm_options=options)
        try:
            one.start()
            one.wait_ready()
        finally:
            one.stop(deadline_s=60)

    def _format(self) -> None:
        """Format new storage: by Kafka's tool for the first broker of a version, else by a copy."""
        if prepared.is_formatted(self._data):
            return
        template = cache_folder() / f"kafka-{self.version}.checkpoint"
        cluster_id = self.cluster_id or prepared.new_id()
        try:
            prepared.copy_format(template, self._data, cluster_id, self.node_id)
        except FileNotFoundError:
            self.format_with_tool(cluster_id)
            with suppress(OSError):
                prepared.keep_format(self._data, template)
        except OSError as error:
            raise SandboxError(f"cannot format {self._data}: {error.strerror}") from None

    def format_with_tool(self, cluster_id: str) -> None:
        """Format the storage by Kafka's own tool; raises SandboxError with its reason."""
        command = self.tool_command(
            "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._config)
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SandboxError(f"cannot format {self._data}: {explain_log(done.stderr + done.stdout)}")

    def _settings(self) -> dict[str, str]:
        listeners = {"PLAINTEXT": self.port, "CONTROLLER": self.controller_port}
        security = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
        extra: dict[str, str] = {}
        if self.sasl:
            listeners["SASL"], security["SASL"] = self.sasl_port, "SASL_PLAINTEXT"
            extra |= _sasl_settings(self.sasl)
        if self.authorizer:
            extra |= {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
            }
        quorum = self.quorum or {self.node_id: self.controller_port}
        urls = {name: f"{name}://{HOST}:{port}" for name, port in listeners.items()}
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "controller.quorum.voters": ",".join(f"{node}@{HOST}:{port}" for node, port in quorum.items()),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listeners": ",".join(urls.values()),
            "advertised.listeners": ",".join(url for name, url in urls.items() if name != "CONTROLLER"),
            "listener.security.protocol.map": ",".join(f"{name}:{how}" for name, how in security.items()),
            "log.dirs": str(self._data),
            **DEFAULTS,
            **extra,
            **self.properties,
        }


#: Settings for one broker, little memory and quick starts; the sandbox retains data for an hour.
DEFAULTS: Mapping[str, str] = {
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "4",
    "offsets.topic.num.partitions": "10",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "10",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.retention.ms": "3600000",
    "log.segment.bytes": "67108864",
    "log.cleaner.dedupe.buffer.size": "33554432",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "10000",
    # By default an idle controller writes a record twice a second, half of an idle broker's cost.
    "metadata.max.idle.interval.ms": "10000",
}


def _sasl_settings(sasl: Sasl) -> dict[str, str]:
    users = " ".join(f'user_{name}="{password}"' for name, password in sasl.users.items())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f"{module} required {users};",
    }


def live_brokers(bootstrap: str) -> frozenset[int]:
    """Return the ids of live nodes, from an answer within two seconds; empty without an answer."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient(clients.client_settings(bootstrap, "probe"))
    try:
        topics = client.list_topics(timeout=2)
    except KafkaException:
        return frozenset()
    return frozenset(topics.brokers) if topics.controller_id >= 0 else frozenset()


#: Why a broker stops, in our words, by what its log says.
STOP_CAUSES = {
    "No space left on device": "the disk is full (No space left on device): free some space",
    "Address already in use": "a port is taken (Address already in use): stop what listens there",
    "Permission denied": "it may not write its folder (Permission denied)",
    "Failed to acquire lock": "another broker runs on the same folder: stop it first",
    "OutOfMemoryError": "it ran out of memory: give it more heap",
}


def explain_log(log: str) -> str:
    """Return the line of a Java log with the cause of a stop; known causes first, in our words."""
    for sign, meaning in STOP_CAUSES.items():
        if sign in log:
            return meaning
    lines = [line.strip() for line in log.splitlines() if line.strip() and not line.startswith(("\t", " "))]
    errors = [line for line in lines if "ERROR" in line or "FATAL" in line or "Exception" in line]
    return (errors or lines or ["it logged nothing"])[-1][:300]
