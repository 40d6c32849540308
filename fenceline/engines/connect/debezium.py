"""Debezium's connectors: tell topics with rows from the connector's own topics. Pure.

Every topic of a connector begins with its `topic.prefix`. Settings name its own topics
(`AbstractTopicNamingStrategy`, `KafkaSchemaHistory`, `KafkaSignalChannel`), other settings until Debezium
1.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

_CLASSES = "io.debezium.connector."
_HEARTBEAT, _TRANSACTION = "__debezium-heartbeat", "transaction"


class DebeziumTopic(StrEnum):
    """A connector's purpose of a topic."""

    ROWS = "rows of a table"
    HEARTBEAT = "heartbeat"
    SCHEMA_CHANGES = "schema changes"
    SCHEMA_HISTORY = "schema history"
    TRANSACTIONS = "transaction metadata"
    SIGNALS = "signals"


class DebeziumTopics(NamedTuple):
    """The names of a connector's topics; "" without one."""

    prefix: str
    heartbeat: str
    transactions: str
    schema_history: str = ""
    signals: str = ""


def debezium_topics(config: Mapping[str, str]) -> DebeziumTopics | None:
    """Return the topics of a connector from its configuration; None for another connector than Debezium's."""
    prefix = config.get("topic.prefix") or config.get("database.server.name") or ""
    if not config.get("connector.class", "").startswith(_CLASSES) or not prefix:
        return None
    delimiter = config.get("topic.delimiter") or "."
    heartbeat = config.get("topic.heartbeat.prefix") or config.get("heartbeat.topics.prefix") or _HEARTBEAT
    history = config.get("schema.history.internal.kafka.topic") or config.get("database.history.kafka.topic")
    signals = config.get("signal.kafka.topic") or f"{prefix}-signal"
    channels = {channel.strip() for channel in config.get("signal.enabled.channels", "").split(",")}
    return DebeziumTopics(
        prefix,
        f"{heartbeat}{delimiter}{prefix}",
        f"{prefix}{delimiter}{config.get('topic.transaction') or _TRANSACTION}",
        history or "",
        signals if "kafka" in channels else "",
    )


def topics_of_heartbeat(names: Iterable[str]) -> DebeziumTopics | None:
    """Return the topics of a connector from its heartbeat topic; None without one.

    Only for default settings, and for a task that is known to be Connect's.
    """
    for name in names:
        if name.startswith(f"{_HEARTBEAT}."):
            prefix = name.removeprefix(f"{_HEARTBEAT}.")
            return DebeziumTopics(prefix, name, f"{prefix}.{_TRANSACTION}")
    return None


def debezium_topic(topics: DebeziumTopics, name: str) -> DebeziumTopic | None:
    """Return the connector's purpose of a topic; None for a topic that is not its own."""
    own = {
        topics.heartbeat: DebeziumTopic.HEARTBEAT,
        topics.transactions: DebeziumTopic.TRANSACTIONS,
        topics.schema_history: DebeziumTopic.SCHEMA_HISTORY,
        topics.signals: DebeziumTopic.SIGNALS,
        topics.prefix: DebeziumTopic.SCHEMA_CHANGES,
    }
    if name in own:
        return own[name]
    # The delimiter is one character (`topic.delimiter`).
    prefix_and_delimiter = topics.transactions[: len(topics.prefix) + 1]
    return DebeziumTopic.ROWS if name.startswith(prefix_and_delimiter) else None
