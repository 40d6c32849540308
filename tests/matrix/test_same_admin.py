"""The contract of the adapter with Java's Admin, from tests/kafka, on every version."""

import pytest

from tests.kafka.test_transaction_admin import (
    admin,
    oracle,
    test_a_thousand_and_more_ids_are_described_at_once,
    test_an_id_that_was_initialised_again_is_described_as_java_does,
    test_an_unknown_id_is_reported_as_unknown_and_not_created,
    test_lists_and_descriptions_equal_java_s,
)

__all__ = [
    "admin",
    "oracle",
    "test_a_thousand_and_more_ids_are_described_at_once",
    "test_an_id_that_was_initialised_again_is_described_as_java_does",
    "test_an_unknown_id_is_reported_as_unknown_and_not_created",
    "test_lists_and_descriptions_equal_java_s",
]

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]
