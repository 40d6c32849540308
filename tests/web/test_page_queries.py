"""Proves that no page asks the database once for each of many rows."""

from typing import Any

import pytest
from django.test import Client

from dashboard.models import Cluster
from sandbox.scenes.player import ScenePlayer
from tests.cases import cases
from tests.web import factories, scenarios, series

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def prod(rows_of_module: None) -> Cluster:
    of = factories.cluster()
    scenarios.busy_transactions(of, 120)
    scenarios.busy_partitions(of)
    series.hour(of)
    return of


@cases(
    # Who looks, what they may, what fires, and how many incidents are open.
    ("/", 40),
    ("/transactions", 18),
    # Each source by itself.
    ("/events", 42),
    # Each source by itself, what lasted, and figures.
    ("/timeline", 46),
    # What applications write, groups read, queries read and write, and what blocks them.
    ("/pipelines", 32),
    ("/system", 16),
    ("/transactions?state=open", 21),
    ("/transactions/prod/payments-ledger-7", 36),
    ("/partitions", 16),
    ("/partitions/prod/payments/0", 24),
    ("/groups", 17),
    ("/groups/prod/billing", 22),
    ("/recoveries", 15),
    ("/scenes", 14),
)
def test_a_page_asks_the_database_a_bounded_number_of_times(
    page: Client,
    prod: Cluster,
    sandbox: ScenePlayer,
    django_assert_max_num_queries: Any,
    name: str,
    most: int,
) -> None:
    with django_assert_max_num_queries(most):
        assert page.get(name).status_code == 200
