"""Proves how one message is sent: signed as Standard Webhooks' own library checks it, taken, retried, given
up or refused for ever by what a real receiver answers, and said in words that help and hold no secret.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from dashboard.alerts import deliver, senders
from dashboard.alerts import http as alert_http
from dashboard.config import Config
from dashboard.models import Channel, Delivery
from fenceline.alerts import redact
from fenceline.alerts.engine import Alerting
from tests import receivers
from tests.cases import cases
from tests.receivers import Authority, Receiver, answer
from tests.web import factories

pytestmark = pytest.mark.django_db

LIMITS = Alerting(allow_private=("127.0.0.0/8",), timeout_s=5, retry_for_s=60, disable_after=3)
PAYLOAD = {"version": "4", "alerts": [{"labels": {"subject": "payments-ключ"}, "status": "firing"}]}
PERMANENT, LATER = "failed", "pending"


@pytest.fixture(autouse=True)
def limits(settings: Any) -> None:
    settings.FENCELINE = Config(alerts=LIMITS)


@pytest.fixture
def channel(receiver: Receiver) -> Channel:
    return make_channel(receiver.url)


def make_channel(url: str, kind: str = "webhook") -> Channel:
    secret = senders.new_secret() if kind == "webhook" else ""
    return factories.channel(f"ops-{Channel.objects.count()}", kind=kind, url=url, secret=secret)


def make_delivery(channel: Channel, **more: Any) -> Delivery:
    fields = {"message_id": f"msg_{Delivery.objects.count()}", "group_key": "g", "next_at": Now(), **more}
    return Delivery.objects.create(channel=channel, payload=PAYLOAD, **fields)


def send(row: Delivery) -> Delivery:
    """Send a delivery once, whenever it is due."""
    Delivery.objects.filter(pk=row.pk).update(next_at=Now())
    claimed = deliver.claim(row.pk, LIMITS.timeout_s)
    assert claimed is not None
    deliver.send_delivery(claimed)
    row.refresh_from_db()
    return row


def test_a_webhook_is_signed_as_the_reference_library_checks_it(receiver: Receiver, channel: Channel) -> None:
    row = send(make_delivery(channel))
    assert (row.state, row.error, row.attempts) == ("delivered", "", 1)
    (request,) = receiver.received
    assert request.verified(channel.secret) == PAYLOAD
    assert request.message_id == row.message_id
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"] == "Fenceline"
    (tried,) = row.tries
    assert (tried["status"], tried["address"], tried["error"]) == (200, "127.0.0.1", "")
    # A changed body and an old timestamp are refused by it.
    with pytest.raises(WebhookVerificationError, match="No matching signature"):
        replace(request, body=request.body.replace(b"firing", b"quenched")).verified(channel.secret)
    old = int(time.time()) - 600
    signature = senders.signature_header([channel.secret], "msg_1", old, request.body)
    replayed = {"webhook-id": "msg_1", "webhook-timestamp": str(old), "webhook-signature": signature}
    with pytest.raises(WebhookVerificationError, match="too old"):
        Webhook(channel.secret).verify(request.body, replayed)


def test_while_a_secret_is_changed_both_sign(receiver: Receiver, channel: Channel) -> None:
    old, new = channel.secret, senders.new_secret()
    Channel.objects.update(secret=new, old_secret=old)
    send(make_delivery(channel))
    (request,) = receiver.received
    assert request.verified(old) == request.verified(new) == PAYLOAD
    with pytest.raises(WebhookVerificationError):
        request.verified(senders.new_secret())


@cases(
    (answer(204), "delivered", ""),
    (answer(500, b"disk full"), LATER, "answered 500 Internal Server Error (“disk full”). Check"),
    (answer(429), LATER, "answered 429"),
    (answer(400, b"no such alert"), PERMANENT, "It will not take this message: correct"),
    (answer(404), PERMANENT, "answered 404"),
    (answer(410), PERMANENT, "answered 410"),
    (answer(304), PERMANENT, "points to"),
    (answer(307, location="http://127.0.0.1:1/?token=hidden-token"), PERMANENT, "127.0.0.1:1/?token=***"),
    (receivers.raw(b"SSH-2.0-OpenSSH_9\r\n"), LATER, "not HTTP (BadStatusLine). Check host and port"),
    (receivers.raw(b"HTTP/1.1 200 OK\r\n" + b"a" * 70_000), LATER, "not HTTP (LineTooLong)"),
    (receivers.raw(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200), LATER, "not HTTP (HTTPException)"),
    (receivers.raw(b"HTTP/1.1 999 \x00\xff\r\n\xfe: \x00\r\n\r\n\x00\xff"), LATER, "answered 999"),
    (receivers.raw(), LATER, "closed the connection without an answer. Check the receiver's log"),
    (receivers.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\npart"), "delivered", ""),
    (receivers.raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz"), "delivered", ""),
    (receivers.raw(b"HTTP/1.1 101 Switching Protocols\r\n\r\n"), PERMANENT, "answered 101"),
    (receivers.flood, "delivered", ""),
)  # fmt: skip
def test_what_an_answer_means(
    receiver: Receiver, channel: Channel, manner: receivers.Manner, state: str, says: str
) -> None:
    receiver.manners.append(manner)
    row = send(make_delivery(channel))
    assert (row.state, len(receiver.received)) == (state, 1)
    assert says in row.error
    assert "hidden-token" not in str(row.tries) + row.error
    assert len(row.tries[0].get("body", "")) <= alert_http.KEPT


def test_a_body_that_would_burst_when_inflated_is_kept_as_it_came(
    receiver: Receiver, channel: Channel
) -> None:
    bomb = b"\x1f\x8b" + b"\x00" * 60_000
    receiver.manners.append(answer(200, bomb, content_encoding="gzip"))
    row = send(make_delivery(channel))
    assert row.state == "delivered"
    assert len(row.tries[0]["body"]) == alert_http.KEPT
    assert receiver.received[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("manner", [receivers.hold, receivers.drip])
def test_who_holds_an_answer_back_is_left_after_the_timeout(
    receiver: Receiver, channel: Channel, settings: Any, manner: receivers.Manner
) -> None:
    settings.FENCELINE = Config(alerts=replace(LIMITS, timeout_s=0.5))
    receiver.manners.append(manner)
    row = send(make_delivery(channel))
    assert row.state == LATER
    assert f"{receiver.url[:-5]} did not answer within 0.5 s. Check the receiver, or raise" in row.error


def test_nobody_listening_is_tried_again(channel: Channel) -> None:
    with Receiver() as gone:
        Channel.objects.update(url=gone.url)
    row = send(make_delivery(channel))
    assert row.state == LATER
    assert "connection refused. Start the receiver or correct the port" in row.error


def test_it_is_tried_again_with_the_same_id_and_a_new_signature(receiver: Receiver, channel: Channel) -> None:
    receiver.manners += [answer(500), answer(503)]
    row = make_delivery(channel)
    assert [send(row).state for _ in range(3)] == [LATER, LATER, "delivered"]
    assert {request.message_id for request in receiver.received} == {row.message_id}
    assert all(request.verified(channel.secret) == PAYLOAD for request in receiver.received)
    assert [tried.get("status") for tried in row.tries] == [500, 503, 200]
    assert (row.attempts, row.error) == (3, "")


def test_pauses_grow_with_jitter_and_retry_after_is_honoured_within_bounds(
    receiver: Receiver, channel: Channel
) -> None:
    firsts = {deliver.pause_s(1, None, 900) for _ in range(50)}
    assert len(firsts) > 1
    assert all(0.5 <= pause <= 1 for pause in firsts)
    assert 150 <= deliver.pause_s(99, None, 900) <= 300
    assert deliver.pause_s(1, 120, 900) == 120
    assert deliver.pause_s(1, 10_000, 900) == 900
    receiver.manners += [
        answer(429, retry_after="30"),
        answer(503, retry_after="Fri, 31 Dec 2100 23:59:59 GMT"),
    ]
    row = send(make_delivery(channel))
    assert row.next_at is not None
    assert row.next_at > row.created_at + timedelta(seconds=29)
    assert not deliver.due_deliveries().exists()
    row = send(row)
    assert row.next_at is not None
    assert row.next_at <= row.created_at + timedelta(seconds=LIMITS.retry_for_s + 1), "bounded by retry_for_s"


def test_it_is_given_up_after_retry_for_s_but_never_untried(receiver: Receiver, channel: Channel) -> None:
    receiver.usually = answer(500)
    row = make_delivery(channel)
    Delivery.objects.update(created_at=Now() - timedelta(seconds=LIMITS.retry_for_s + 1))
    row = send(row)
    assert row.state == PERMANENT
    assert row.error.endswith("Given up after 1 tries: send it again once that is repaired.")
    assert row.ended_at is not None


def test_a_channel_that_never_takes_anything_is_disabled_and_says_why(
    receiver: Receiver, channel: Channel
) -> None:
    receiver.manners += [
        answer(400),
        answer(400),
        answer(200),
        answer(400),
        answer(400),
        answer(400, b"gone"),
    ]
    for failures in (1, 2, 0, 1, 2):
        send(make_delivery(channel))
        channel.refresh_from_db()
        assert (channel.failures, channel.enabled) == (failures, True)
    send(make_delivery(channel))
    channel.refresh_from_db()
    assert (channel.enabled, channel.disabled_at is not None) == (False, True)
    assert "3 messages in a row were not taken" in channel.disabled_why
    assert "“gone”" in channel.disabled_why
    unsent = send(make_delivery(channel))
    assert (unsent.state, len(receiver.received)) == (PERMANENT, 6)
    assert "the channel is disabled. Enable it, then send the message again" in unsent.error
    deliver.enable_channel(channel)
    assert (channel.enabled, channel.failures, channel.disabled_why) == (True, 0, "")
    assert send(make_delivery(channel)).state == "delivered"


@pytest.mark.sql
def test_a_claim_is_one_workers_and_only_the_newest_writes(receiver: Receiver, channel: Channel) -> None:
    row = make_delivery(channel)
    first = deliver.claim(row.pk, LIMITS.timeout_s)
    assert first is not None
    assert deliver.claim(row.pk, LIMITS.timeout_s) is None
    assert not deliver.due_deliveries().exists()
    Delivery.objects.update(claimed_until=Now() - timedelta(seconds=1))
    second = deliver.claim(row.pk, LIMITS.timeout_s)
    assert second is not None
    receiver.manners.append(answer(400))
    deliver.send_delivery(first)
    row.refresh_from_db()
    assert (row.state, row.tries) == ("pending", []), "an outdated claim writes nothing"
    deliver.send_delivery(second)
    row.refresh_from_db()
    assert (row.state, row.attempts) == ("delivered", 2)
    assert deliver.claim(row.pk, LIMITS.timeout_s) is None


@pytest.mark.sql
def test_a_groups_messages_go_in_order_and_hold_up_no_other(channel: Channel) -> None:
    firing, resolved = make_delivery(channel), make_delivery(channel)
    other = make_delivery(channel, group_key="h")
    assert list(deliver.due_deliveries()) == [firing, other]
    Delivery.objects.filter(pk=firing.pk).update(next_at=Now() + timedelta(minutes=5))
    assert list(deliver.due_deliveries()) == [other], (
        "resolved waits for firing, which waits for its next try"
    )
    again = make_delivery(channel, origin="again")
    assert list(deliver.due_deliveries()) == [other, again]
    assert list(deliver.due_deliveries([channel.pk])) == []
    Delivery.objects.filter(pk=firing.pk).update(state="failed", ended_at=Now())
    assert list(deliver.due_deliveries()) == [resolved, other, again]


def test_a_test_is_sent_at_once_and_only_once(receiver: Receiver, channel: Channel) -> None:
    Channel.objects.update(enabled=False)
    channel.refresh_from_db()
    row = deliver.send_test(channel)
    assert (row.state, row.origin, row.attempts) == ("delivered", "test", 1)
    (request,) = receiver.received
    body = request.verified(channel.secret)
    assert (body["notification_reason"], body["alerts"][0]["status"]) == ("test", "firing")
    receiver.manners.append(answer(500))
    row = deliver.send_test(channel)
    assert (row.state, row.attempts) == (PERMANENT, 1)
    channel.refresh_from_db()
    assert channel.failures == 0
    assert not deliver.due_deliveries().exists()


def test_a_message_can_be_sent_again_by_hand(receiver: Receiver, channel: Channel) -> None:
    receiver.manners.append(answer(400))
    failed = make_delivery(channel)
    with pytest.raises(deliver.CannotSend, match="still being sent: wait"):
        deliver.send_again(failed)
    send(failed)
    again = deliver.send_again(failed)
    assert (again.origin, again.message_id, again.state) == ("again", failed.message_id, "pending")
    assert list(deliver.due_deliveries()) == [again]
    assert send(again).state == "delivered"
    assert receiver.received[0].body == receiver.received[1].body
    Channel.objects.update(enabled=False)
    with pytest.raises(deliver.CannotSend, match="is disabled: enable it"):
        deliver.send_again(Delivery.objects.get(pk=failed.pk))


@cases(
    ("", "/api/v2/alerts"),
    ("/", "/api/v2/alerts"),
    ("/am/", "/am/api/v2/alerts"),
    ("/api/v2/alerts", "/api/v2/alerts"),
    ("/am?tenant=a", "/am/api/v2/alerts?tenant=a"),
)
def test_an_alertmanager_is_posted_a_list(receiver: Receiver, suffix: str, path: str) -> None:
    url = f"http://ada:s3cr%40t@127.0.0.1:{receiver.port}{suffix}"
    row = deliver.send_test(make_channel(url, "alertmanager"))
    assert row.state == "delivered"
    (request,) = receiver.received
    assert request.path == path
    assert request.headers["authorization"] == "Basic YWRhOnMzY3JAdA=="
    assert "webhook-id" not in request.headers
    assert b'"endsAt"' in request.body


def test_no_secret_comes_back_in_what_is_kept(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    token, password, key = "T0KENT0KENT0KENT0KEN", "s3cr%40t-word", "k3yk3y"
    url = f"http://ada:{password}@127.0.0.1:{receiver.port}/services/{token}?key={key}"
    channel = make_channel(url)
    echo = f"you are ada:s3cr@t-word with {key} at {token}, {channel.secret}, YWRhOnMzY3JAdC13b3Jk"
    receiver.manners.append(answer(403, echo.encode(), x_echo=f"{token} {password}", set_cookie="a=b"))
    row = send(make_delivery(channel))
    assert row.state == PERMANENT
    kept = str(row.tries) + row.error + caplog.text + redact.redact_url(url)
    for secret in (token, password, "s3cr@t-word", key, channel.secret[6:], "YWRhOnMzY3JAdC13b3Jk", "a=b"):
        assert secret not in kept
    assert f"http://***@127.0.0.1:{receiver.port}/services/***?key=***" in row.error


def test_an_unknown_authority_is_named_with_a_remedy(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, fresh_tls: Callable[[], None]
) -> None:
    authority = Authority(tmp_path)
    with Receiver(tls=authority.server("localhost"), host="127.0.0.1") as receiver:
        channel = make_channel(f"https://localhost:{receiver.port}/hook")
        row = send(make_delivery(channel))
        assert (row.state, receiver.received) == (LATER, [])
        assert "cannot be verified: unable to get local issuer certificate" in row.error
        assert "SSL_CERT_FILE" in row.error
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
        fresh_tls()
        assert send(row).state == "delivered", "the name is sent and verified, not the address"
        by_address = make_channel(f"https://127.0.0.1:{receiver.port}/hook")
        row = send(make_delivery(by_address))
        assert "certificate is not valid for '127.0.0.1'" in row.error
        plain = send(make_delivery(make_channel(f"http://localhost:{receiver.port}/hook")))
        assert plain.state == LATER
    with Receiver() as speaks_plain:
        channel = make_channel(f"https://127.0.0.1:{speaks_plain.port}/hook")
        assert "Check that the port speaks TLS (https)" in send(make_delivery(channel)).error


@pytest.fixture
def fresh_tls() -> Iterator[Callable[[], None]]:
    """Have the system's authorities read again, now and after the test."""
    alert_http._tls.cache_clear()
    yield alert_http._tls.cache_clear
    alert_http._tls.cache_clear()


@cases(
    ("webhook", "https://127.0.0.1/", "", "does not begin with whsec_"),
    ("webhook", "https://127.0.0.1/", "whsec_%%%", "is not base64"),
    ("webhook", "https://127.0.0.1/", "whsec_QUJD", "has 3 bytes"),
    ("alertmanager", "https://127.0.0.1/", "whsec_QUJD", "leave its secret empty"),
    ("webhook", "ftp://127.0.0.1/", "", "must begin with https:// or http://"),
    ("webhook", "https:///path", "", "names no host"),
    ("webhook", "https://a b/", "", "spaces"),
    ("webhook", "https://127.0.0.1:99999/", "", "is not one: write https://host:port/path"),
    ("webhook", "https://127.0.0.1:0/", "", "port 0"),
    ("webhook", "https://10.1.2.3/", "", "It is a private address. To send there all the same"),
    ("mail", "https://127.0.0.1/", "", "There is no kind “mail”"),
    ("apprise", "json://127.0.0.1/", "", "make a channel of kind webhook"),
)
def test_what_is_wrong_with_a_new_channel_is_said(kind: str, url: str, secret: str, says: str) -> None:
    with pytest.raises(deliver.CannotSend) as caught:
        deliver.check_channel(kind, url, secret)
    assert says in str(caught.value)


def test_a_good_channel_is_taken_even_while_its_host_has_no_address() -> None:
    deliver.check_channel("webhook", "https://127.0.0.1:8443/hook", senders.new_secret())
    deliver.check_channel("alertmanager", "http://no-such-host.invalid/", "")
