"""Proves that the sink writes to a broker with authentication, with the rights that docs/sink.md lists and
no other, and that a missing right is reported with the command that grants it; and on real Spark that
driver and tasks sign in by tokens of an identity provider, from options in Spark's spelling, and commit
what they write."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclOperation,
    ResourcePatternType,
    ResourceType,
)
from pyspark.sql import SparkSession

from sandbox.kafka import Broker, Sasl
from spark_pipeline.sink import register
from spark_pipeline.sink.cluster import timeout_ms
from spark_pipeline.sink.errors import SinkError
from spark_pipeline.sink.options import translate_options
from tests.acls import set_acl
from tests.brokers import PROPERTIES, create_topics
from tests.identity_provider import IdentityProvider
from tests.kafka.authentication.conftest import provider, secured
from tests.secured import USER, Secured
from tests.spark.sink.queries import FakeQuery, read, values_of
from tests.waiting import wait_for

pytestmark = pytest.mark.kafka
TOPIC = "guarded"
__all__ = ["provider", "secured"]
OAUTH = "kafkashaded.org.apache.kafka.common.security.oauthbearer"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with authentication and ACLs."""
    sasl = Sasl({"writer": "right;ful"})
    folder = tmp_path_factory.mktemp("kafka-guarded-sink")
    with Broker(folder, properties=PROPERTIES, sasl=sasl, authorizer=True) as broker:
        create_topics(broker.bootstrap, TOPIC)
        yield broker


def test_a_batch_needs_the_documented_rights(guarded: Broker, tmp_path: Path) -> None:
    query = FakeQuery(tmp_path / "checkpoint", guarded.sasl_bootstrap, TOPIC)
    query.options |= {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="writer" password="right;ful";',
    }
    # The brokers' configuration may not be seen: Kafka's own default is taken.
    assert timeout_ms(translate_options(query.options).connection, None) == 900_000
    with pytest.raises(SinkError, match=r"-lease could not .*kafka-acls --add .*--operation WRITE"):
        query.driver(0)
    prefixed = ResourcePatternType.PREFIXED
    set_acl(
        guarded,
        "writer",
        ResourceType.TRANSACTIONAL_ID,
        f"{TOPIC}-",
        AclOperation.WRITE,
        pattern=prefixed,
    )
    set_acl(guarded, "writer", ResourceType.TOPIC, TOPIC, AclOperation.WRITE)
    again = query.driver(0)
    attempt = query.begin(again, 0)
    written = wait_for(lambda: query.run_tasks(attempt), "the rights are known to the broker")
    again.commit(attempt, written)
    assert read(guarded.bootstrap, TOPIC) == values_of(0, 0, 1)
    # Only with READ on the topic its leaders report what was written to each partition.
    assert [each.written for each in query.ledger.read_state().decisions[-1].transactions] == [None, None]


@pytest.mark.spark
@pytest.mark.matrix
def test_a_query_writes_with_tokens(
    spark: SparkSession, secured: Secured, provider: IdentityProvider, tmp_path: Path
) -> None:
    topic = f"signed-in-{uuid.uuid4().hex[:8]}"
    create_topics(secured.bootstrap, topic, partitions=2)
    register(spark)
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).option("numPartitions", 2)
    writer = source.load().selectExpr("cast(value AS STRING) AS value").writeStream.queryName(topic)
    query = (
        writer.format("kafka_exactly_once")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("topic", topic)
        .option("kafka.bootstrap.servers", secured.address("BEARER"))
        .option("kafka.security.protocol", "SASL_PLAINTEXT")
        .option("kafka.sasl.mechanism", "OAUTHBEARER")
        .option("kafka.sasl.oauthbearer.token.endpoint.url", provider.token_url)
        .option("kafka.sasl.login.callback.handler.class", f"{OAUTH}.secured.OAuthBearerLoginCallbackHandler")
        .option(
            "kafka.sasl.jaas.config",
            f'{OAUTH}.OAuthBearerLoginModule required clientId="{USER}" clientSecret="rightful";',
        )
        .start()
    )
    try:
        wait_for(lambda: query.exception() or len(read(secured.bootstrap, topic)) >= 20, "a batch", 180)
        assert query.exception() is None
    finally:
        query.stop()
    values = [int(value) for value in read(secured.bootstrap, topic)]
    assert len(values) == len(set(values))
    assert set(range(20)) <= set(values)
