"""Random lives of tests/kafka on every version: what is saved of each id is what Kafka's own tools say."""

from __future__ import annotations

import pytest

from tests.kafka.test_oracle import admin, test_every_id_is_what_java_says_it_is

__all__ = ["admin", "test_every_id_is_what_java_says_it_is"]

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]
