"""The sink's questions to a cluster before it starts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from fenceline.authentication.mechanisms import CannotAuthenticate, explain_refusal
from spark_pipeline.sink.errors import Refused
from spark_pipeline.sink.options import PREFIX
from spark_pipeline.sink.patience import PATIENCE_S, Outage
from transaction_admin.authentication.librdkafka import librdkafka_settings

log = logging.getLogger(__name__)

MAX_TIMEOUT = "transaction.max.timeout.ms"
#: Kafka's default, for principals without access to the brokers' configuration.
DEFAULT_MAX_TIMEOUT_MS = 900_000
#: Seconds until an answer must have come.
_ANSWER_S = 10.0
#: Client errors for unreachable brokers.
_AWAY = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
)


def timeout_ms(connection: Mapping[str, str], wanted: int | None, patience_s: float = PATIENCE_S) -> int:
    """Return the transaction timeout: the wanted one, else the brokers' maximum.

    Raises `Refused` if the brokers do not allow the wanted one.
    """
    most = _max_timeout_ms(connection, patience_s)
    if wanted is None:
        return most or DEFAULT_MAX_TIMEOUT_MS
    if wanted < 1_000:
        raise Refused(f"transaction_timeout_ms is {wanted}: a second (1000) is the least")
    if most is not None and wanted > most:
        raise Refused(
            f"transaction_timeout_ms is {wanted}, and the brokers at {connection['bootstrap.servers']} take "
            f"{most} at most ({MAX_TIMEOUT}): lower the one or raise the other"
        )
    return wanted


def make_client(connection: Mapping[str, str], **more: Any) -> AdminClient:
    """Return a client of the cluster; raises `Refused` for properties that cannot authenticate."""
    try:
        return AdminClient({**librdkafka_settings(connection), "log_level": "3"}, **more)
    except CannotAuthenticate as error:
        raise Refused(f'option "{PREFIX}{error.key}" {error.reason}') from error
    except KafkaException as error:
        raise Refused(f"the options are refused: {explain_refusal(error.args[0].str())}") from error


def _max_timeout_ms(connection: Mapping[str, str], patience_s: float) -> int | None:
    """Return the lowest maximum of the brokers, None without access to it."""
    client = make_client(connection)
    outage = Outage(patience_s)
    while True:
        try:
            return _described_maximum(client)
        except (KafkaException, KeyError, TypeError, ValueError) as error:
            away = isinstance(error, KafkaException) and error.args[0].code() in _AWAY
            if not away or outage.is_over:
                log.info("%s cannot be seen (%s): taken as %d", MAX_TIMEOUT, error, DEFAULT_MAX_TIMEOUT_MS)
                return None
            outage.wait(error)


def _described_maximum(client: AdminClient) -> int:
    brokers = client.list_topics("", timeout=_ANSWER_S).brokers
    asked = [ConfigResource(ResourceType.BROKER, str(number)) for number in brokers]
    answers = client.describe_configs(asked, request_timeout=_ANSWER_S).values()
    return min(int(answer.result(_ANSWER_S)[MAX_TIMEOUT].value) for answer in answers)
