"""Proves that many rows are updated at once on both databases: JSON, truth, instants, and nothing beside."""

from datetime import UTC, datetime

import pytest

from dashboard.models import Alert, AlertChange
from dashboard.runtime.sql import update_rows
from tests.db import factories
from tests.db.conftest import NOW_MS

pytestmark = pytest.mark.sql

AT = datetime(2026, 11, 29, 17, 0, 0, 123_456, UTC)


def changes(number: int) -> list[AlertChange]:
    alert = Alert.objects.create(
        cluster=factories.prod(), fingerprint=b"f", rule="hanging", subject="partition:orders-0",
        severity="warning", since_ms=NOW_MS, seen_ms=NOW_MS, rev=1,
    )  # fmt: skip
    return [
        AlertChange.objects.create(alert=alert, old="pending", new="firing", at_ms=at_ms)
        for at_ms in range(number)
    ]


def test_the_named_columns_of_each_row_are_written() -> None:
    rows = changes(3)
    for row in rows[:2]:
        row.fates, row.processed_at, row.new = [[row.pk, "ü% %s", None, True]], AT, "resolved"
    update_rows(reversed(rows[:2]), ["fates", "processed_at"])
    found = AlertChange.objects.order_by("pk").values_list("fates", "processed_at", "new")
    expected = [*(([[row.pk, "ü% %s", None, True]], AT, "firing") for row in rows[:2]), ([], None, "firing")]
    assert list(found) == expected
    update_rows([], ["fates"])


def test_what_is_unknown_is_written_as_null() -> None:
    rows = changes(1)
    rows[0].processed_at = AT
    update_rows(rows, ["processed_at"])
    rows[0].processed_at = None
    update_rows(rows, ["processed_at"])
    assert AlertChange.objects.filter(processed_at=None).count() == 1
