"""The settings that every Kafka client of the sandbox shares, and the demo's topics."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka.cimpl import NewTopic

_silent = logging.getLogger("sandbox.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False
#: Topic -> partitions.
TOPICS: Mapping[str, int] = {
    "orders": 4,
    "orders_enriched": 4,
    "orders_per_minute": 1,
    "invoices": 2,
    "payments": 2,
    "payments_ledger": 2,
}
#: Seconds until a topic must exist on all brokers.
_CREATE_WITHIN_S = 30
#: The broker's default number of replicas: one, or three with three brokers.
_BROKER_DEFAULT = -1


def client_settings(bootstrap: str, name: str) -> dict[str, Any]:
    """Return the settings of a client labelled demo, whose caller reports its errors.

    librdkafka would print the intended failures of scenes: fencing as a fatal alarm, and refused connections.
    """
    client_id = name if name.startswith("demo") else f"demo-{name}"
    quiet = {"logger": _silent, "error_cb": lambda error: None}
    return {"bootstrap.servers": bootstrap, "client.id": client_id, **quiet}


def ensure_topics(bootstrap: str, wanted: Mapping[str, int] = TOPICS) -> None:
    """Create missing topics, and wait for them. Raises KafkaException if the broker refuses."""
    from confluent_kafka.cimpl import NewTopic

    create_topics(bootstrap, [NewTopic(name, count, _BROKER_DEFAULT) for name, count in wanted.items()])


def create_topics(bootstrap: str, wanted: Sequence[NewTopic]) -> None:
    """Create missing topics. Raises KafkaException if the broker refuses."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(client_settings(bootstrap, "setup"))
    there = admin.list_topics(timeout=_CREATE_WITHIN_S).topics
    missing = [topic for topic in wanted if topic.topic not in there]
    if not missing:
        return
    for created in admin.create_topics(missing, operation_timeout=_CREATE_WITHIN_S).values():
        try:
            created.result()
        except KafkaException as refused:
            if refused.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
