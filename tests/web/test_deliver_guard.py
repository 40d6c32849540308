"""Proves that messages go to public addresses only, and to exactly the address that was looked at: whatever
the spelling, whatever DNS answers a moment later. Resolvers are given, receivers and connections are real.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dashboard.alerts import channels, ssrf, validation
from dashboard.alerts import http as alert_http
from dashboard.alerts.ssrf import TargetGuard, TargetRefused
from dashboard.config import ConfigError, load_config
from fenceline.alerts.engine import Alerting, split_port
from tests.cases import cases
from tests.receivers import Receiver, answer


def answers(*lists: Sequence[str]) -> ssrf.Resolver:
    """Resolve every name to the first list, then to the next, …, then to the last one for ever."""
    left = list(lists)
    return lambda host, port: left.pop(0) if len(left) > 1 else left[0]


def send(url: str, judge: TargetGuard) -> alert_http.HttpAnswer:
    return alert_http.send_request(ssrf.parse_target(url), b"{}", {}, timeout_s=5, guard=judge)


@cases(
    "127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
    "169.254.169.254", "168.63.129.16", "100.64.0.1", "100.100.100.200", "192.0.0.170", "192.0.2.1",
    "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1",
    "255.255.255.255", "192.88.99.1",
    "::1", "::", "fe80::1", "fe80::1%lo", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "3fff::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:7f00:1", "::127.0.0.1", "64:ff9b::7f00:1",
    "64:ff9b::10.0.0.1", "64:ff9b:1::a00:1", "2002:7f00:1::", "2001:0:1::1", "fec0::1", "100::1",
    "5f00::1",
)  # fmt: skip
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    target = ssrf.parse_target("https://hooks.example/x")
    with pytest.raises(TargetRefused) as caught:
        TargetGuard(resolver=answers([address])).allowed_addresses(target)
    assert f"hooks.example resolves to {address}, which is" in str(caught.value)
    assert "adds hooks.example to [alerts] allow_private in fenceline.toml" in str(caught.value)


@cases("8.8.8.8", "1.1.1.1", "172.15.0.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::808:808")
def test_a_public_address_is_permitted(address: str) -> None:
    assert TargetGuard(resolver=answers([address])).allowed_addresses(
        ssrf.parse_target("https://hooks.example/x")
    ) == [address]


@cases(
    "127.0.0.1", "127.1", "2130706433", "0x7f.1", "0x7f000001", "0177.0.0.1", "017700000001",
    "localhost", "localhost.", "LOCALHOST", "[::1]", "[::ffff:127.0.0.1]", "[0:0:0:0:0:ffff:7f00:1]",
    "１２７.０.０.１", "ⓛocalhost", "127.0.0.1.", "127。0。0。1",
)  # fmt: skip
def test_no_spelling_of_this_machine_gets_past_the_systems_resolver(host: str) -> None:
    with Receiver() as receiver:
        with pytest.raises(alert_http.NotSent) as caught:
            send(f"http://{host}:{receiver.port}/", TargetGuard())
        assert receiver.received == []
    assert not caught.value.retry


@cases(
    (("127.0.0.0/8",), True),
    (("127.0.0.1",), True),
    (("::ffff:127.0.0.1",), False),
    (("hooks.example",), True),
    (("HOOKS.example.",), True),
    (("example",), False),
    (("10.0.0.0/8", "not a network", ""), False),
    ((), False),
)
def test_what_allow_private_names_may_be_reached(allowed: tuple[str, ...], permitted: bool) -> None:
    with Receiver() as receiver:
        judge = TargetGuard(allowed, answers(["127.0.0.1"]))
        if permitted:
            assert send(f"http://hooks.example:{receiver.port}/", judge).status == 200
            assert receiver.received[0].headers["host"] == f"hooks.example:{receiver.port}"
        else:
            with pytest.raises(alert_http.NotSent):
                send(f"http://hooks.example:{receiver.port}/", judge)
            assert receiver.received == []


def test_an_entry_with_a_port_permits_that_port_alone() -> None:
    with Receiver() as meant, Receiver() as beside:
        judge = TargetGuard((f"127.0.0.1:{meant.port}",))
        assert send(f"http://127.0.0.1:{meant.port}/", judge).status == 200
        assert send(f"http://2130706433:{meant.port}/", judge).status == 200
        for host in ("127.0.0.1", "127.0.0.2"):
            port = beside.port if host == "127.0.0.1" else meant.port
            with pytest.raises(alert_http.NotSent, match="a loopback address"):
                send(f"http://{host}:{port}/", judge)
        assert beside.received == []


@cases(
    ("hooks.example:8443", "hooks.example", 8443),
    ("[::1]:9000", "[::1]", 9000),
    ("10.20.0.0/16", "10.20.0.0/16", None),
    ("::1", "::1", None),
    ("[::1]", "[::1]", None),
    ("fd00::1:9000", "fd00::1:9000", None),
)
def test_only_an_unambiguous_port_is_split_from_its_host(entry: str, host: str, port: int | None) -> None:
    assert split_port(entry) == (host, port)


def test_a_changing_answer_moves_nothing() -> None:
    """The first look permits 127.0.0.2; what is asked later says 127.0.0.1, and is refused, never reached."""
    with Receiver(host="127.0.0.2") as meant, Receiver() as inside:
        asked: list[str] = []
        moving = answers(["127.0.0.2"], ["127.0.0.1"])

        def resolver(host: str, port: int) -> Sequence[str]:
            asked.append(host)
            return moving(host, port)

        judge = TargetGuard(("127.0.0.2/32",), resolver)
        url = f"http://hooks.example:{meant.port}/"
        assert send(url, judge).address == "127.0.0.2"
        assert asked == ["hooks.example"], "resolved once for each try"
        with pytest.raises(alert_http.NotSent, match=r"hooks\.example resolves to 127\.0\.0\.1"):
            send(url, judge)
        assert (len(meant.received), inside.received) == (1, [])


def test_of_several_addresses_only_the_permitted_are_tried_in_turn() -> None:
    with Receiver(host="127.0.0.2") as receiver, Receiver() as refused:
        judge = TargetGuard(("127.0.0.2/31",), answers(["127.0.0.1", "127.0.0.3", "127.0.0.2"]))
        sent = send(f"http://hooks.example:{receiver.port}/", judge)
        assert (sent.address, len(receiver.received), refused.received) == ("127.0.0.2", 1, [])


def test_a_redirect_into_the_network_is_not_followed() -> None:
    with Receiver() as inside, Receiver(usually=answer(302, location=inside.url)) as outside:
        sent = send(outside.url, TargetGuard(("127.0.0.1",)))
        assert (sent.status, len(outside.received), inside.received) == (302, 1, [])


@cases(
    ("https://hooks.example", "hooks.example", 443, "/"),
    ("HTTP://HOOKS.example.:8080/a?b=c#d", "hooks.example", 8080, "/a?b=c"),
    ("https://bücher.example/ключ", "xn--bcher-kva.example", 443, "/%D0%BA%D0%BB%D1%8E%D1%87"),
    ("https://u:p@[2606:4700::1111]:8443/", "2606:4700::1111", 8443, "/"),
)
def test_an_address_is_taken_apart(url: str, host: str, port: int, path: str) -> None:
    target = ssrf.parse_target(url)
    assert (target.host, target.port, target.path) == (host, port, path)


@cases(
    "", "hooks.example", "//hooks.example/", "file:///etc/passwd", "gopher://a/", "javascript:alert(1)",
    "http://", "http://?q", "http://a:b@/", "http://[::1/", "http://[v1.x]/", "http://a\r\nHost: b/",
    "http://a/\r\nX: y", "http://a\\@b/", "http://a b/", "http://a:0/", "http://a:65536/", "http://a:x/",
    "http://\N{CYRILLIC SMALL LETTER A}\N{COMBINING ACUTE ACCENT}\ud800.example/", "http://-\xad-ü/",
    "http://a/\N{RIGHT-TO-LEFT OVERRIDE}", "#a", "https://#a", "http://u:p@", "http://:80/", "http://a..b/",
    "http://-a.example/", "http://a-/", "http://%00/", "http://a%2fb/", "http://300.1.1.1/", "http://1.2.3.4.5/",
    f"http://{'a' * 64}.example/", f"http://{'a.' * 130}example/",
)  # fmt: skip
def test_what_is_no_web_address_is_refused_in_words(url: str) -> None:
    with pytest.raises(TargetRefused) as caught:
        ssrf.parse_target(url)
    assert str(caught.value).endswith(".")


def test_the_address_of_a_name_is_unwrapped_before_it_is_judged() -> None:
    assert ssrf.unwrap_address(ipaddress.ip_address("::ffff:8.8.8.8")) == ipaddress.ip_address("8.8.8.8")
    with pytest.raises(
        alert_http.NotSent, match=r"cannot be resolved: .*Check its spelling and DNS"
    ) as caught:
        send("http://no-such-host.invalid/", TargetGuard())
    assert caught.value.retry, "a name may have an address later"


@cases(
    "10.0.0.0/33",
    "https://hooks.example",
    " ",
    "hooks.example/8",
    "10.0.0.0/8:80",
    "hooks.example:65536",
    "a:0",
)
def test_a_slip_in_allow_private_stops_the_start(tmp_path: Path, entry: str) -> None:
    path = tmp_path / "fenceline.toml"
    path.write_text(f'[alerts]\nallow_private = ["10.20.0.0/16", "hooks.example", "{entry}"]\n')
    with pytest.raises(ConfigError, match=r"fenceline\.toml: alerts\.allow_private"):
        load_config(path, {})


@pytest.mark.django_db
@cases("0.0.0.0", "0", "255.255.255.255", "224.0.0.1", "240.0.0.1", "[::]", "[ff02::1]")
def test_an_address_that_no_receiver_has_is_refused_whatever_is_allowed(settings: Any, host: str) -> None:
    everything = Alerting(allow_private=("0.0.0.0/0", "::/0"))
    settings.FENCELINE = replace(settings.FENCELINE, alerts=everything)
    draft = channels.ChannelDraft("a", "webhook", f"https://{host}/hook")
    with pytest.raises(validation.Unfit, match="write the one that yours listens on") as caught:
        channels.add(draft, by="ada")
    assert caught.value.fields.keys() == {"url"}
