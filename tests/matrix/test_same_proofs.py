"""Proofs of tests/kafka on every version: the adapter's contract with Java's Admin, random histories whose
saved facts equal those of Kafka's own tools, and known outcomes.

What the log distinguishes depends on the version (4.0.0 has more): a certain verdict is correct on each.
"""

import pytest

from tests.kafka.test_known_transitions import test_a_hundred_known_outcomes_are_derived_on_each_broker
from tests.kafka.test_oracle import test_every_id_equals_what_java_reports
from tests.kafka.test_transaction_admin import (
    admin,
    test_a_thousand_and_more_ids_are_described_at_once,
    test_an_id_that_was_initialised_again_is_described_as_java_does,
    test_an_unknown_id_is_reported_as_unknown_and_not_created,
    test_lists_and_descriptions_equal_java_s,
)

__all__ = [
    "admin",
    "test_a_hundred_known_outcomes_are_derived_on_each_broker",
    "test_a_thousand_and_more_ids_are_described_at_once",
    "test_an_id_that_was_initialised_again_is_described_as_java_does",
    "test_an_unknown_id_is_reported_as_unknown_and_not_created",
    "test_every_id_equals_what_java_reports",
    "test_lists_and_descriptions_equal_java_s",
]

pytestmark = [pytest.mark.kafka, pytest.mark.matrix, pytest.mark.django_db]
