"""Proves that chats, mail and pagers are sent to through apprise, that only their vendors' hosts are, and
that nothing an address may say opens a file, another host or an unverified connection.

The receivers are real and speak TLS under the vendors' names, signed by an authority of the tests' own.
"""

import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote_plus

import pytest

from dashboard.alerts import apprise_channels
from dashboard.alerts import http as alert_http
from dashboard.alerts.senders import OutgoingMessage, SendOutcome, send_once
from dashboard.alerts.ssrf import TargetGuard
from tests.cases import cases
from tests.receivers import Authority, Manner, Receiver, answer

BODY = "LSO of payments-0 <b> @everyone <!here>"
A32, S40 = "a" * 32, "s" * 40
#: Each vendor: an address as apprise documents it, and the host that it must reach.
ADDRESSES = [
    (f"mailgun://ops@example.com/{A32}-aaaaaaaa-bbbbbbbb/to@example.com", "api.mailgun.net"),
    (f"pagerduty://{A32}@{A32}", "events.pagerduty.com"),
    (f"pagerduty://{A32}@{A32}?region=eu", "events.eu.pagerduty.com"),
    (f"sendgrid://{A32}:from@example.com/to@example.com", "api.sendgrid.com"),
    ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ", "hooks.slack.com"),
    ("slack://xoxb-1234-1234-abc124/#general", "slack.com"),
    ("tgram://123456789:abcdefg_hijklmnop/12315544", "api.telegram.org"),
    (f"workflows://prod-1.westus.logic.azure.com:443/{A32}/{S40}", "prod-1.westus.logic.azure.com"),
]
PAGERDUTY = f"pagerduty://{A32}@{A32}"
SLACK = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls(authority: Authority) -> Any:
    return authority.server(*dict.fromkeys(host for _, host in ADDRESSES))


@pytest.fixture(autouse=True)
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    alert_http._tls.cache_clear()
    yield
    alert_http._tls.cache_clear()


@pytest.fixture
def vendor(tls: Any) -> Iterator[Receiver]:
    """All vendors at once."""
    with Receiver(tls=tls, usually=pleased) as vendor:
        yield vendor


def pleased(handler: Any) -> None:
    """Answer what each vendor answers when it is pleased."""
    says = b"ok" if handler.headers["host"] == "hooks.slack.com" else b'{"ok": true}'
    answer(200, says, content_type="application/json")(handler)


def send(vendor: Receiver, url: str, resolver: Any = None, **words: str) -> SendOutcome:
    """Send words about an alert; all names are 127.0.0.1, its port 443 the receiver's."""

    def connect(address: tuple[str, int], seconds: float) -> socket.socket:
        assert address == ("127.0.0.1", 443)
        return socket.create_connection(("127.0.0.1", vendor.port), seconds)

    judge = TargetGuard(("127.0.0.0/8",), resolver or (lambda host, port: ["127.0.0.1"]), connect)
    words = {"title": "[FIRING:1] lso_pinned", "body": BODY, "type": "failure", **words}
    return send_once(OutgoingMessage("apprise", url, (), "msg_1", "group", words, 5), judge)


@pytest.mark.parametrize(("url", "host"), ADDRESSES, ids=[url.partition("://")[0] for url, _ in ADDRESSES])
def test_words_reach_the_vendor_and_nobody_else(vendor: Receiver, url: str, host: str) -> None:
    apprise_channels.check_address(url)
    outcome = send(vendor, url)
    assert (outcome.delivered, outcome.error) == (True, "")
    (request,) = vendor.received
    assert request.headers["host"] == host
    said = unquote_plus(request.body.decode()).encode().decode("unicode_escape", "replace")
    said = said.encode("latin-1", "replace").decode("utf-8", "replace") + request.body.decode()
    assert "lso_pinned" in said or "lso\\_pinned" in said
    assert "payments" in said
    for call in ("@everyone", "<!here>", "!here", "<b>LSO"):
        assert call not in said, "names of ours call nobody"


def test_a_pager_closes_what_it_opened(vendor: Receiver) -> None:
    assert send(vendor, PAGERDUTY).delivered
    assert send(vendor, PAGERDUTY, type="success").delivered
    opened, closed = (json.loads(request.body) for request in vendor.received)
    assert opened["dedup_key"] == closed["dedup_key"]
    assert (opened["event_action"], closed["event_action"]) == ("trigger", "resolve")


@cases(
    (answer(500, b"down"), True, "answered 500"),
    (answer(429, retry_after="9"), True, "answered 429"),
    (answer(404, b"unknown webhook"), False, "“unknown webhook”). It will not take this message"),
    (answer(302, location="http://127.0.0.1/"), False, "Redirects are not followed"),
    (answer(200, b"no_service"), False, "answered 200, but as an error: no_service"),
)
def test_what_a_vendors_answer_means(vendor: Receiver, manner: Manner, retry: bool, says: str) -> None:
    vendor.manners.append(manner)
    outcome = send(vendor, SLACK)
    assert (outcome.delivered, outcome.retry) == (False, retry)
    assert says in outcome.error
    assert len(vendor.received) == 1
    assert "TIiajkdnlazkcOXrIdevi7FQ" not in outcome.error + str(outcome.tried)


def test_a_vendors_name_that_leads_inside_is_refused(vendor: Receiver) -> None:
    outcome = send(vendor, PAGERDUTY, resolver=lambda *_: ["10.0.0.1"])
    assert (outcome.delivered, outcome.retry, vendor.received) == (False, False, [])
    assert "events.pagerduty.com resolves to 10.0.0.1, which is a private address" in outcome.error


def test_a_certificate_that_is_not_the_vendors_is_refused(vendor: Receiver, monkeypatch: Any) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    alert_http._tls.cache_clear()
    outcome = send(vendor, PAGERDUTY)
    assert (outcome.delivered, vendor.received) == (False, [])
    assert "The certificate of https://events.pagerduty.com cannot be verified" in outcome.error


@cases(
    ("json://10.0.0.1/", "not json://: make a channel of kind webhook"),
    ("jsons://hooks.example/", "not jsons://"),
    ("xml://10.0.0.1/", "not xml://: take one of"),
    ("form://10.0.0.1/", "not form://"),
    ("apprise://10.0.0.1/token", "not apprise://"),
    ("ntfy://10.0.0.1/topic", "not ntfy://"),
    ("mailto://u:p@10.0.0.1", "not mailto://: write mailgun:// or sendgrid://"),
    ("msteams://a/b/c/d", "write workflows://"),
    (f"discord://4174216298/{S40}", "not discord://: take one of mailgun, pagerduty, sendgrid, slack, tgram"),
    ("syslog://", "not syslog://"),
    ("dbus://", "not dbus://"),
    ("file:///etc/passwd", "not file://"),
    ("https://hooks.slack.com/services/a/b/c", "not https://: make a channel of kind webhook"),
    ("opsgenie://" + A32, "the address of its Prometheus integration"),
    ("slack", "no scheme"),
    ("", "no scheme"),
    ("slack://short", "missing or misspelled"),
    (f"{SLACK}?template=file:///etc/passwd", "options that are not used here (template)"),
    (f"{SLACK}?verify=no", "(verify)"),
    (f"{SLACK}?redirect=yes", "(redirect)"),
    (f"{SLACK}?:token=x", "not used here"),
    (f"{SLACK}?%3Atoken=x", "not used here"),
    (f"{SLACK}?+header=x", "not used here"),
    (f"{SLACK}?footer=yes&tag=a&store=/etc", "(store, tag)"),
    (f"workflows://hooks.example/{A32}/{S40}", "must end in .logic.azure.com"),
    (f"workflows://logic.azure.com.hooks.example/{A32}/{S40}", "must end in"),
    (f"workflows://evil-logic.azure.com/{A32}/{S40}", "must end in"),
    (f"workflows://10.0.0.1/{A32}/{S40}", "must end in"),
)
def test_what_is_not_for_apprise_is_said_and_never_asked(vendor: Receiver, url: str, says: str) -> None:
    with pytest.raises(apprise_channels.Unsupported) as caught:
        apprise_channels.check_address(url)
    assert says in str(caught.value)
    assert "TIiajkdnlazkcOXrIdevi7FQ" not in str(caught.value)
    outcome = send(vendor, url)
    assert (outcome.delivered, outcome.retry, vendor.received) == (False, False, [])
    assert outcome.error


@pytest.mark.parametrize(("url", "host"), ADDRESSES, ids=[url.partition("://")[0] for url, _ in ADDRESSES])
def test_a_long_message_is_one_message(vendor: Receiver, url: str, host: str) -> None:
    assert send(vendor, url, body="payments-0 is pinned\n" * 5_000).delivered
    assert len(vendor.received) == 1
