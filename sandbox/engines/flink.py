"""A real Flink job in a JVM of its own, driven by py4j: it copies a topic exactly once, and may be killed.

No cluster, nothing to install or to compile: Flink's MiniCluster and its Kafka connector run from their jars.
"""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from sandbox import wait_until
from sandbox.engines.kafka import start_jvm
from sandbox.java import fetch_jars, find_java

#: Java packages that Flink opens by reflection.
_OPENED = (
    "java.io", "java.lang", "java.lang.reflect", "java.net", "java.nio", "java.text", "java.time",
    "java.util", "java.util.concurrent", "java.util.concurrent.atomic",
)  # fmt: skip
#: Seconds until the first checkpoint after the job's start, on a busy machine.
_CHECKPOINT_WITHIN_S = 60.0
#: Options of a JVM that runs Flink.
JVM_OPTIONS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    # A metric that two parts of its own sink register.
    "-Dorg.slf4j.simpleLogger.log.org.apache.flink.metrics=error",
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED),
)
#: Small buffers, no web server, checkpoints on disk that stay when the job ends.
_SETTINGS = {
    "execution.target": "local",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "execution.checkpointing.storage": "filesystem",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    "execution.checkpointing.num-retained": "3",
    "taskmanager.memory.network.min": "16m",
    "taskmanager.memory.network.max": "16m",
    "taskmanager.memory.managed.size": "16m",
    "restart-strategy.type": "none",
}


class FlinkProcess:
    """A job that copies values from `source` to `target`; its checkpoints are below `folder`."""

    def __init__(
        self,
        version: str,
        bootstrap: str,
        folder: Path,
        *,
        source: str,
        target: str,
        prefix: str,
        parallelism: int = 2,
        interval_ms: int = 500,
        pooling: bool = False,
        is_older_sink: bool = False,
        settings: Mapping[str, str] | None = None,
        sink_properties: Mapping[str, str] | None = None,
    ) -> None:
        self.version, self.bootstrap, self.folder = version, bootstrap, folder
        self.source, self.target, self.prefix, self.pooling = source, target, prefix, pooling
        self._is_older_sink = is_older_sink
        self._sink_properties = {"transaction.timeout.ms": "600000", **(sink_properties or {})}
        self._settings = {
            **_SETTINGS,
            "parallelism.default": str(parallelism),
            "execution.checkpointing.interval": f"{interval_ms} ms",
            # Two names: that of today, and that of Flink 1.19 and before.
            "execution.checkpointing.dir": f"file://{folder}",
            "state.checkpoints.dir": f"file://{folder}",
            **(settings or {}),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self, restore_from: Path | None = None) -> Self:
        """Start a JVM and the job in it, from a checkpoint if one is given; return when it is submitted."""
        self.folder.mkdir(parents=True, exist_ok=True)
        java, jars = find_java(self.folder.parent), fetch_jars(f"flink-{self.version}")
        with self.folder.with_name(f"{self.folder.name}.log").open("ab") as log:
            self._gateway, self._process = start_jvm(java, jars, log, JVM_OPTIONS, collects=False)
        self._client = self._submit(restore_from)
        return self

    @property
    def pid(self) -> int:
        """The process of its JVM."""
        return int(self._process.pid)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill it with SIGKILL, like the loss of a machine."""
        self._process.kill()
        self._process.wait()

    def status(self) -> str:
        """Return the job's state in Flink's terms: RUNNING, FAILED …"""
        return str(self._client.getJobStatus().get().toString())

    def savepoint(self, folder: Path) -> Path:
        """Take a savepoint below `folder`; return its own folder."""
        kind = self._gateway.jvm.org.apache.flink.core.execution.SavepointFormatType.CANONICAL
        return Path(self._client.triggerSavepoint(f"file://{folder}", kind).get().removeprefix("file:"))

    def checkpoints(self) -> list[Path]:
        """Return the folders of completed checkpoints, the oldest first."""
        files = self.folder.glob("*/chk-*/_metadata")
        return sorted((path.parent for path in files), key=checkpoint_number)

    def wait_for_checkpoint(self, above: int = 0, *, rest_s: float = 0.1) -> Path:
        """Return the first checkpoint with a higher number; without a pause its commits are not yet done."""

        def found() -> Path | None:
            return next((folder for folder in self.checkpoints() if checkpoint_number(folder) > above), None)

        return wait_until(found, "a checkpoint", _CHECKPOINT_WITHIN_S, rest_s=rest_s)

    def _submit(self, restore_from: Path | None) -> Any:
        flink = self._gateway.jvm.org.apache.flink
        settings = flink.configuration.Configuration()
        for name, value in self._settings.items():
            settings.setString(name, value)
        if restore_from is not None:
            for name in ("execution.state-recovery.path", "execution.savepoint.path"):
                settings.setString(name, f"file://{restore_from}")
        environment = flink.streaming.api.environment.StreamExecutionEnvironment
        stream = environment.getExecutionEnvironment(settings)
        watermarks = flink.api.common.eventtime.WatermarkStrategy.noWatermarks()
        values = stream.fromSource(self._source(flink), watermarks, "in").uid("in")
        if self._is_older_sink:
            values.addSink(self._older_sink(flink)).uid("out")
        else:
            values.sinkTo(self._sink(flink)).uid("out")
        return stream.executeAsync("copy")

    def _source(self, flink: Any) -> Any:
        kafka = flink.connector.kafka.source
        return (
            kafka.KafkaSource.builder()
            .setBootstrapServers(self.bootstrap)
            .setTopics(self._gateway.jvm.java.util.List.of(self.source))
            .setGroupId(self.prefix)
            .setStartingOffsets(kafka.enumerator.initializer.OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(flink.api.common.serialization.SimpleStringSchema())
            .build()
        )

    def _sink(self, flink: Any) -> Any:
        kafka = flink.connector.kafka.sink
        schema = (
            kafka.KafkaRecordSerializationSchema.builder()
            .setTopic(self.target)
            .setValueSerializationSchema(flink.api.common.serialization.SimpleStringSchema())
            .build()
        )
        builder = (
            kafka.KafkaSink.builder()
            .setBootstrapServers(self.bootstrap)
            .setRecordSerializer(schema)
            .setDeliveryGuarantee(flink.connector.base.DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(self.prefix)
        )
        for name, value in self._sink_properties.items():
            builder.setProperty(name, value)
        if self.pooling:
            builder.setTransactionNamingStrategy(kafka.TransactionNamingStrategy.POOLING)
        return builder.build()

    def _older_sink(self, flink: Any) -> Any:
        """Return a `FlinkKafkaProducer`, which connector 4.0 removed, with a pool of 5 ids a subtask."""
        older = flink.streaming.connectors.kafka.FlinkKafkaProducer
        properties = self._gateway.jvm.java.util.Properties()
        for name, value in {"bootstrap.servers": self.bootstrap, **self._sink_properties}.items():
            properties.setProperty(name, value)
        schema = flink.api.common.serialization.SimpleStringSchema()
        exactly_once = older.Semantic.EXACTLY_ONCE
        size = older.DEFAULT_KAFKA_PRODUCERS_POOL_SIZE
        sink = older(self.target, schema, properties, None, exactly_once, size)
        sink.setTransactionalIdPrefix(self.prefix)
        return sink


def checkpoint_number(checkpoint: Path | None) -> int:
    """Return N of a folder `chk-N`, 0 for none."""
    return 0 if checkpoint is None else int(checkpoint.name.removeprefix("chk-"))
