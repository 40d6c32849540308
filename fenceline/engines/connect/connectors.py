"""Parse the connectors in the REST API of a Kafka Connect worker (Kafka 3.9 to 4.3). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fenceline.engines.connect.debezium import DebeziumTopics, debezium_topics

#: Connect's names of states of a connector or a task (`AbstractStatus.State`).
STATES = ("UNASSIGNED", "RUNNING", "PAUSED", "FAILED", "RESTARTING", "STOPPED")
#: Maximum characters of a failure's reason: a trace has hundreds of lines.
_LONGEST_REASON = 300


class ConnectorTask(NamedTuple):
    """One task of a connector."""

    number: int
    #: Connect's state: RUNNING, FAILED, PAUSED, UNASSIGNED …
    state: str
    #: `host:port` of the worker that runs it.
    worker: str
    #: The first line of its trace if it has failed.
    reason: str = ""


class ConnectorStatus(NamedTuple):
    """A connector and its tasks."""

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
