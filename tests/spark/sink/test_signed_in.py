"""Proves on real Spark that driver and tasks of the sink sign in by tokens of an identity provider, from
options in Spark's spelling, and commit what they write."""

import uuid
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_pipeline.sink import register
from tests.brokers import create_topics
from tests.identity_provider import IdentityProvider
from tests.kafka.authentication.conftest import provider, secured
from tests.secured import USER, Secured
from tests.spark.sink.queries import read
from tests.waiting import wait_for

__all__ = ["provider", "secured"]
pytestmark = [pytest.mark.kafka, pytest.mark.spark]

OAUTH = "kafkashaded.org.apache.kafka.common.security.oauthbearer"


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
