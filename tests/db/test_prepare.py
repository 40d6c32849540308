"""Proves what happens once per start: migrate, note the clusters, set the admin; and what is refused."""

import subprocess
from pathlib import Path

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from pytest_django import Settings

from dashboard.config import ClusterConfig, Config
from dashboard.models import Cluster, Collector, GapRecord, Token
from dashboard.runtime import leases, visibility
from dashboard.system.readiness import FIRST_RELEASE
from dashboard.system.tokens import token_digest
from fenceline.limits import Limits
from sandbox.options import ROOT

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


def test_a_database_from_before_the_first_release_is_refused_with_the_way_on() -> None:
    MigrationRecorder.Migration.objects.filter(app="dashboard").delete()
    MigrationRecorder.Migration.objects.create(app="dashboard", name="0001_initial")
    with pytest.raises(CommandError) as refused:
        call_command("prepare")
    text = str(refused.value)
    assert text.startswith(f"The database {connection.settings_dict['NAME']} was made by a Fenceline before")
    assert f"of commit {FIRST_RELEASE} on it first" in text


def test_the_commit_of_the_way_on_migrates_older_databases() -> None:
    command = ["git", "show", f"{FIRST_RELEASE}:dashboard/migrations/0001_squashed.py"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if shown.returncode:
        pytest.skip(f"commit {FIRST_RELEASE} is not in this checkout's history")
    assert '("dashboard", "0001_initial")' in shown.stdout


def test_a_new_database_gets_what_the_migrations_make_one_by_one() -> None:
    single = MigrationLoader(None, replace_migrations=False)
    one_by_one = single.project_state(("dashboard", "0026_identity_issuer"))
    at_once = single.project_state(("dashboard", "0001_squashed_0026_identity_issuer"))
    changes = MigrationAutodetector(one_by_one, at_once)._detect_changes()
    assert "dashboard" not in changes


def test_collectors_turned_off_or_resharded_are_removed(settings: Settings) -> None:
    clusters = {"a": ClusterConfig("a", {"bootstrap.servers": "h:1"})}
    settings.FENCELINE = Config(clusters=clusters, limits=Limits(partitions_every_s=0))
    settings.SHARDS = 2
    call_command("prepare")
    # Nobody named a root of checkpoints, nor a place for audits.
    gone = {"transaction_state", "consumer_offsets-2", "partitions", "checkpoints", "engines", "audits"}
    left = {"transaction_state-1", "groups", "judge"}
    for name in sorted(gone | left):
        leases.acquire("a", name, holder="test", now_ms=1)
        GapRecord.objects.create(
            cluster=Cluster.objects.get(name="a"), source=name, scope="cluster", since_ms=1, reason="r"
        )
    call_command("prepare")
    assert set(Collector.objects.values_list("name", flat=True)) == left
    assert set(GapRecord.objects.filter(until_ms=None).values_list("source", flat=True)) == left
