"""Chats, mail and pagers through apprise: it knows each vendor's format, and this module sends.

Only plugins with fixed hosts of their vendor are used; json://, xml://, form:// and other plugins with a free
host would bypass the guard. Every request of a plugin goes through `http`: the guard, one deadline, no
redirects, verified certificates regardless of the URL, and only the hosts listed here. Only the listed
options may be appended to an address: `template=` and others read files or other addresses.
"""

import functools
import hashlib
import importlib
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import requests
from apprise import AppriseAsset, NotifyFormat, NotifyType
from apprise.plugins.base import NotifyBase

from dashboard.alerts import http as alert_http
from dashboard.alerts import ssrf


class Unsupported(ValueError):
    """An address that is not used with apprise; the text has the reason and the remedy, without secrets."""


@dataclass(frozen=True, slots=True)
class _Vendor:
    """A plugin of apprise: module, class, hosts (".name": all subdomains), permitted options."""

    module: str
    plugin: str
    hosts: tuple[str, ...]
    options: tuple[str, ...] = ()
    #: Whether the vendor closes an incident by the key that opened it.
    pager: bool = False


#: The supported vendors; for other receivers use a webhook.
_VENDORS = {
    "mailgun": _Vendor(
        "mailgun", "NotifyMailgun", ("api.mailgun.net", "api.eu.mailgun.net"), ("region", "name")
    ),
    "pagerduty": _Vendor(
        "pagerduty",
        "NotifyPagerDuty",
        ("events.pagerduty.com", "events.eu.pagerduty.com"),
        ("region", "group", "class"),
        pager=True,
    ),
    "sendgrid": _Vendor("sendgrid", "NotifySendGrid", ("api.sendgrid.com",)),
    "slack": _Vendor(
        "slack", "NotifySlack", ("hooks.slack.com", "hooks.slack-gov.com", "slack.com"), ("blocks", "footer")
    ),
    "tgram": _Vendor("telegram", "NotifyTelegram", ("api.telegram.org",), ("silent", "topic", "thread")),
    "workflows": _Vendor(
        "workflows",
        "NotifyWorkflows",
        (".logic.azure.com", ".api.powerplatform.com"),
        ("pa", "route", "ver", "api-version"),
    ),
}
_WEBHOOK = "make a channel of kind webhook"
#: Unsupported schemes, and their replacements.
_INSTEAD = {
    **dict.fromkeys(("http", "https", "json", "jsons"), _WEBHOOK),
    **dict.fromkeys(("opsgenie", "jira"), f"{_WEBHOOK} with the address of its Prometheus integration"),
    "msteams": "make a workflow in Teams, and write workflows://",
    "mailto": "write mailgun:// or sendgrid://",
}
_SHOWN = 20
#: Mentions in chats: @everyone, <!channel>, <#C1>.
_CALLS = re.compile(r"@|[!#](?=\w)")
#: Some plugins do not escape these characters for their vendor.
_ANGLES = str.maketrans("<>", "‹›")
_COMPARE = "compare it with apprise's documentation of the service"
#: Arguments of `requests` that are part of a request; TLS and timeouts are set here.
_WANTED = ("data", "json", "params", "headers", "auth", "files")
_OURS = ("host", "content-length")


def check_address(url: str) -> None:
    """Check an apprise address without sending anything; raises `Unsupported`."""
    vendor = _vendor(url)
    plugin = _plugin(vendor, url, "")
    if vendor.module == "workflows" and not _is_of(vendor, plugin.host):
        raise Unsupported(f"The host of a workflows:// address must end in {' or '.join(vendor.hosts)}.")


def _vendor(url: str) -> _Vendor:
    scheme, mark, _ = url.partition("://")
    scheme = scheme.strip().lower()
    if not mark:
        raise Unsupported("The address has no scheme: write it as apprise does, slack://… or pagerduty://….")
    vendor = _VENDORS.get(scheme)
    if vendor is not None:
        return vendor
    shown = scheme[:_SHOWN] if scheme.isascii() and scheme.isprintable() else "that"
    remedy = _INSTEAD.get(scheme) or f"take one of {', '.join(_VENDORS)}, or a channel of kind webhook"
    raise Unsupported(f"Through apprise only vendors' own hosts are sent to, not {shown}://: {remedy}.")


def _plugin(vendor: _Vendor, url: str, key: str) -> NotifyBase:
    """Return the plugin of an address from its own parser; raises `Unsupported`."""
    plugin_class = _class(vendor)
    parsed = plugin_class.parse_url(url)
    if not parsed:
        raise Unsupported(f"apprise cannot read the address: {_COMPARE}.")
    given = {name for kind in ("qsd", "qsd+", "qsd-", "qsd:") for name in parsed.get(kind, {})}
    refused = sorted(given - set(vendor.options))
    if refused:
        known = f"only {', '.join(vendor.options)}" if vendor.options else "no option"
        shown = ", ".join(option[:_SHOWN] for option in refused)
        raise Unsupported(f"The address has options that are not used here ({shown}): {known} may be given.")
    more = {"action": "map", "dedup": key} if vendor.pager and key else {}
    try:
        plugin = plugin_class(**{**parsed, **more, "asset": _asset(), "overflow": "truncate"})
    except (TypeError, ValueError) as error:
        # The error's text would repeat the parts of the address.
        wrong = "a part of it is missing or misspelled"
        raise Unsupported(f"apprise does not take the address, {wrong}: {_COMPARE}.") from error
    # Without pauses: one message is one request, and retries are ours.
    plugin.request_rate_per_sec = 0
    return plugin


@functools.cache
def _class(vendor: _Vendor) -> type[NotifyBase]:
    """Return a plugin's class, and redirect its requests to this module."""
    module = importlib.import_module(f"apprise.plugins.{vendor.module}")
    module.requests = _Requests  # type: ignore[attr-defined]
    plugin_class: type[NotifyBase] = getattr(module, vendor.plugin)
    return plugin_class


@functools.cache
def _asset() -> AppriseAsset:
    return AppriseAsset(
        app_id=alert_http.USER_AGENT,
        app_desc=alert_http.USER_AGENT,
        app_url="",
        image_url_mask="",
        image_url_logo="",
        http_redirects=False,
        allow_templates=False,
        async_mode=False,
    )


def _is_of(vendor: _Vendor, host: str) -> bool:
    host = host.lower()
    return any(
        host.endswith(allowed) if allowed.startswith(".") else host == allowed for allowed in vendor.hosts
    )


@dataclass(slots=True)
class _Call:
    """The permitted hosts of one message, and the last answer."""

    vendor: _Vendor
    guard: ssrf.TargetGuard
    end: float
    answer: alert_http.HttpAnswer | None = None
    error: alert_http.NotSent | None = None


#: The current call of a thread; unset while a plugin is only created.
_calls = threading.local()


class _Requests:
    """The parts of `requests` that plugins use."""

    codes = requests.codes
    exceptions = requests.exceptions
    RequestException = requests.RequestException

    @staticmethod
    def request(method: str, url: str, **how: Any) -> requests.Response:
        """Send one request under the rules of this thread's call."""
        made = requests.Request(method, url, **{name: how[name] for name in _WANTED if name in how}).prepare()
        call: _Call = _calls.now
        try:
            call.answer = _sent(call, made)
        except (alert_http.NotSent, ssrf.TargetRefused) as error:
            call.answer, call.error = None, _not_sent(error)
            raise requests.ConnectionError(str(error)) from error
        return _response(call.answer, made)

    @staticmethod
    def post(url: str, **how: Any) -> requests.Response:
        return _Requests.request("POST", url, **how)

    @staticmethod
    def get(url: str, **how: Any) -> requests.Response:
        return _Requests.request("GET", url, **how)


def _not_sent(error: alert_http.NotSent | ssrf.TargetRefused) -> alert_http.NotSent:
    return error if isinstance(error, alert_http.NotSent) else alert_http.NotSent(str(error), retry=False)


def _sent(call: _Call, made: requests.PreparedRequest) -> alert_http.HttpAnswer:
    target = ssrf.parse_target(made.url or "")
    if target.scheme != "https" or target.port != 443 or not _is_of(call.vendor, target.host):
        hosts = ", ".join(call.vendor.hosts)
        raise ssrf.TargetRefused(f"Not sent to {target.host}: apprise may reach {hosts} only.")
    body = made.body.encode() if isinstance(made.body, str) else made.body or b""
    if not isinstance(body, bytes):
        raise ssrf.TargetRefused(f"Not sent to {target.host}: files are not sent.")
    return alert_http.send_request(
        target,
        body,
        {name: str(value) for name, value in made.headers.items() if name.lower() not in _OURS},
        timeout_s=max(0.0, call.end - time.monotonic()),
        guard=call.guard,
        method=made.method or "POST",
        whole=True,
    )


def _response(answer: alert_http.HttpAnswer, made: requests.PreparedRequest) -> requests.Response:
    response = requests.Response()
    response.status_code, response.reason = answer.status, answer.reason
    response.headers.update(answer.headers)
    response.url, response.request = made.url or "", made
    response._content = answer.body
    return response


def send_message(
    url: str, words: Mapping[str, str], group_key: str, *, timeout_s: float, guard: ssrf.TargetGuard
) -> alert_http.HttpAnswer:
    """Send a text ({"title", "body", "type"}) to the vendor of an address, and return its last answer.

    Pagers open and close incidents by `group_key`. Raises `alert_http.NotSent`, also for an unsupported
    address.
    """
    try:
        vendor = _vendor(url)
        plugin = _plugin(vendor, url, hashlib.sha256(group_key.encode()).hexdigest())
    except Unsupported as error:
        raise alert_http.NotSent(str(error), retry=False) from error
    call = _Call(vendor, guard, time.monotonic() + timeout_s)
    _calls.now = call
    try:
        taken = plugin.notify(
            title=_quiet(words["title"]),
            body=_quiet(words["body"]),
            notify_type=NotifyType(words["type"]),
            body_format=NotifyFormat.TEXT,
        )
    finally:
        del _calls.now
    return _last(call, taken)


def _quiet(text: str) -> str:
    """Return a text without mentions and markup: names, such as transactional ids, may contain anything."""
    return _CALLS.sub("\\g<0>\N{ZERO WIDTH SPACE}", text.translate(_ANGLES))


def _last(call: _Call, taken: bool) -> alert_http.HttpAnswer:
    """Return the final answer; one that the plugin rejects is a failure with any status."""
    if call.error is not None and call.answer is None:
        raise call.error
    if call.answer is None:
        raise alert_http.NotSent("apprise sent nothing: check the address.", retry=False)
    if not taken and 200 <= call.answer.status < 300:
        body = call.answer.body[:200].decode("utf-8", "replace")
        text = f"The vendor answered {call.answer.status}, but as an error: {body}. Check the address."
        raise alert_http.NotSent(text, retry=False)
    return call.answer
