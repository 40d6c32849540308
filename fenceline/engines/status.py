"""What the REST APIs of Kafka Connect and Flink report of connectors and jobs, and the state stores of Kafka
Streams. Pure.

A Connect worker (Kafka 3.9 to 4.3) reports connectors, a JobManager (`/v1`, Flink 1.20 to 2.1) jobs. Topics
with rows of Debezium's connectors are told from the connector's own topics: every topic of a Debezium
connector begins with its `topic.prefix`. Settings name its own topics (`AbstractTopicNamingStrategy`,
`KafkaSchemaHistory`, `KafkaSignalChannel`), other settings until Debezium 1.9.

A store of Streams is rebuilt from its changelog topic, `APPLICATION-STORE-changelog`. A standby task follows
the changelog, so that another instance need not read all of it. Brokers report tasks only for the protocol of
KIP-1071.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fenceline.compat import StrEnum

#: Connect's names of states of a connector or a task (`AbstractStatus.State`).
CONNECTOR_STATES = ("UNASSIGNED", "RUNNING", "PAUSED", "FAILED", "RESTARTING", "STOPPED")
#: Flink's names of states of a job (`JobStatus`).
JOB_STATES = (
    "INITIALIZING", "CREATED", "RUNNING", "FAILING", "FAILED", "CANCELLING", "CANCELED", "FINISHED",
    "RESTARTING", "SUSPENDED", "RECONCILING",
)  # fmt: skip
#: Maximum characters of a failure's reason: a trace has hundreds of lines.
_LONGEST_REASON = 300
_HEARTBEAT, _TRANSACTION = "__debezium-heartbeat", "transaction"
_CHANGELOG = "-changelog"


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
            ConnectorTask(
                int(task["id"]), str(task["state"]), str(task["worker_id"]), _first_line(task.get("trace"))
            )
            for task in status["tasks"]
        ),
        _first_line(own.get("trace")),
        debezium_topics({str(key): str(value) for key, value in info["config"].items()}),
    )


def _first_line(reason: Any) -> str:
    return str(reason or "").strip().partition("\n")[0][:_LONGEST_REASON]


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
    if not config.get("connector.class", "").startswith("io.debezium.connector.") or not prefix:
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


class FlinkOperator(NamedTuple):
    """A vertex of a job's graph: chained operators."""

    name: str
    parallelism: int
    #: Flink's state: RUNNING, FAILED …
    status: str


class ReportedCheckpoint(NamedTuple):
    """A checkpoint that a JobManager reports as completed, failed or restored."""

    checkpoint_id: int
    #: The instant of its completion, failure or restore, by the JobManager's clock.
    at_ms: int
    #: From its trigger to its end; None if not reported.
    duration_ms: int | None = None
    #: The reason of its failure.
    reason: str = ""


class FlinkRun(NamedTuple):
    """One run of a job from its JobManager."""

    job_id: str
    name: str
    #: Flink's state: RUNNING, RESTARTING, FAILED …
    state: str
    started_ms: int
    #: None while it runs.
    ended_ms: int | None
    operators: tuple[FlinkOperator, ...] = ()
    #: Checkpoints since its start, by Flink's name: completed, failed, in_progress, restored.
    counts: Mapping[str, int] = {}
    completed: ReportedCheckpoint | None = None
    failed: ReportedCheckpoint | None = None
    restored: ReportedCheckpoint | None = None


def job_ids(overview: Any) -> Sequence[str]:
    """Return the ids of `/v1/jobs/overview`, the newest start first. Raises the errors of `flink_run`."""
    jobs = sorted(overview["jobs"], key=lambda job: int(job["start-time"]), reverse=True)
    return [str(job["jid"]) for job in jobs]


def flink_run(detail: Any, checkpoints: Any) -> FlinkRun:
    """Read a run from `/v1/jobs/ID` and `/v1/jobs/ID/checkpoints`. Raises ValueError, KeyError, TypeError."""
    latest = checkpoints["latest"]
    return FlinkRun(
        str(detail["jid"]),
        str(detail["name"]),
        str(detail["state"]),
        int(detail["start-time"]),
        ended if (ended := int(detail["end-time"])) >= 0 else None,
        tuple(
            FlinkOperator(str(vertex["name"]), int(vertex["parallelism"]), str(vertex["status"]))
            for vertex in detail["vertices"]
        ),
        {str(name): int(number) for name, number in checkpoints["counts"].items()},
        _completed(latest["completed"]),
        _failed(latest["failed"]),
        _restored(latest["restored"]),
    )


def _completed(checkpoint: Any) -> ReportedCheckpoint | None:
    if checkpoint is None:
        return None
    duration_ms = int(checkpoint["end_to_end_duration"])
    return ReportedCheckpoint(int(checkpoint["id"]), int(checkpoint["latest_ack_timestamp"]), duration_ms)


def _failed(checkpoint: Any) -> ReportedCheckpoint | None:
    if checkpoint is None:
        return None
    reason = _first_line(checkpoint["failure_message"])
    return ReportedCheckpoint(int(checkpoint["id"]), int(checkpoint["failure_timestamp"]), reason=reason)


def _restored(checkpoint: Any) -> ReportedCheckpoint | None:
    if checkpoint is None:
        return None
    return ReportedCheckpoint(int(checkpoint["id"]), int(checkpoint["restore_timestamp"]))


class EngineKind(StrEnum):
    """The product behind an engine's REST API."""

    FLINK = "flink"
    CONNECT = "connect"


class EngineAnswer(NamedTuple):
    url: str
    version: str
    runs: Sequence[FlinkRun] = ()
    connectors: Sequence[ConnectorStatus] = ()


class StreamsStore(NamedTuple):
    """One state store. Counts of tasks are None if brokers do not report them."""

    changelog: str
    #: Topics that its part of the topology reads, including repartition topics.
    sources: tuple[str, ...] = ()
    active: int | None = None
    standby: int | None = None
    #: Tasks that are building up, to move to another instance.
    warmup: int | None = None

    def name_in(self, application: str) -> str:
        """Return the name of the store in the application's code."""
        return self.changelog.removeprefix(f"{application}-").removesuffix(_CHANGELOG)


def described_stores(
    topology: Iterable[tuple[str, tuple[str, ...], Sequence[str]]], tasks: Sequence[Mapping[str, int]]
) -> Sequence[StreamsStore]:
    """Return the stores of a topology from brokers.

    `topology`: subtopologies, whose tasks run together (KIP-1071), with their sources and changelogs.
    `tasks`: the numbers of active, standby and warm-up tasks of all members by subtopology.
    """
    return sorted(
        StreamsStore(changelog, sources, *(numbers.get(ident, 0) for numbers in tasks))
        for ident, sources, changelogs in topology
        for changelog in changelogs
    )


def named_stores(application: str, topics: Iterable[str]) -> Sequence[StreamsStore]:
    """Return the stores that topic names show, the only source for the classic protocol."""
    start = f"{application}-"
    return sorted(
        StreamsStore(topic) for topic in topics if topic.startswith(start) and topic.endswith(_CHANGELOG)
    )
