"""A cluster, leases on it, and a Python process of its own, for what happens as one starts."""

import os
import subprocess
import sys
from collections.abc import Callable, Collection

import pytest

from dashboard.runtime import collector_store, leases
from dashboard.runtime.leases import Lease
from dashboard.transactions import reconcile_store
from sandbox.options import ROOT

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


def run_python(
    program: str, *, without: Collection[str] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program with the dashboard's settings, and with these variables beside those of here."""
    plain = {name: value for name, value in os.environ.items() if name not in without}
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**plain, "DJANGO_SETTINGS_MODULE": "dashboard.settings", **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
