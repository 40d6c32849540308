"""Proves that a writer whose lease was taken over writes nothing: no row, no point, no revision."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from django.apps import apps

from dashboard.runtime import leases
from dashboard.runtime.leases import LeaseLost
from tests.db.conftest import NOW_MS
from tests.db.writers import WRITERS
from tests.db.writers.cluster import Commits, Coordinators, Engines, Groups, Partitions, Trouble
from tests.db.writers.operators import Alerts, Evaluations
from tests.db.writers.transactions import Audits, Checkpoints, Corrections, Recoveries, Tail

pytestmark = pytest.mark.sql

#: Writers with a lease, but for retention, which has rows of its own to delete: test_retention.py.
LEASED = (
    Alerts,
    Audits,
    Checkpoints,
    Commits,
    Coordinators,
    Corrections,
    Engines,
    Evaluations,
    Groups,
    Partitions,
    Recoveries,
    Tail,
    Trouble,
)


def stored_rows() -> Mapping[str, object]:
    """Return all rows of the dashboard's tables."""
    tables = apps.get_app_config("dashboard").get_models()
    return {table.__name__: list(table.objects.order_by("pk").values()) for table in tables}


def test_every_writer_with_a_lease_is_among_them(cluster: str) -> None:
    leased = {type(writer) for make in WRITERS if hasattr(writer := make(), "lease")}
    assert {kind.__name__ for kind in leased} - {"Prune"} == {kind.__name__ for kind in LEASED}


@pytest.mark.parametrize("kind", LEASED)
def test_a_fenced_writer_writes_nothing(cluster: str, kind: Callable[..., Any]) -> None:
    writer = kind(0) if kind in (Commits, Tail) else kind()
    findings = writer if kind is Evaluations else Evaluations()
    for _ in range(3):
        # What alerts are made of, so that each writer has something to write.
        findings()
        writer()
    findings()
    taken = leases.acquire(
        cluster, writer.lease.name, holder="another", now_ms=NOW_MS, previous=writer.lease.token
    )
    assert taken is not None
    before = stored_rows()
    with pytest.raises(LeaseLost):
        writer()
    assert stored_rows() == before
