"""Proves what is read of Flink, Connect and Kafka Streams: of REST APIs from answers of real ones
(tests/data/capture_engines.py); topics of Debezium's connectors, and state stores of Streams."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.engines.status import (
    ConnectorTask,
    DebeziumTopic,
    DebeziumTopics,
    FlinkOperator,
    StreamsStore,
    connector_statuses,
    debezium_topic,
    debezium_topics,
    described_stores,
    flink_run,
    job_ids,
    named_stores,
    topics_of_heartbeat,
)
from fenceline.kafka.producer_identity import Engine, identify_producer
from tests.cases import cases

ANSWERS = Path(__file__).parents[1] / "data" / "engines"
UNEXPECTED = (ValueError, KeyError, TypeError, AttributeError)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda some: st.lists(some) | st.dictionaries(st.text(), some),
    max_leaves=10,
)


def answers(name: str) -> dict[str, Any]:
    return dict(json.loads((ANSWERS / f"{name}.json").read_text()))


def status(**fields: Any) -> dict[str, Any]:
    found = answers("connect-4.2")["/connectors?expand=status&expand=info"]
    found["orders-source"]["status"] |= fields
    return dict(found)


@pytest.mark.parametrize("version", ["1.20", "2.1"])
def test_a_running_job_is_read_with_its_operators_and_checkpoints(version: str) -> None:
    found = answers(f"flink-{version}")
    (ident,) = job_ids(found["/v1/jobs/overview"])
    run = flink_run(found[f"/v1/jobs/{ident}"], found[f"/v1/jobs/{ident}/checkpoints"])
    assert (run.job_id, run.name, run.state, run.ended_ms) == (ident, "copy", "RUNNING", None)
    assert run.operators == (FlinkOperator("Source: in -> Sink: Writer -> Sink: Committer", 2, "RUNNING"),)
    assert run.completed is not None
    assert run.counts["completed"] >= run.completed.checkpoint_id >= 2
    assert run.completed.at_ms > run.started_ms
    assert (run.failed, run.restored) == (None, None)


def test_a_failed_and_a_restored_checkpoint_are_read() -> None:
    found = answers("flink-2.1")
    (ident,) = job_ids(found["/v1/jobs/overview"])
    checkpoints = found[f"/v1/jobs/{ident}/checkpoints"]
    message = "Checkpoint expired before completing.\n\tat org.apache…"
    checkpoints["latest"] |= {
        "failed": {"id": 7, "failure_timestamp": 12, "failure_message": message},
        "restored": {"id": 5, "restore_timestamp": 9},
    }
    run = flink_run(found[f"/v1/jobs/{ident}"] | {"end-time": 99}, checkpoints)
    assert run.failed is not None
    assert (run.failed.checkpoint_id, run.failed.at_ms) == (7, 12)
    assert run.failed.reason == "Checkpoint expired before completing."
    assert run.restored is not None
    assert (run.restored.checkpoint_id, run.ended_ms) == (5, 99)


def test_a_connector_is_read_with_its_tasks_and_the_first_line_of_a_failed_one_s_trace() -> None:
    (found,) = connector_statuses(status())
    assert (found.name, found.kind, found.state) == ("orders-source", "source", "RUNNING")
    assert found.connector.endswith("MirrorSourceConnector")
    assert [(each.number, each.state) for each in found.tasks] == [(0, "RUNNING"), (1, "RUNNING")]
    trace = "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized\n\tat …\n"
    task = {"id": 3, "state": "FAILED", "worker_id": "w:1", "trace": trace}
    (found,) = connector_statuses(status(tasks=[task]))
    assert found.tasks == (ConnectorTask(3, "FAILED", "w:1", trace.partition("\n")[0]),)


@given(JSON)
def test_any_other_answer_is_an_error_that_is_expected(answer: Any) -> None:
    for read in (job_ids, connector_statuses, lambda some: flink_run(some, some)):
        try:
            read(answer)
        except UNEXPECTED:
            continue
        assert answer in ({}, {"jobs": []})


POSTGRES = {"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "topic.prefix": "shop"}
MYSQL = {
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "topic.prefix": "shop",
    "schema.history.internal.kafka.topic": "schema-changes.shop",
    "signal.enabled.channels": "source, kafka",
}
OLD = {
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "database.server.name": "shop",
    "database.history.kafka.topic": "dbhistory.shop",
    "heartbeat.topics.prefix": "__hb",
}


@cases(
    (POSTGRES, "shop.public.orders", DebeziumTopic.ROWS, "a table"),
    (POSTGRES, "__debezium-heartbeat.shop", DebeziumTopic.HEARTBEAT, "by default"),
    (POSTGRES, "shop.transaction", DebeziumTopic.TRANSACTIONS, "by default"),
    (POSTGRES, "shop-signal", None, "the channel is not enabled"),
    (POSTGRES, "shopping.public.orders", None, "another prefix"),
    (POSTGRES, "__debezium-heartbeat.other", None, "another connector's"),
    (MYSQL, "shop", DebeziumTopic.SCHEMA_CHANGES, "the prefix itself"),
    (MYSQL, "schema-changes.shop", DebeziumTopic.SCHEMA_HISTORY, "as it is configured"),
    (MYSQL, "shop-signal", DebeziumTopic.SIGNALS, "the default of the channel"),
    (MYSQL | {"signal.kafka.topic": "dbz"}, "dbz", DebeziumTopic.SIGNALS, "as it is configured"),
    (MYSQL | {"topic.heartbeat.prefix": "hb"}, "hb.shop", DebeziumTopic.HEARTBEAT, "configured"),
    (MYSQL | {"topic.delimiter": "_"}, "shop_transaction", DebeziumTopic.TRANSACTIONS, "delimiter"),
    (OLD, "dbhistory.shop", DebeziumTopic.SCHEMA_HISTORY, "until 1.9"),
    (MYSQL | {"topic.delimiter": "_"}, "shop_public_orders", DebeziumTopic.ROWS, "delimiter"),
    (OLD, "__hb.shop", DebeziumTopic.HEARTBEAT, "until 1.9"),
)
def test_a_topic_is_told_apart(
    config: dict[str, str], topic: str, use: DebeziumTopic | None, why: str
) -> None:
    topics = debezium_topics(config)
    assert topics is not None
    assert debezium_topic(topics, topic) is use, why


@cases({}, {"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector"},
     {"connector.class": "io.debezium.connector.mysql.MySqlConnector"}, {"topic.prefix": "shop"},
)  # fmt: skip
def test_any_other_connector_is_none_of_its_and_a_heartbeat_shows_the_prefix(config: dict[str, str]) -> None:
    assert debezium_topics(config) is None
    topics = topics_of_heartbeat(["shop.public.orders", "__debezium-heartbeat.shop"])
    assert topics == DebeziumTopics("shop", "__debezium-heartbeat.shop", "shop.transaction")
    assert topics_of_heartbeat(["shop.public.orders", "debezium-heartbeat"]) is None


@pytest.mark.parametrize("connector", ["shop", "debezium-mysql-1", "inventory-connector", "pg-outbox-2"])
def test_a_task_is_connects_once_its_leader_is_known(connector: str) -> None:
    task = f"connect-cdc-{connector}-0"
    found = identify_producer(task, (), {"connect-cluster-connect-cdc"})
    assert found is not None
    assert found.engine is Engine.KAFKA_CONNECT
    assert dict(found.parts) == {"connector": connector, "task": "0"}
    assert identify_producer(task, (), ()) is None


def test_state_stores_follow_from_a_description_with_their_tasks_and_from_names_without() -> None:
    topology = [
        ("0", ("orders",), ()),
        ("1", ("shop-by-user-repartition",), ("shop-totals-changelog", "shop-counts-changelog")),
    ]
    tasks = ({"0": 3, "1": 4}, {"1": 2}, {})
    assert described_stores(topology, tasks) == [
        StreamsStore("shop-counts-changelog", ("shop-by-user-repartition",), 4, 2, 0),
        StreamsStore("shop-totals-changelog", ("shop-by-user-repartition",), 4, 2, 0),
    ]
    topics = ["shop-counts-changelog", "shop-by-user-repartition", "shopping-x-changelog", "shop-", "other"]
    (store,) = named_stores("shop", topics)
    assert store == StreamsStore("shop-counts-changelog")
    assert store.name_in("shop") == "counts"
    assert named_stores("", ["-x-changelog"]) == [StreamsStore("-x-changelog")]
