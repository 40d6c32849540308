"""How collectors talk to a broker through confluent-kafka: properties, and errors in an operator's words."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError

from fenceline.authentication.mechanisms import CannotAuthenticate, explain_refusal
from transaction_admin.authentication.librdkafka import librdkafka_settings

log = logging.getLogger(__name__)

#: Codes that have the reason, the clearest first.
_SPECIFIC = (
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._SSL,
    KafkaError._RESOLVE,
)


#: Codes that mean only that nothing came.
_EMPTY = (KafkaError._ALL_BROKERS_DOWN,)


class CannotSee(Exception):
    """The cluster cannot be read; the text is the problem, the place and the remedy."""


class Complaints:
    """Collects librdkafka's background errors, to give a failed call its reason."""

    def __init__(self) -> None:
        self._latest: dict[int, str] = {}

    def record_error(self, error: KafkaError) -> None:
        """Remember an error; use as `error_cb`."""
        self._latest[error.code()] = error.str()

    def clear(self) -> None:
        """Drop all errors: a call has succeeded since."""
        self._latest.clear()

    def likely_reason(self, fallback: str) -> str:
        """Return the most specific error, `fallback` when there was none."""
        codes = [code for code in self._latest if code not in _EMPTY]
        by_detail = [code for code in _SPECIFIC if code in codes] + codes[::-1]
        return _tidy(self._latest[by_detail[0]]) if by_detail else fallback


class Requests:
    """Counts the requests that a librdkafka client has sent, from its own statistics."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._count = 0

    def record_statistics(self, statistics: str) -> None:
        """Take in one report; use as `stats_cb` (librdkafka's statistics: `brokers.*.tx`)."""
        for name, broker in json.loads(statistics)["brokers"].items():
            self._count += broker["tx"] - self._seen.get(name, 0)
            self._seen[name] = broker["tx"]

    def take_count(self) -> int:
        """Return how many were counted since the last call."""
        count, self._count = self._count, 0
        return count


def refused_configuration(text: str) -> CannotSee:
    """Return the error for a configuration that librdkafka does not take."""
    return CannotSee(f"the configuration is refused: {explain_refusal(text)}")


def client_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return what any client of librdkafka takes of a cluster's properties; raises `CannotSee`."""
    try:
        return librdkafka_settings(properties)
    except CannotAuthenticate as error:
        raise refused_configuration(str(error)) from error


def consumer_properties(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the properties of a consumer that only reads: no group joined, nothing committed or created.

    The first sizes make a cold start fast (measured, docs/design/kafka.md §0), the next two bound its memory;
    the group id is one that librdkafka insists on and that is never sent, since partitions are assigned by
    hand. Raises `CannotSee` for properties that cannot be used.
    """
    return {
        "client.id": "fenceline",
        "queued.min.messages": 200_000,
        "fetch.message.max.bytes": 4 * 1024 * 1024,
        "fetch.max.bytes": 16 * 1024 * 1024,
        "queued.max.messages.kbytes": 32_768,
        "statistics.interval.ms": 5_000,
        "reconnect.backoff.max.ms": 1_000,
        **client_settings(properties),
        "group.id": "fenceline",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": "read_uncommitted",
        "allow.auto.create.topics": False,
        "log_level": 0,
    }


def _tidy(message: str) -> str:
    # "…/bootstrap: SASL … (after 5ms in state …, 3 identical error(s) suppressed)": librdkafka's own matters.
    return re.sub(r" \(after \d+ms in state .*\)$", "", message)
