"""The contract of our adapter with Java's Admin, from tests/kafka, on every version."""

from __future__ import annotations

import pytest

from tests.kafka.test_transaction_admin import (
    admin,
    oracle,
    test_a_thousand_and_more_ids_are_described_at_once,
    test_an_id_that_was_initialised_again_is_described_as_java_does,
    test_an_unknown_id_is_an_answer_and_stays_unknown,
    test_lists_and_descriptions_are_java_s,
)

__all__ = [
    "admin",
    "oracle",
    "test_a_thousand_and_more_ids_are_described_at_once",
    "test_an_id_that_was_initialised_again_is_described_as_java_does",
    "test_an_unknown_id_is_an_answer_and_stays_unknown",
    "test_lists_and_descriptions_are_java_s",
]

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]
