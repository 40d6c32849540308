"""Java's consumers, of the classic and the new protocol and of share groups, over a py4j gateway."""

from collections.abc import Mapping

from py4j.java_gateway import JavaGateway

from tests.java.clients import Closing, translating

STRINGS = "org.apache.kafka.common.serialization.StringDeserializer"


class JavaConsumer(Closing):
    """A `KafkaConsumer` of strings, or with `share` a `KafkaShareConsumer`, that is subscribed to a topic."""

    def __init__(
        self,
        gateway: JavaGateway,
        bootstrap: str,
        group: str,
        topic: str,
        settings: Mapping[str, str] | None = None,
        *,
        share: bool = False,
    ) -> None:
        self._jvm = gateway.jvm
        config = self._jvm.java.util.HashMap()
        wanted = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "key.deserializer": STRINGS,
            "value.deserializer": STRINGS,
            **({} if share else {"enable.auto.commit": "false", "auto.offset.reset": "earliest"}),
            **(settings or {}),
        }
        for name, value in wanted.items():
            config.put(name, value)
        of = self._jvm.org.apache.kafka.clients.consumer
        with translating:
            self._consumer = of.KafkaShareConsumer(config) if share else of.KafkaConsumer(config)
            self._consumer.subscribe([topic])

    def poll(self, milliseconds: int = 200) -> int:
        """`poll`; return how many records it gave."""
        with translating:
            return int(self._consumer.poll(self._jvm.java.time.Duration.ofMillis(milliseconds)).count())

    def commit(self) -> None:
        """`commitSync` of where it stands."""
        with translating:
            self._consumer.commitSync()

    def close(self) -> None:
        """`close`: leaves the group."""
        with translating:
            self._consumer.close()
