"""Proves that the demo's channel is added once and audited, sends to its receiver, and is left to users."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.management import call_command

import manage
from dashboard.alerts import channels, validation
from dashboard.alerts.senders import signature_header
from dashboard.models import AuditEntry, Channel
from dashboard.system import access
from fenceline.alerts.limits import Alerting
from sandbox.receiver.server import signature_problem

pytestmark = pytest.mark.django_db

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


def test_the_command_is_named_in_the_audit_log(start: Start) -> None:
    start(FIRST, lambda: manage.main(["manage.py", "prepare"]))
    row = AuditEntry.objects.get()
    assert (row.actor, row.via, row.subject_name) == ("manage.py prepare", "command", "demo-receiver")


def test_a_deleted_one_is_not_added_again(start: Start) -> None:
    start(FIRST)
    channels.delete(Channel.objects.get())
    start(FIRST)
    assert not Channel.objects.exists()
    assert events() == ["channel.created", "channel.deleted"]


def test_another_port_of_the_receiver_is_followed(start: Start) -> None:
    start(FIRST)
    start(MOVED)
    assert Channel.objects.get().url == "http://127.0.0.1:14001/hook"
    assert events() == ["channel.created", "channel.changed"]


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
    before = Channel.objects.values().get()
    for receiver in ("", FIRST):
        start(receiver)
    assert Channel.objects.values().get() == before


def test_one_that_users_gave_another_address_is_theirs(start: Start) -> None:
    start(FIRST)
    Channel.objects.update(url="https://hooks.example/hook")
    for receiver in ("", MOVED):
        start(receiver)
    row = Channel.objects.get()
    assert (row.url, row.enabled) == ("https://hooks.example/hook", True)


def test_elsewhere_there_is_none_and_channels_of_users_stay_as_they_are(start: Start) -> None:
    Channel.objects.create(name="demo-receiver", kind="webhook", url=HOOK, secret=SECRET, created_by="demo")
    before = Channel.objects.values().get()
    start("")
    assert Channel.objects.values().get() == before
    assert events() == []


def test_a_name_that_is_taken_is_said_and_stops_no_start(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    Channel.objects.create(name="demo-receiver", kind="webhook", url=HOOK, secret=SECRET, created_by="ada")
    start(FIRST)
    assert "The channel demo-receiver cannot be kept: There is a channel" in capsys.readouterr().out
    assert Channel.objects.get().created_by == "ada"


@pytest.mark.parametrize(
    ("url", "expected"), [(HOOK, True), (f"{HOOK}s", False), ("https://a.example/hook", False)]
)
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
