"""Proves that a test marked `sql` runs on each database that it names, its threads as well, and others on
none of them by mistake."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from dashboard.models import Cluster

pytestmark = pytest.mark.django_db(transaction=True)
whole_run = pytest.mark.skipif(
    os.environ["DATABASE_URL"].startswith("postgres"), reason="this whole run is on PostgreSQL"
)


def vendor() -> str:
    """Return what a connection of this thread's own leads to."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM dashboard_cluster")
            assert cursor.fetchone() == (1,)
        return connection.vendor
    finally:
        connection.close()


@pytest.mark.sql
def test_a_marked_test_runs_on_the_database_in_its_name(request: pytest.FixtureRequest) -> None:
    Cluster.objects.create(name="prod", rev=1)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(vendor).result()
    assert found == connection.vendor == request.node.callspec.params["database"]


@whole_run
def test_all_others_stay_where_they_were() -> None:
    assert connection.vendor == "sqlite"
    assert not Cluster.objects.exists()
