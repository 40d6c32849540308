"""Proves what happens once per start (migrate, note the clusters, set the admin), that the demo's channel is
added once and left to users, and that a management command finds the stack that `make up` started."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from pytest_django import Settings

import manage
from dashboard.alerts import channels, validation
from dashboard.alerts.senders import signature_header
from dashboard.config import ClusterConfig, Config
from dashboard.models import AuditEntry, Channel, Cluster, Collector, GapRecord, Token
from dashboard.runtime import leases, visibility
from dashboard.runtime.environment import sandbox_environment
from dashboard.system import access
from dashboard.system.readiness import FIRST_RELEASE
from dashboard.system.tokens import token_digest
from fenceline.alerts.engine import Alerting
from fenceline.limits import Limits
from sandbox.options import ROOT
from sandbox.receiver.server import signature_problem
from tests.cases import cases

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


def test_databases_of_a_newer_version_and_from_before_the_first_release_are_refused() -> None:
    MigrationRecorder.Migration.objects.create(app="dashboard", name="9999_from_the_future")
    with pytest.raises(CommandError, match=r"newer Fenceline \(it has 9999_from_the_future\)\. Upgrade"):
        call_command("prepare")
    MigrationRecorder.Migration.objects.filter(app="dashboard").delete()
    MigrationRecorder.Migration.objects.create(app="dashboard", name="0001_initial")
    with pytest.raises(CommandError) as refused:
        call_command("prepare")
    text = str(refused.value)
    assert text.startswith(f"The database {connection.settings_dict['NAME']} was made by a Fenceline before")
    assert f"of commit {FIRST_RELEASE} on it first" in text, "the way on"


def test_the_commit_of_the_way_on_migrates_older_databases() -> None:
    command = ["git", "show", f"{FIRST_RELEASE}:dashboard/migrations/0001_squashed.py"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if shown.returncode:
        pytest.skip(f"commit {FIRST_RELEASE} is not in this checkout's history")
    assert '("dashboard", "0001_initial")' in shown.stdout


def test_a_new_database_gets_what_the_migrations_make_one_by_one() -> None:
    single = MigrationLoader(None, replace_migrations=False)
    names = "0026_identity_issuer", "0001_squashed_0026_identity_issuer"
    one_by_one, at_once = (single.project_state(("dashboard", name)) for name in names)
    assert "dashboard" not in MigrationAutodetector(one_by_one, at_once)._detect_changes()


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


SECRET = "whsec_dGhlIHNlY3JldCBvZiB0aGUgcmVjZWl2ZXI="
FIRST, MOVED = "http://127.0.0.1:14000/a-token/", "http://127.0.0.1:14001/a-token/"
HOOK = "http://127.0.0.1:14000/hook"


@pytest.fixture(autouse=True)
def roles(db: None) -> None:
    """Make the roles, which a test before may have flushed: `prepare` then has nothing else to audit."""
    access.ensure_roles()
    AuditEntry.objects.all().delete()


Start = Callable[..., None]


@pytest.fixture
def start(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Run `prepare` as `make up` does, whose receiver is there."""

    def start(receiver: str, prepare: Callable[[], object] = lambda: call_command("prepare")) -> None:
        allowed = (receiver.split("/")[2],) if receiver else ()
        settings.FENCELINE = replace(django_settings.FENCELINE, alerts=Alerting(allow_private=allowed))
        settings.DEMO_RECEIVER = receiver
        monkeypatch.setenv("FENCELINE_DEMO_RECEIVER_SECRET", SECRET if receiver else "")
        prepare()

    return start


def events() -> list[str]:
    return list(AuditEntry.objects.order_by("pk").values_list("event", flat=True))


def test_it_is_added_once_with_the_receiver_s_secret(start: Start) -> None:
    for _ in range(2):
        start(FIRST)
    row = Channel.objects.get()
    assert (row.name, row.kind, row.url, row.secret, row.enabled) == (
        "demo-receiver", "webhook", HOOK, SECRET, True,
    )  # fmt: skip
    assert row.created_by == "make up (demo)"
    assert events() == ["channel.created"]
    assert SECRET not in str(AuditEntry.objects.get().changes)


def test_the_command_is_named_in_the_audit_log(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    # A command closes its connections, and with them the transaction of the test.
    monkeypatch.setattr(connections, "close_all", lambda: None)
    start(FIRST, lambda: manage.main(["manage.py", "prepare"]))
    row = AuditEntry.objects.get()
    assert (row.actor, row.via, row.subject_name) == ("manage.py prepare", "command", "demo-receiver")


def test_another_port_of_the_receiver_is_followed_and_a_deleted_one_is_not_added_again(start: Start) -> None:
    start(FIRST)
    start(MOVED)
    assert Channel.objects.get().url == "http://127.0.0.1:14001/hook"
    channels.delete(Channel.objects.get())
    start(FIRST)
    assert not Channel.objects.exists()
    assert events() == ["channel.created", "channel.changed", "channel.deleted"]


def test_without_its_receiver_it_is_disabled_until_that_is_back(start: Start) -> None:
    start(FIRST)
    for _ in range(2):
        start("")
        row = Channel.objects.get()
        assert (row.enabled, row.disabled_why) == (False, "Disabled by make up, which runs no receiver now.")
    start(FIRST)
    assert Channel.objects.get().enabled
    assert events() == ["channel.created", "channel.disabled", "channel.enabled"]


def test_what_users_did_to_it_stays(start: Start) -> None:
    start(FIRST)
    row = Channel.objects.get()
    channels.disable(row, by="ada")
    channels.rotate_secret(row)
    Channel.objects.update(name="mine", min_severity="critical")
    for changes in {}, {"url": "https://hooks.example/hook", "enabled": True}:
        Channel.objects.update(**changes)
        before = Channel.objects.values().get()
        for receiver in ("", MOVED if changes else FIRST):
            start(receiver)
        assert Channel.objects.values().get() == before


def test_elsewhere_there_is_none_and_a_name_that_is_taken_is_said_and_stops_no_start(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    Channel.objects.create(name="demo-receiver", kind="webhook", url=HOOK, secret=SECRET, created_by="ada")
    before = Channel.objects.values().get()
    start("")
    assert "cannot be kept" not in capsys.readouterr().out
    start(FIRST)
    assert "The channel demo-receiver cannot be kept: There is a channel" in capsys.readouterr().out
    assert Channel.objects.values().get() == before
    assert events() == []


@cases((HOOK, True), (f"{HOOK}s", False), ("https://a.example/hook", False))
def test_only_the_receiver_s_own_address_is_known_as_such(settings: Any, url: str, expected: bool) -> None:
    settings.DEMO_RECEIVER = FIRST
    assert channels.is_demo_receiver(url) is expected
    settings.DEMO_RECEIVER = ""
    assert not channels.is_demo_receiver(url)


def test_another_channel_to_the_receiver_signs_with_the_secret_that_it_knows(start: Start) -> None:
    start(FIRST)
    second = channels.add(channels.ChannelDraft("second", "webhook", HOOK), by="ada")
    assert second.secret == SECRET
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": "1795000000",
        "webhook-signature": signature_header([second.secret], "msg_1", 1_795_000_000, b"{}"),
    }
    assert signature_problem(headers, b"{}", SECRET, now_s=1_795_000_000) == ""
    other = channels.add(channels.ChannelDraft("other", "webhook", "https://hooks.example/a"), by="ada")
    assert other.secret not in ("", SECRET)


@pytest.mark.parametrize("kind", ["webhook", "alertmanager"])
def test_a_channel_whose_messages_the_receiver_would_refuse_is_not_saved(start: Start, kind: str) -> None:
    start(FIRST)
    row = channels.add(channels.ChannelDraft("a", kind, "https://hooks.example/a"), by="ada")
    with pytest.raises(validation.Unfit, match="The demo's receiver"):
        channels.change(row, channels.ChannelDraft("a", kind, HOOK))


def test_a_running_stack_is_found_and_the_environment_takes_precedence(tmp_path: Path) -> None:
    assert sandbox_environment(tmp_path / "nowhere", {}) == {}
    stack = tmp_path / "stack.json"
    stack.write_text("{")
    assert sandbox_environment(tmp_path, {}) == {}
    stack.write_text(json.dumps({"redis": "redis://r", "database": "sqlite:///d"}))
    found = sandbox_environment(tmp_path, {"REDIS_URL": "redis://mine", "DATABASE_URL": ""})
    assert found == {"REDIS_URL": "redis://mine", "DATABASE_URL": "sqlite:///d"}
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "secret_key").write_text("s3cret\n")
    (tmp_path / "fenceline.toml").write_text("")
    assert sandbox_environment(tmp_path, {}) == {
        "SECRET_KEY": "s3cret",
        "FENCELINE_CONFIG": str(tmp_path / "fenceline.toml"),
        "REDIS_URL": "redis://r",
        "DATABASE_URL": "sqlite:///d",
    }
