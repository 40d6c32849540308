"""A cluster, and leases on it."""

from collections.abc import Callable

import pytest

from dashboard.runtime import collector_store, leases
from dashboard.runtime.leases import Lease
from dashboard.transactions import reconcile_store

NOW_MS = 1_795_000_000_000
#: What the fixture `take` is.
Take = Callable[..., Lease]


@pytest.fixture(autouse=True)
def cluster(db: None) -> str:
    """One configured cluster, `prod`."""
    collector_store.sync_clusters(["prod"])
    return "prod"


@pytest.fixture
def take(cluster: str) -> Take:
    """Take a lease that must be free."""

    def take(name: str = "transaction_state", **options: object) -> Lease:
        lease = leases.acquire(cluster, name, holder="test", now_ms=NOW_MS, **options)  # type: ignore[arg-type]
        assert lease is not None, f"the lease of {name} is not free"
        return lease

    return take


@pytest.fixture
def tail(take: Take) -> Lease:
    """The lease of what reads `__transaction_state`."""
    return take()


@pytest.fixture
def reconciler(take: Take) -> Lease:
    return take(reconcile_store.NAME)
