"""Proves that alerts, their changes and messages are deleted once they have ended long enough ago."""

from datetime import UTC, datetime

import pytest

from dashboard.alerts import evaluate as evaluate_alerts
from dashboard.models import Alert, AlertChange, Delivery
from dashboard.runtime import retention
from fenceline.limits import Retention
from tests.db import factories
from tests.db.conftest import Take
from tests.db.scenarios import AlertScenario, channel, finding

pytestmark = pytest.mark.sql

DAY_S = 86_400
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def test_ended_alerts_are_deleted_and_firing_ones_stay(take: Take) -> None:
    scenario = AlertScenario(take)
    scenario.tick()
    channel(group_by=["subject"])
    stays, goes = finding("group:stays"), finding("group:goes")
    scenario.run_seconds(8, stays, goes)
    scenario.run_seconds(10, stays)
    pruner = take(retention.NAME)
    # Rows are old by their own clock; messages by the database's.
    Delivery.objects.update(created_at=LONG_AGO)

    def prune(days: float) -> tuple[set[str], int, int]:
        at_ms = scenario.now_ms + int(days * DAY_S * 1_000)
        factories.prune_all(pruner, Retention(closed_d=3), at_ms)
        return (
            set(Alert.objects.values_list("subject", flat=True)),
            AlertChange.objects.count(),
            Delivery.objects.count(),
        )

    # Of the messages only that one is left on which its group stands.
    assert prune(2) == ({"group:stays", "group:goes"}, 3, 1)
    # So is what goes on, while what was told of it is settled.
    assert prune(4) == ({"group:stays"}, 0, 1)
    scenario.run_seconds(10)
    Delivery.objects.update(created_at=LONG_AGO)
    assert prune(8) == (set(), 0, 0)


def test_unsettled_alerts_and_unsent_messages_stay(take: Take) -> None:
    scenario = AlertScenario(take)
    scenario.tick()
    channel()
    scenario.run_seconds(4, finding())
    Delivery.objects.update(state="pending", created_at=LONG_AGO)
    for _ in range(5):
        scenario.evaluate()
        evaluate_alerts.evaluate_alerts(scenario.alerts, now_ms=scenario.now_ms)
    pruner = take(retention.NAME)
    factories.prune_all(pruner, Retention(closed_d=3), scenario.now_ms + 9 * DAY_S * 1_000)
    assert (Alert.objects.count(), Delivery.objects.count()) == (1, 1)
    assert AlertChange.objects.filter(processed_at=None).count() == 1
