"""Proves by numbered cases which topics of Debezium's connectors are told apart, by their settings or by
their heartbeat alone, and that ids of their tasks are read as Connect's."""

import pytest

from fenceline.engines.connect import (
    DebeziumTopic,
    DebeziumTopics,
    debezium_topic,
    debezium_topics,
    topics_of_heartbeat,
)
from fenceline.kafka.producer_identity import Engine, identify_producer

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


@pytest.mark.parametrize(
    ("number", "config", "topic", "use", "why"),
    [
        (1, POSTGRES, "shop.public.orders", DebeziumTopic.ROWS, "a table"),
        (2, POSTGRES, "__debezium-heartbeat.shop", DebeziumTopic.HEARTBEAT, "by default"),
        (3, POSTGRES, "shop.transaction", DebeziumTopic.TRANSACTIONS, "by default"),
        (4, POSTGRES, "shop-signal", None, "the channel is not enabled"),
        (5, POSTGRES, "shopping.public.orders", None, "another prefix"),
        (6, POSTGRES, "__debezium-heartbeat.other", None, "another connector's"),
        (7, MYSQL, "shop", DebeziumTopic.SCHEMA_CHANGES, "the prefix itself"),
        (8, MYSQL, "schema-changes.shop", DebeziumTopic.SCHEMA_HISTORY, "as it is configured"),
        (9, MYSQL, "shop-signal", DebeziumTopic.SIGNALS, "the default of the channel"),
        (10, MYSQL | {"signal.kafka.topic": "dbz"}, "dbz", DebeziumTopic.SIGNALS, "as it is configured"),
        (11, MYSQL | {"topic.heartbeat.prefix": "hb"}, "hb.shop", DebeziumTopic.HEARTBEAT, "configured"),
        (12, MYSQL | {"topic.delimiter": "_"}, "shop_transaction", DebeziumTopic.TRANSACTIONS, "delimiter"),
        (14, OLD, "dbhistory.shop", DebeziumTopic.SCHEMA_HISTORY, "until 1.9"),
        (13, MYSQL | {"topic.delimiter": "_"}, "shop_public_orders", DebeziumTopic.ROWS, "delimiter"),
        (15, OLD, "__hb.shop", DebeziumTopic.HEARTBEAT, "until 1.9"),
    ],
)
def test_a_topic_is_told_apart(
    number: int, config: dict[str, str], topic: str, use: DebeziumTopic | None, why: str
) -> None:
    topics = debezium_topics(config)
    assert topics is not None
    assert debezium_topic(topics, topic) is use, f"case {number}: {why}"


@pytest.mark.parametrize(
    "config",
    [{}, {"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector"},
     {"connector.class": "io.debezium.connector.mysql.MySqlConnector"}, {"topic.prefix": "shop"}],
)  # fmt: skip
def test_any_other_connector_is_none_of_its(config: dict[str, str]) -> None:
    assert debezium_topics(config) is None


def test_a_heartbeat_shows_the_prefix() -> None:
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
