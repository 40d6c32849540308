"""The known outcomes of tests/kafka on every version: what they prove of 3.9 and 4.2 holds for the versions
between.

What the log distinguishes depends on the version (4.0.0 has more): a certain verdict is correct on each.
"""

import pytest

from tests.kafka.test_known_transitions import test_a_hundred_known_outcomes_are_derived_on_each_broker

__all__ = ["test_a_hundred_known_outcomes_are_derived_on_each_broker"]

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]
