"""Real brokers of both versions, and a JVM with Java's clients."""

from __future__ import annotations

from tests.brokers import java, kafka, kafka_39, kafka_42
from tests.kafka.doctored import watched

__all__ = ["java", "kafka", "kafka_39", "kafka_42", "watched"]
