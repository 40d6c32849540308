"""Proves that a silence suppresses a renamed rule's alert under both of its names."""

from __future__ import annotations

import pytest

from tests.db.scenarios import AlertScenario, alert, channel, finding, message_reasons, scenario, silence

__all__ = ["scenario"]


@pytest.mark.parametrize("written", ["late", "coordinator_overdue"])
def test_a_silence_matches_both_names_of_a_rule(scenario: AlertScenario, written: str) -> None:
    channel()
    silence(60, scenario, value=written)
    scenario.run_seconds(5, finding(rule="coordinator_overdue"))
    assert (alert().state, alert().quiet[0][0], message_reasons()) == ("firing", "silenced", [])
