"""Debezium's connectors: which of their topics holds rows, and which are of their own. Pure.

Every topic of a connector begins with its `topic.prefix`; those that it has for itself are named by settings
(`AbstractTopicNamingStrategy`, `KafkaSchemaHistory`, `KafkaSignalChannel`), until Debezium 1.9 by others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

_CLASSES = "io.debezium.connector."
_HEARTBEAT, _TRANSACTION = "__debezium-heartbeat", "transaction"


class DebeziumTopic(StrEnum):
    """What a connector uses a topic for."""

    ROWS = "rows of a table"
    HEARTBEAT = "heartbeat"
    SCHEMA_CHANGES = "schema changes"
    SCHEMA_HISTORY = "schema history"
    TRANSACTIONS = "transaction metadata"
    SIGNALS = "signals"


class DebeziumTopics(NamedTuple):
    """How the topics of a connector are called; "" where it has none."""

    prefix: str
    heartbeat: str
    transactions: str
    schema_history: str = ""
    signals: str = ""


def debezium_topics(config: Mapping[str, str]) -> DebeziumTopics | None:
    """Return the topics of a connector by its configuration; None for one that is not Debezium's."""
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
    """Return the topics of a connector by the heartbeat among some topics; None where none is one.

    Only where settings have their defaults, and for a task that is known to be Connect's.
    """
    for name in names:
        if name.startswith(f"{_HEARTBEAT}."):
            prefix = name.removeprefix(f"{_HEARTBEAT}.")
            return DebeziumTopics(prefix, name, f"{prefix}.{_TRANSACTION}")
    return None


def debezium_topic(topics: DebeziumTopics, name: str) -> DebeziumTopic | None:
    """Return what a connector uses a topic for; None for one that is not its own."""
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
