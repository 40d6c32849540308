"""The fates of tests/kafka on every version: what they prove of 3.9 and 4.2 holds for the versions between.

What the log can tell depends on the version (4.0.0 tells more): a verdict that is certain is right on each.
"""

from __future__ import annotations

import pytest

from tests.kafka.test_known_transitions import test_a_hundred_known_fates_on_each_broker

__all__ = ["test_a_hundred_known_fates_on_each_broker"]

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]
