"""Proves that Java's options become librdkafka's and none is dropped in silence, and that columns that cannot
be written are refused by name."""

import re
from collections.abc import Mapping
from contextlib import suppress

import pytest
from confluent_kafka import Producer
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from spark_pipeline.sink import names
from spark_pipeline.sink.columns import refuse_wrong
from spark_pipeline.sink.errors import Refused
from spark_pipeline.sink.factory import OPTIONS, make_options
from spark_pipeline.sink.options import CONNECTION, PREFIX, SENDING, translate_options
from spark_pipeline.sink.stream_writer import make_data_source_options
from tests.cases import cases
from transaction_admin.properties import kafka_python

SERVERS = {"kafka.bootstrap.servers": "broker:9092"}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize("prefix", ["", "a\nb", "a\\b", "x" * 201, "\u202e"])
def test_a_prefix_that_brokers_and_tools_could_not_show_is_refused(prefix: str) -> None:
    assert names.prefix_refusal(prefix)
    with pytest.raises(Refused, match='option "prefix"'):
        make_options(SERVERS, {"prefix": prefix})


@cases(
    ({"linger.ms": "20", "batch.size": "1000"}, {"linger.ms": "20", "batch.size": "1000"}),
    ({"acks": "-1", "enable.idempotence": "TRUE"}, {}),
    ({"buffer.memory": "33554432"}, {"queue.buffering.max.kbytes": "32768"}),
    ({"max.request.size": "5000000"}, {"message.max.bytes": "5000000"}),
    ({"compression.type": "zstd", "compression.zstd.level": "9"},
     {"compression.type": "zstd", "compression.level": "9"}),
    ({"send.buffer.bytes": "-1"}, {"socket.send.buffer.bytes": "0"}),
    ({"delivery.timeout.ms": "9000"}, {"message.timeout.ms": "9000"}),
    ({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
      "sasl.jaas.config": f'{SCRAM} required username="a" password="b\\"; c=\'d\'";'},
     {"security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "a",
      "sasl.password": "b\"; c='d'"}),
    ({"ssl.truststore.location": "/ca.pem", "ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM",
      "ssl.keystore.location": "/me.pem", "ssl.key.password": "s",
      "ssl.endpoint.identification.algorithm": ""},
     {"ssl.ca.location": "/ca.pem", "ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem",
      "ssl.key.password": "s", "ssl.endpoint.identification.algorithm": "none"}),
)  # fmt: skip
def test_java_s_options_become_librdkafka_s(given: Mapping[str, str], expected: Mapping[str, str]) -> None:
    found = translate_options(SERVERS | {PREFIX + key: value for key, value in given.items()})
    assert {**found.connection, **found.sending} == {"bootstrap.servers": "broker:9092", **expected}


@cases(
    ("kafka.acks", "1", "acknowledgements of all"),
    ("kafka.enable.idempotence", "false", "always idempotent"),
    ("kafka.max.in.flight.requests.per.connection", "6", "1 to 5"),
    ("kafka.transactional.id", "mine", "option prefix"),
    ("kafka.transaction.timeout.ms", "1", "transaction_timeout_ms"),
    ("kafka.key.serializer", "x", "text or bytes already"),
    ("kafka.interceptor.classes", "x", "no like in librdkafka"),
    ("kafka.ssl.engine.factory.class", "x", "no like in librdkafka"),
    ("kafka.buffer.memory", "lots", "whole number"),
    ("linger.ms", "1", "begin with 'kafka.'"),
)
def test_an_option_without_a_translation_is_refused_by_name(key: str, value: str, reason: str) -> None:
    with pytest.raises(Refused) as raised:
        translate_options(SERVERS | {key: value})
    assert f'option "{key}"' in str(raised.value)
    assert reason in str(raised.value)


def test_servers_are_needed() -> None:
    with pytest.raises(Refused, match=r'"kafka\.bootstrap\.servers" is missing'):
        translate_options({})


def test_librdkafka_accepts_every_translated_option() -> None:
    values = {
        "broker.address.family": "any", "client.dns.lookup": "use_all_dns_ips", "client.id": "me",
        "compression.codec": "gzip", "compression.type": "gzip", "debug": "generic", "log_level": "3",
        "partitioner": "murmur2", "sasl.mechanism": "PLAIN", "sasl.mechanisms": "PLAIN",
        "security.protocol": "plaintext", "bootstrap.servers": "127.0.0.1:1", "acks": "all",
        "enable.idempotence": "true", "socket.keepalive.enable": "true", "socket.nagle.disable": "true",
        "max.in.flight.requests.per.connection": "5", "request.timeout.ms": "1000", "batch.size": "1000",
        "enable.metrics.push": "true", "metadata.recovery.strategy": "none",
        "linger.ms": "5", "queue.buffering.max.ms": "5", "enable.ssl.certificate.verification": "true",
        "ssl.endpoint.identification.algorithm": "https",
    }  # fmt: skip
    files = ("ssl.", "sasl.", "https.")
    accepted: dict[str, str | int | float | bool] = {"log_level": "0"}
    for name in (*CONNECTION, *SENDING):
        if name.startswith(files) and name not in values:
            continue
        value = values.get(name, "3" if name.endswith("level") else "1000")
        with suppress(Refused):
            accepted |= translate_options(SERVERS | {PREFIX + name: value}).producer_properties
    Producer({**accepted, "bootstrap.servers": "127.0.0.1:1"})


def test_the_admin_client_accepts_every_connection_option() -> None:
    given = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "client.id": "me",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        "username=a password=b;", "metadata.max.age.ms": "1000", "reconnect.backoff.ms": "50",
        "enable.metrics.push": "false", "metadata.recovery.strategy": "none",
        "metadata.recovery.rebootstrap.trigger.ms": "300000",
    }  # fmt: skip
    found = translate_options(SERVERS | {PREFIX + key: value for key, value in given.items()})
    assert kafka_python(found.connection)["sasl_plain_password"] == "b"


HEADERS = ArrayType(StructType().add("key", "string").add("value", "binary"))


def columns(**kinds: str | DataType) -> StructType:
    schema = StructType()
    for name, kind in kinds.items():
        schema.add(name, kind)
    return schema


@cases(
    (columns(key="string"), "out", "column value is missing"),
    (columns(value="string"), None, "neither a column topic nor the option topic"),
    (columns(value="string", offset="long"), "out", "column offset is none of key, value"),
    (columns(value="long"), "out", "column value is bigint, it must be string or binary: cast it"),
    (columns(value="string", partition="long"), "out", "column partition is bigint, it must be int"),
    (columns(value="string", headers=MapType(StringType(), BinaryType())), "out",
     "array<struct<key:string,value:binary>>"),
)  # fmt: skip
def test_columns_that_cannot_be_written_are_refused(
    schema: StructType, topic: str | None, reason: str
) -> None:
    with pytest.raises(Refused, match="cannot write these rows") as raised:
        refuse_wrong(schema, topic)
    assert reason in str(raised.value)


@cases(
    (
        {"checkpointlocation": "/x", "asyncprogresstrackingenabled": "true"},
        "asyncProgressTrackingEnabled is on",
    ),
    ({"queryname": "q"}, "checkpointLocation is missing"),
    ({"checkpointlocation": "/x", "kafka.retries": "1", "retries": "1"}, 'option "retries" is none'),
    ({"checkpointlocation": "/x", "digests": "true"}, 'option "digests" is none'),
)
def test_a_data_source_refuses_unsupported_options(given: Mapping[str, str], reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        make_data_source_options(SERVERS | given)


def test_options_of_a_data_source_are_text() -> None:
    found = make_data_source_options(
        SERVERS
        | {
            "checkpointlocation": "/x",
            "accept_loss": "3, 4",
            "adopt": "True",
            "transaction_timeout_ms": "5000",
        }
    )
    assert (found.accept_loss, found.adopt, found.transaction_timeout_ms) == (frozenset({3, 4}), True, 5_000)


def test_every_option_is_taken_as_sparks_users_write_it_in_any_case() -> None:
    values: dict[str, tuple[str, object]] = {
        "topic": ("orders", "orders"), "prefix": ("p", "p"), "checkpointLocation": ("/x", "/x"),
        "transactionTimeoutMs": ("5000", 5_000), "timeoutWarningRatio": ("0.5", 0.5),
        "acceptLoss": ("3,4", frozenset({3, 4})), "adopt": ("TRUE", True), "onStep": ("a:b", "a:b"),
        "includeHeaders": ("false", False), "partitionCounts": ("False", False), "digests": ("true", True),
        "outageTimeoutMs": ("1000", 1_000),
    }  # fmt: skip
    assert set(values) == set(OPTIONS), "each option has a case here"
    snake = {name: re.sub(r"(?=[A-Z])", "_", name).lower() for name in values}
    for spelled in (snake, {name: name for name in values}, {name: name.upper() for name in values}):
        found = make_options({"Kafka.Bootstrap.Servers": "b:1", **{spelled[n]: values[n][0] for n in values}})
        expected = {n: v[1] for n, v in values.items()}
        assert {name: getattr(found, OPTIONS[name][0]) for name in values} == expected
        assert found.properties.connection == {"bootstrap.servers": "b:1"}
    typed = make_options(SERVERS, {"accept_loss": [3, 4], "adopt": True, "transaction_timeout_ms": 5_000})
    assert (typed.accept_loss, typed.adopt, typed.transaction_timeout_ms) == (frozenset({3, 4}), True, 5_000)


@cases(
    ({"adopt": "yes"}, "option \"adopt\" is 'yes': it must be true or false"),
    ({"partition_counts": "1"}, "option \"partitionCounts\" is '1': it must be true or false"),
    ({"transactionTimeoutMs": "15m"}, "\"transactionTimeoutMs\" is '15m': it must be a whole number"),
    ({"outageTimeoutMs": "-1"}, "it must be a whole number"),
    ({"timeoutWarningRatio": "80%"}, "it must be a number above 0, and 1 at most"),
    ({"timeoutWarningRatio": "0"}, "above 0"),
    ({"acceptLoss": "all"}, "it must be batch ids, 17,18"),
    ({"transactionTimoutMs": "1"}, 'option "transactionTimoutMs" is none of the sink\'s: did you mean '
     '"transactionTimeoutMs"?'),
    ({"topics": "x"}, 'did you mean "topic"?'),
    ({"kafka.linger": "1"}, 'did you mean "kafka.linger.ms"?'),
    ({"topic": "a", "TOPIC": "b"}, 'options "topic" and "TOPIC" are one, and differ: give one of them'),
    ({"transaction_timeout_ms": "1", "transactionTimeoutMs": "2"}, "give one of them"),
    ({"kafka.linger.ms": "1", "kafka.Linger.MS": "2"}, "give one of them"),
)  # fmt: skip
def test_a_wrong_option_is_refused_with_what_is_right(given: Mapping[str, str], reason: str) -> None:
    with pytest.raises(Refused) as raised:
        make_options(SERVERS | given)
    assert reason in str(raised.value)


def test_all_wrong_options_are_named_at_once() -> None:
    with pytest.raises(Refused) as raised:
        make_options({"adopt": "yes", "kafka.acks": "1"}, {"topic": "a"}, {"Topic": "b"})
    for name in "adopt", "kafka.acks", "kafka.bootstrap.servers", "Topic":
        assert f'"{name}"' in str(raised.value)


def test_all_columns_of_spark_s_own_sink_and_timestamps() -> None:
    plain = {"key": "binary", "value": "string", "topic": "string", "partition": "integer"}
    refuse_wrong(columns(**plain, headers=HEADERS, timestamp="timestamp"), None)
