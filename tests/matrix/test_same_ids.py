"""The random histories of tests/kafka on every version: saved facts of each id equal those of Kafka's own
tools.
"""

import pytest

from tests.kafka.test_oracle import admin, test_every_id_equals_what_java_reports

__all__ = ["admin", "test_every_id_equals_what_java_reports"]

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]
