"""Proves what happens once per start: migrate, note the clusters, set the admin; and what is refused."""

from __future__ import annotations

import pytest
from django.contrib.auth import authenticate
from django.core.management import CommandError, call_command
from django.db.migrations.recorder import MigrationRecorder
from pytest_django import Settings

from dashboard import leases, queries
from dashboard.api.auth import digest
from dashboard.config import ClusterConfig, Config
from dashboard.models import Cluster, Collector, GapRecord, Token
from fenceline.limits import Limits

pytestmark = pytest.mark.django_db


def test_it_notes_the_configured_clusters_and_forgets_the_others(settings: Settings) -> None:
    for names in (["a", "b"], ["b", "c"]):
        clusters = {name: ClusterConfig(name, {"bootstrap.servers": "h:1"}) for name in names}
        settings.FENCELINE = Config(clusters=clusters)
        call_command("prepare")
        assert [row.name for row in queries.clusters()] == names


def test_the_admin_has_the_password_of_the_last_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for password in ("first", "first", "second"):
        monkeypatch.setenv("FENCELINE_ADMIN_PASSWORD", password)
        call_command("prepare")
        assert authenticate(username="admin", password=password) is not None
    assert authenticate(username="admin", password="first") is None


def test_without_a_password_no_admin_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FENCELINE_ADMIN_PASSWORD", raising=False)
    call_command("prepare")
    assert authenticate(username="admin", password="") is None


def test_the_token_of_the_environment_is_the_last_start_s(monkeypatch: pytest.MonkeyPatch) -> None:
    for token in ("first", "first", "second"):
        monkeypatch.setenv("FENCELINE_INGEST_TOKEN", token)
        call_command("prepare")
        assert [row.digest for row in Token.objects.filter(role="ingest")] == [digest(token)]


def test_a_database_of_a_newer_version_is_refused_and_left_alone() -> None:
    MigrationRecorder.Migration.objects.create(app="dashboard", name="9999_from_the_future")
    with pytest.raises(CommandError, match=r"newer Fenceline \(it has 9999_from_the_future\)\. Upgrade"):
        call_command("prepare")


def test_what_is_turned_off_or_sharded_anew_is_no_collector_any_more(settings: Settings) -> None:
    clusters = {"a": ClusterConfig("a", {"bootstrap.servers": "h:1"})}
    settings.FENCELINE = Config(clusters=clusters, limits=Limits(partitions_every_s=0))
    settings.SHARDS = 2
    call_command("prepare")
    # Nobody named a root of checkpoints.
    gone = {"transaction_state", "consumer_offsets-2", "partitions", "checkpoints"}
    left = {"transaction_state-1", "groups", "judge"}
    for name in sorted(gone | left):
        leases.acquire("a", name, holder="test", now_ms=1)
        GapRecord.objects.create(
            cluster=Cluster.objects.get(name="a"), source=name, scope="cluster", since_ms=1, reason="r"
        )
    call_command("prepare")
    assert set(Collector.objects.values_list("name", flat=True)) == left
    assert set(GapRecord.objects.filter(until_ms=None).values_list("source", flat=True)) == left
