"""Proves what happens once per start: migrate, note the clusters, set the admin; and what is refused."""

from __future__ import annotations

import pytest
from django.contrib.auth import authenticate
from django.core.management import CommandError, call_command
from django.db.migrations.recorder import MigrationRecorder
from pytest_django import Settings

from dashboard import queries
from dashboard.config import ClusterConfig, Config

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


def test_a_database_of_a_newer_version_is_refused_and_left_alone() -> None:
    MigrationRecorder.Migration.objects.create(app="dashboard", name="9999_from_the_future")
    with pytest.raises(CommandError, match=r"newer Fenceline \(it has 9999_from_the_future\)\. Upgrade"):
        call_command("prepare")
