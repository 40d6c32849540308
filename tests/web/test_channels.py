"""Proves that channels are kept, changed, tested and deleted by who may, and that no page tells a secret;
that every message is found with what was sent and answered, and is sent again with the same id."""

import html
import re
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import Client

from dashboard.models import Channel, Delivery
from fenceline.alerts.engine import Alerting
from tests.cases import cases
from tests.receivers import Receiver, answer
from tests.web import factories, roles
from tests.web.roles import page_html

pytestmark = pytest.mark.django_db
NEW = {"name": "ops", "kind": "webhook", "min_severity": "warning", "send_resolved": "on"}
CHANGED = {"name": "ops", "min_severity": "warning"}


@pytest.fixture(autouse=True)
def limits(configured: None, settings: Any) -> None:
    alerts = Alerting(allow_private=("127.0.0.0/8",), timeout_s=5)
    settings.FENCELINE = replace(django_settings.FENCELINE, alerts=alerts)
    factories.tail_collectors(factories.cluster())


def add(admin: Client, receiver: Receiver, **more: str) -> Channel:
    answer = admin.post("/channels/add", NEW | {"url": receiver.url} | more)
    assert answer.status_code == 303, answer.content.decode()
    return Channel.objects.get(name=more.get("name", "ops"))


def shown_secret(admin: Client, row: Channel) -> str:
    found = re.search(r'id="the-secret"[^>]*>([^<]+)<', page_html(admin, f"/channels/{row.pk}/secret"))
    return html.unescape(found[1]) if found else ""


def wrong(admin: Client, where: str, asked: dict[str, str]) -> str:
    answer = admin.post(where, asked)
    assert answer.status_code == 422, answer.content.decode()
    found = re.findall(r'class="wrong"[^>]*>([^<]+)<', answer.content.decode())
    return html.unescape(" ".join(found))


def test_a_channel_is_added_tested_and_told_what_was_answered(admin: Client, receiver: Receiver) -> None:
    row = add(admin, receiver, matchers='team="Payments", cluster=~"prod.*"', group_by="cluster, team",
              group_wait_s="1.5", group_interval_s="60", repeat_interval_s="3600")  # fmt: skip
    assert row.matchers == [["team", "=", "Payments"], ["cluster", "=~", "prod.*"]]
    assert row.group_by == ["cluster", "team"]
    assert (row.group_wait_s, row.group_interval_s, row.repeat_interval_s) == (1.5, 60, 3600)
    assert row.created_by == "the admin"
    assert admin.post(f"/channels/{row.pk}/test")["Location"] == f"/channels/{row.pk}"
    (received,) = receiver.received
    assert received.verified(row.secret)["receiver"] == "ops"
    text = page_html(admin, f"/channels/{row.pk}")
    assert "answered 200" in text
    assert f'href="/deliveries/{Delivery.objects.get().pk}"' in text


def test_a_test_that_fails_says_what_was_answered(admin: Client) -> None:
    with Receiver(usually=answer(404, b"no such hook")) as receiver:
        row = add(admin, receiver)
        admin.post(f"/channels/{row.pk}/test")
    text = page_html(admin, f"/channels/{row.pk}")
    assert "answered 404" in text
    assert "no such hook" in text
    row.refresh_from_db()
    assert row.failures == 0


def test_only_the_demo_s_channel_leads_to_what_its_receiver_got(settings: Any, admin: Client) -> None:
    page = "http://127.0.0.1:14000/a-token/"
    demo = factories.channel("demo-receiver", url="http://127.0.0.1:14000/hook")
    other = factories.channel("other", url="http://127.0.0.1:14000/other")
    link = f'<a id="receiver" href="{page}"'
    for settings.DEMO_RECEIVER, expected in ((page, [True, False]), ("", [False, False])):
        found = [link in page_html(admin, f"/channels/{row.pk}") for row in (demo, other)]
        assert found == expected


def test_the_secret_is_shown_once_to_whom_it_was_made_for(admin: Client, receiver: Receiver) -> None:
    row = add(admin, receiver)
    other = roles.client_with_role("admin")
    assert shown_secret(other, row) == ""
    assert shown_secret(admin, row) == row.secret
    assert shown_secret(admin, row) == ""
    assert "This secret is not shown again" in page_html(admin, f"/channels/{row.pk}/secret")


def test_both_secrets_sign_until_the_old_one_is_ended(admin: Client, receiver: Receiver) -> None:
    row = add(admin, receiver)
    old = shown_secret(admin, row)
    assert admin.post(f"/channels/{row.pk}/rotate")["Location"] == f"/channels/{row.pk}/secret"
    new = shown_secret(admin, row)
    assert new not in ("", old)
    assert admin.post(f"/channels/{row.pk}/rotate")["Location"] == f"/channels/{row.pk}"
    assert "An older secret still signs" in page_html(admin, f"/channels/{row.pk}")
    admin.post(f"/channels/{row.pk}/test")
    assert receiver.received[-1].verified(old) == receiver.received[-1].verified(new)
    admin.post(f"/channels/{row.pk}/end-old")
    admin.post(f"/channels/{row.pk}/test")
    assert receiver.received[-1].verified(new)
    with pytest.raises(Exception, match="No matching signature"):
        receiver.received[-1].verified(old)


def test_a_channel_of_a_service_that_is_not_supported_any_more_says_what_to_do(admin: Client) -> None:
    row = factories.channel("chat", kind="apprise", url=f"discord://4174216298/{factories.TOKEN}", secret="")
    for url in ("/channels", f"/channels/{row.pk}", f"/channels/{row.pk}/edit"):
        assert "discord://" in page_html(admin, url), url
    assert admin.post(f"/channels/{row.pk}/test")["Location"] == f"/channels/{row.pk}"
    told = "Through apprise only vendors' own hosts are sent to, not discord://: take one of mailgun,"
    assert told in html.unescape(page_html(admin, f"/channels/{row.pk}"))
    assert factories.TOKEN not in page_html(admin, f"/channels/{row.pk}")


def test_no_page_holds_a_secret(admin: Client) -> None:
    hook = factories.channel(old_secret=factories.SECRET + "old", matchers=[["team", "=", "x"]])
    chat = factories.channel(
        "chat", kind="apprise", url=f"slack://{factories.TOKEN}/{factories.TOKEN}", secret=""
    )
    sent = factories.delivery(hook)
    pages = ["/channels", "/deliveries", f"/deliveries/{sent.pk}"]
    for row in (hook, chat):
        pages += [f"/channels/{row.pk}{part}" for part in ("", "/edit", "/delete", "/secret")]
    for url in pages:
        text = page_html(admin, url)
        assert "aGVsbG8" not in text, url
        assert factories.TOKEN not in text, url


@cases(
    ({"name": ""}, "The name is missing"),
    ({"name": "   "}, "The name is missing"),
    ({"name": "x" * 65}, "The name has 65 characters; at most 64 are kept"),
    ({"name": "a\0b"}, "The name has a character that cannot be shown (U+0000)"),
    ({"name": "a\nb"}, "cannot be shown (U+000A)"),
    ({"name": "taken"}, "There is a channel “taken” already"),
    ({"kind": "pigeon"}, "“pigeon” is no kind: take one of webhook, alertmanager, apprise"),
    ({"url": ""}, "The address is missing"),
    ({"url": "ftp://x.example.org/"}, "must begin with https:// or http://"),
    ({"url": "http://10.1.2.3/hook"}, "adds 10.1.2.3 to [alerts] allow_private in fenceline.toml"),
    ({"url": "http://169.254.169.254/latest"}, "where clouds keep their metadata"),
    ({"url": "https://x.example.org/" + "y" * 3_000}, "at most 2,000 are kept"),
    ({"url": "https://x.example.org/\0"}, "cannot be shown (U+0000)"),
    ({"kind": "apprise", "url": "json://x.example.org/"}, "json"),
    ({"min_severity": "fatal"}, "“fatal” is no severity: take one of critical, warning, info"),
    ({"matchers": "team"}, "cannot be read: write label=\"value\""),
    ({"matchers": 'colour="red"'}, "No alert has a label “colour”: labels are alertname,"),
    ({"matchers": 'team=~"("'}, "is not a regular expression"),
    ({"matchers": 'team="a\0b"'}, "has a NUL"),
    ({"matchers": ",".join(['team="x"'] * 21)}, "at most 20 are taken"),
    ({"group_by": "colour"}, "No alert has a label “colour”"),
    ({"group_by": "no label"}, "is not the name of a label"),
    ({"group_wait_s": "soon"}, "“soon” is not a number of seconds from 0 to 3,600 (1 h)"),
    ({"group_wait_s": "-1"}, "is not a number of seconds"),
    ({"group_interval_s": "nan"}, "is not a number of seconds"),
    ({"repeat_interval_s": "1e99"}, "is not a number of seconds"),
)  # fmt: skip
def test_what_cannot_be_used_is_told(
    admin: Client, receiver: Receiver, asked: dict[str, str], said: str
) -> None:
    factories.channel("taken")
    assert said in wrong(admin, "/channels/add", NEW | {"url": receiver.url} | asked)
    assert Channel.objects.count() == 1


def test_everything_that_is_wrong_is_told_at_once_and_what_was_written_stays(admin: Client) -> None:
    asked = {"name": "", "kind": "webhook", "url": "gopher://x", "min_severity": "x", "matchers": "<b>"}
    text = admin.post("/channels/add", asked).content.decode()
    assert "4 errors" in text
    assert "&lt;b&gt;" in text
    assert "gopher://x" in text


def test_a_change_keeps_what_is_not_asked_for(admin: Client, receiver: Receiver) -> None:
    row = add(admin, receiver, matchers='team="x"')
    assert admin.post(f"/channels/{row.pk}/change", CHANGED | {"name": "night"}).status_code == 303
    after = Channel.objects.get(pk=row.pk)
    assert (after.name, after.url, after.secret) == ("night", row.url, row.secret)
    assert (after.matchers, after.send_resolved) == ([], False)
    asked = CHANGED | {"kind": "apprise", "url": "http://127.0.0.1:9/other"}
    admin.post(f"/channels/{row.pk}/change", asked)
    after.refresh_from_db()
    assert (after.kind, after.url) == ("webhook", "http://127.0.0.1:9/other")
    assert "already" not in wrong(admin, f"/channels/{row.pk}/change", CHANGED | {"min_severity": ""})


def test_the_form_shows_what_is_kept_but_not_the_address(admin: Client) -> None:
    row = factories.channel(matchers=[["team", "=", 'a"b']], group_by=["team"], group_wait_s=2.5)
    text = html.unescape(page_html(admin, f"/channels/{row.pk}/edit"))
    assert 'team="a\\"b"</textarea>' in text
    assert 'value="2.5"' in text
    assert "https://hooks.example.org/services/***?key=***" in text


def test_it_is_disabled_with_a_reason_and_enabled_as_if_nothing_had_failed(admin: Client) -> None:
    row = factories.channel(failures=4)
    assert "Its last 4 messages failed." in page_html(admin, f"/channels/{row.pk}")
    admin.post(f"/channels/{row.pk}/disable")
    row.refresh_from_db()
    assert not row.enabled
    assert row.disabled_at
    assert "Disabled by the admin." in page_html(admin, f"/channels/{row.pk}")
    admin.post(f"/channels/{row.pk}/enable")
    row.refresh_from_db()
    assert (row.enabled, row.failures, row.disabled_why) == (True, 0, "")


def test_while_a_message_is_sent_again_it_does_not_claim_to_be_told(admin: Client) -> None:
    row = factories.channel()
    factories.delivery(row, "pending", attempts=0)
    assert "Healthy." in page_html(admin, f"/channels/{row.pk}")
    factories.delivery(row, "pending")
    assert "A message is being retried." in page_html(admin, f"/channels/{row.pk}")


def test_why_it_was_disabled_stays_when_it_is_disabled_again(admin: Client) -> None:
    row = factories.channel(enabled=False, disabled_why="10 messages in a row were not taken")
    admin.post(f"/channels/{row.pk}/disable")
    assert "10 messages in a row were not taken" in page_html(admin, f"/channels/{row.pk}")


def test_deleting_says_first_what_goes_with_it(admin: Client) -> None:
    row = factories.channel()
    factories.delivery(row)
    assert "This deletes 1 delivery" in page_html(admin, f"/channels/{row.pk}/delete")
    assert Channel.objects.exists()
    assert admin.post(f"/channels/{row.pk}/delete-now")["Location"] == "/channels"
    assert not Channel.objects.exists()
    assert not Delivery.objects.exists()


def test_a_viewer_sees_channels_and_no_buttons() -> None:
    viewer = roles.client_with_role("viewer")
    row = factories.channel()
    for url in ("/channels", f"/channels/{row.pk}"):
        text = page_html(viewer, url).partition("<main")[2].partition("</main>")[0]
        assert "<form" not in text
        assert "Edit…" not in text


def test_nothing_is_posted_without_the_token_of_its_form(admin: Client) -> None:
    checking = Client(enforce_csrf_checks=True)
    checking.cookies = admin.cookies
    row = factories.channel()
    assert checking.post(f"/channels/{row.pk}/delete-now").status_code == 403
    assert Channel.objects.exists()


def numbers(page: Client, query: str = "") -> list[int]:
    return [
        int(each)
        for each in re.findall(r'href="/deliveries/(\d+)" data-row', page_html(page, f"/deliveries{query}"))
    ]


def test_the_address_decides_what_is_shown(page: Client) -> None:
    ops, pager = factories.channel("ops"), factories.channel("pager")
    done = factories.delivery(ops)
    failed = factories.delivery(pager, "failed")
    waits = factories.delivery(ops, "pending")
    test = factories.delivery(ops, origin="test")
    assert numbers(page) == [test.pk, waits.pk, failed.pk, done.pk]
    assert numbers(page, "?state=pending") == [waits.pk]
    assert numbers(page, "?state=failed") == [failed.pk]
    assert numbers(page, "?origin=test") == [test.pk]
    assert numbers(page, f"?channel={pager.pk}") == [failed.pk]
    assert numbers(page, "?channel=4711") == []
    assert "No matching deliveries" in page_html(page, "/deliveries?channel=4711")


def test_nothing_was_sent_so_far(page: Client) -> None:
    assert 'data-empty="none"' in page_html(page, "/deliveries")


def test_one_delivery_shows_all_that_went_over_the_wire(page: Client) -> None:
    alert = factories.alert(factories.cluster())
    over = factories.alert(factories.cluster(), "transaction:payments-8", "resolved")
    held = {
        "firing": [bytes(alert.fingerprint).hex()],
        "resolved": [bytes(over.fingerprint).hex(), "00" * 32],
    }
    row = factories.delivery(factories.channel(), "failed", held=held, attempts=12)
    text = page_html(page, f"/deliveries/{row.pk}")
    for words in (
        "1 firing, 2 resolved", "failed after 12 attempts", "try 12", "The newest 1 of 12 attempts.",
        "hooks.example.org answered 500. Check the receiver.", "&lt;b&gt;boom&lt;/b&gt;", "93.184.216.34",
        "webhook-signature", "content-type", "took 34 ms", "&quot;version&quot;: &quot;4&quot;",
        f'href="/alerts/{alert.pk}"', f'href="/alerts/{over.pk}"', "and 1 more", "first notification",
    ):  # fmt: skip
        assert words in text, words
    assert "<b>boom" not in text


def test_a_try_without_an_answer_says_so(page: Client) -> None:
    tried = {
        "at_ms": factories.now_ms(),
        "ms": 5_000,
        "request": {"url": "https://x", "headers": {}},
        "error": "no DNS",
    }
    row = factories.delivery(factories.channel(), "failed", tries=[tried])
    text = page_html(page, f"/deliveries/{row.pk}")
    assert "no answer" in text
    assert "no response" in text
    assert "no DNS" in text


def test_it_is_sent_again_with_the_same_id(operator: Client) -> None:
    row = factories.delivery(factories.channel(), "failed", held={"firing": [], "resolved": []})
    answer = operator.post(f"/deliveries/{row.pk}/again")
    assert answer.status_code == 303
    again = Delivery.objects.exclude(pk=row.pk).get()
    assert answer["Location"] == f"/deliveries/{again.pk}"
    assert (again.message_id, again.payload, again.origin) == (row.message_id, row.payload, "again")
    assert f'Sent again from <a href="/deliveries/{row.pk}"' in page_html(operator, f"/deliveries/{again.pk}")
    assert f'href="/deliveries/{again.pk}"' in page_html(operator, f"/deliveries/{row.pk}")


@cases(
    ("failed", {"enabled": False}, "The channel ops is disabled: enable it"),
    ("pending", {}, "This message is still being sent"),
)
def test_what_cannot_be_sent_again_says_why(
    operator: Client, state: str, channel: dict[str, Any], said: str
) -> None:
    row = factories.delivery(factories.channel(**channel), state)
    operator.post(f"/deliveries/{row.pk}/again")
    assert said in page_html(operator, f"/deliveries/{row.pk}")
    assert Delivery.objects.count() == 1
