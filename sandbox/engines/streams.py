"""An instance of a Kafka Streams application in a JVM of its own, driven by py4j: it can be paused."""

import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaGateway

from sandbox import SandboxError, wait_until
from sandbox.engines.gateway import java_gateway
from sandbox.java import fetch_jars, find_java

STRING = "org.apache.kafka.common.serialization.Serdes$StringSerde"
_CLIENT = re.compile(r"-([0-9a-f-]{36})-StreamThread-\d+")


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
