"""Parse the connectors in the REST API of a Kafka Connect worker (Kafka 3.9 to 4.3), and tell the topics with
rows of Debezium's connectors from the connector's own topics. Pure.

Every topic of a Debezium connector begins with its `topic.prefix`. Settings name its own topics
(`AbstractTopicNamingStrategy`, `KafkaSchemaHistory`, `KafkaSignalChannel`), other settings until Debezium
1.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

#: Connect's names of states of a connector or a task (`AbstractStatus.State`).
STATES = ("UNASSIGNED", "RUNNING", "PAUSED", "FAILED", "RESTARTING", "STOPPED")
#: Maximum characters of a failure's reason: a trace has hundreds of lines.
_LONGEST_REASON = 300
_CLASSES = "io.debezium.connector."
_HEARTBEAT, _TRANSACTION = "__debezium-heartbeat", "transaction"


class ConnectorTask(NamedTuple):
    number: int
    #: Connect's state: RUNNING, FAILED, PAUSED, UNASSIGNED …
    state: str
    #: `host:port` of the worker that runs it.
    worker: str
    #: The first line of its trace if it has failed.
    reason: str = ""


class ConnectorStatus(NamedTuple):
    name: str
    #: `source` or `sink`.
    kind: str
    #: Its Java class.
    connector: str
    state: str
    worker: str
    tasks: tuple[ConnectorTask, ...]
    reason: str = ""
    #: The names of its topics, if it is a Debezium connector.
    debezium: DebeziumTopics | None = None


def connector_statuses(answer: Any) -> Sequence[ConnectorStatus]:
    """Return the connectors of `/connectors?expand=status&expand=info`, by name.

    Raises ValueError, KeyError, TypeError, AttributeError for any other answer.
    """
    return [_connector(name, parts["status"], parts["info"]) for name, parts in sorted(answer.items())]


def _connector(name: str, status: Any, info: Any) -> ConnectorStatus:
    own = status["connector"]
    return ConnectorStatus(
        str(name),
        str(status["type"]),
        str(info["config"].get("connector.class", "")),
        str(own["state"]),
        str(own["worker_id"]),
        tuple(
            ConnectorTask(int(task["id"]), str(task["state"]), str(task["worker_id"]), _first_line(task))
            for task in status["tasks"]
        ),
        _first_line(own),
        debezium_topics({str(key): str(value) for key, value in info["config"].items()}),
    )


def _first_line(status: Any) -> str:
    return str(status.get("trace") or "").strip().partition("\n")[0][:_LONGEST_REASON]


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
