"""Proves what happens once per start: migrate, note the clusters, set the admin; and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.db.migrations.recorder import MigrationRecorder
from pytest_django import Settings

from dashboard.config import ClusterConfig, Config
from dashboard.management.commands import prepare
from dashboard.models import Cluster, Collector, GapRecord, Token
from dashboard.runtime import leases, visibility
from dashboard.system.tokens import token_digest
from fenceline.limits import Limits

pytestmark = pytest.mark.django_db


def has_password(password: str) -> bool:
    return bool(get_user_model().objects.get(username="admin").check_password(password))


def test_it_saves_the_configured_clusters_and_disables_the_others(settings: Settings) -> None:
    for names in (["a", "b"], ["b", "c"]):
        clusters = {name: ClusterConfig(name, {"bootstrap.servers": "h:1"}) for name in names}
        settings.FENCELINE = Config(clusters=clusters)
        call_command("prepare")
        assert [row.name for row in visibility.configured_clusters()] == names


def test_the_password_is_set_when_the_admin_is_made_and_never_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FENCELINE_ADMIN_PASSWORD", "of the first start")
    for _ in range(2):
        call_command("prepare")
        assert has_password("of the first start")
    assert capsys.readouterr().out == ""
    admin = get_user_model().objects.get()
    assert admin.is_superuser
    admin.set_password("changed on a page")
    admin.save()
    call_command("prepare")
    assert has_password("changed on a page")
    assert "To change it: manage.py changepassword admin" in capsys.readouterr().out


def test_without_a_password_no_admin_is_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FENCELINE_ADMIN_PASSWORD", raising=False)
    call_command("prepare")
    assert not get_user_model().objects.exists()
    assert "set FENCELINE_ADMIN_PASSWORD, or run manage.py createsuperuser" in capsys.readouterr().out


def test_the_password_and_the_token_may_be_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("FENCELINE_ADMIN_PASSWORD", "FENCELINE_INGEST_TOKEN"):
        (tmp_path / name).write_text(f"{name} of a file\n")
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(f"{name}_FILE", str(tmp_path / name))
    call_command("prepare")
    assert has_password("FENCELINE_ADMIN_PASSWORD of a file")
    assert Token.objects.get().digest == token_digest("FENCELINE_INGEST_TOKEN of a file")
    monkeypatch.setenv("FENCELINE_INGEST_TOKEN", "another")
    with pytest.raises(CommandError, match="FENCELINE_INGEST_TOKEN_FILE are both set: keep one of them"):
        call_command("prepare")


def test_the_token_of_the_environment_is_replaced_at_each_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for token in ("first", "first", "second"):
        monkeypatch.setenv("FENCELINE_INGEST_TOKEN", token)
        call_command("prepare")
        assert [row.digest for row in Token.objects.filter(role="ingest")] == [token_digest(token)]


def test_a_database_of_a_newer_version_is_refused_and_unchanged() -> None:
    MigrationRecorder.Migration.objects.create(app="dashboard", name="9999_from_the_future")
    with pytest.raises(CommandError, match=r"newer Fenceline \(it has 9999_from_the_future\)\. Upgrade"):
        call_command("prepare")


def record_as_applied(*names: str) -> None:
    """Let the database have exactly these migrations of the dashboard, by its own table."""
    MigrationRecorder.Migration.objects.filter(app="dashboard").delete()
    for name in names:
        MigrationRecorder.Migration.objects.create(app="dashboard", name=name)


def test_a_database_from_before_the_squashed_migration_is_refused_with_a_remedy() -> None:
    record_as_applied("0001_initial", "0006_acting")
    refusal = r"older Fenceline \(it has 0006_acting, not 0021\w+\)\. Run `manage"
    with pytest.raises(CommandError, match=refusal):
        call_command("prepare")


def test_a_database_with_all_replaced_migrations_is_accepted() -> None:
    record_as_applied(*(name for _, name in prepare.FIRST_MIGRATION.replaces))
    call_command("prepare")
    assert MigrationRecorder.Migration.objects.filter(app="dashboard", name="0001_squashed").exists()


def test_collectors_turned_off_or_resharded_are_removed(settings: Settings) -> None:
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
