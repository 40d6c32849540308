"""Proves that no option of Java's producer is refused as having no like that librdkafka has by the same name,
and that librdkafka knows every name that ours are translated to."""

import pytest
from confluent_kafka import KafkaException, Producer
from py4j.java_gateway import JavaGateway

from fenceline.authentication.java import CONNECTION, STORE_KEYS, Translate
from fenceline.authentication.mechanisms import TOKEN_CALLBACK, BadOption
from spark_pipeline.sink.options import SENDING

pytestmark = pytest.mark.kafka


def is_known(name: str) -> bool:
    """Whether librdkafka has a property of this name."""
    try:
        Producer({name: "x", "log_level": 0})
    except KafkaException as error:
        return "No such configuration property" not in error.args[0].str()
    return True


def test_what_both_know_is_taken_or_refused_with_its_own_reason(java: JavaGateway) -> None:
    names = [str(name) for name in java.jvm.org.apache.kafka.clients.producer.ProducerConfig.configNames()]
    assert len(names) > 50
    assert [name for name in names if is_known(name) and name not in CONNECTION | SENDING] == []


def test_every_property_that_is_translated_to_is_librdkafka_s() -> None:
    own = {TOKEN_CALLBACK, *STORE_KEYS}
    found = {key for to in CONNECTION.values() for key in _targets(to) if key not in own}
    assert [key for key in sorted(found) if not is_known(key)] == []


def _targets(translate: Translate) -> set[str]:
    try:
        return set(translate("x"))
    except BadOption:
        return set()
