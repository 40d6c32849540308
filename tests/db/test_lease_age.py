"""Proves that a worker is healthy while its own leases are renewed, whoever renews them, and no longer."""

from datetime import timedelta

import pytest
from django.db.models.functions import Now
from pytest_django import Settings

from dashboard.config import ClusterConfig, Config
from dashboard.runtime import collector_names, leases
from dashboard.runtime.lease_age import LATE_AFTER_S, is_of, main
from dashboard.runtime.leases import Lease
from sandbox.options import ROOT
from tests.db.conftest import Take
from tests.db.processes import run_python


@pytest.fixture(autouse=True)
def watching(settings: Settings) -> None:
    settings.FENCELINE = Config(clusters={"prod": ClusterConfig("prod", {"bootstrap.servers": "h:1"})})


def expire(lease: Lease, seconds: float) -> None:
    leases.collector_row(lease).update(expires_at=Now() - timedelta(seconds=seconds))


def test_a_worker_is_as_healthy_as_its_oldest_lease(take: Take, capsys: pytest.CaptureFixture[str]) -> None:
    tail, judge = take(), take(name="judge")
    assert main(["tail-0"]) == main(["pollers"]) == 0
    expire(tail, LATE_AFTER_S / 2)
    assert main(["tail-0"]) == 0, "another slice may be about to begin"
    expire(tail, LATE_AFTER_S + 3600)
    capsys.readouterr()
    assert main(["tail-0"]) == 1
    assert capsys.readouterr().out.startswith("tail-0: the lease of prod/transaction_state expired 36")
    assert main(["pollers"]) == 0
    expire(judge, LATE_AFTER_S + 3600)
    assert main(["pollers"]) == 1


def test_a_worker_that_never_ran_is_not_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tail-0"]) == 1
    assert capsys.readouterr().out == "tail-0: no collector of it has ever run\n"


def test_without_clusters_a_worker_needs_no_lease(settings: Settings) -> None:
    settings.FENCELINE = Config()
    assert main(["pollers"]) == 0


@pytest.mark.parametrize("shards", [1, 2, 12])
def test_each_collector_belongs_to_one_worker(shards: int) -> None:
    workers = [*(f"tail-{shard}" for shard in range(shards)), "pollers"]
    tails = {
        collector_names.tail_name(shard, shards, of): f"tail-{shard}"
        for shard in range(shards)
        for of in (collector_names.TAIL, collector_names.OFFSETS)
    }
    others = dict.fromkeys(
        (
            collector_names.JUDGE,
            collector_names.RECONCILE,
            collector_names.PARTITIONS,
            collector_names.ALERTS,
        ),
        "pollers",
    )
    for name, worker in (tails | others).items():
        assert [each for each in workers if is_of(each, name, shards)] == [worker], name


def test_it_loads_no_app_and_names_an_unreachable_database() -> None:
    program = (
        "import sys; from dashboard.runtime.lease_age import main; status = main(['tail-0']); "
        "sys.exit(status if 'dashboard.models' not in sys.modules else 'apps are loaded')"
    )
    config = str(ROOT / "compose" / "fenceline.toml")
    done = run_python(program, FENCELINE_CONFIG=config, DATABASE_URL="postgres://127.0.0.1:1/none")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("the database cannot be used: ")
