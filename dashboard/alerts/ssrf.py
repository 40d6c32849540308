"""The addresses for outgoing requests: only public ones, unless `[alerts] allow_private` names them.
Otherwise a channel could reach services that only this machine can: metadata services, databases, neighbours.
A name is resolved first, and its addresses are checked; the connection goes to exactly the checked address
(`http.py`), so that a later DNS answer changes nothing. The spelling of names is never checked: 2130706433
and 0x7f.1 resolve to 127.0.0.1 like any other.
"""

import ipaddress
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

import idna

from fenceline.alerts.engine import split_port

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
#: host, port -> the host's addresses in the order to try them; raises `OSError`.
Resolver: TypeAlias = Callable[[str, int], Sequence[str]]

#: ((address, port), seconds) -> a connection; raises `OSError`.
Connector: TypeAlias = Callable[[tuple[str, int], float], socket.socket]

#: Addresses in IANA's special-purpose registries that are not public.
_REFUSED = tuple(
    (ipaddress.ip_network(network), what)
    for network, what in (
        ("127.0.0.0/8", "a loopback address"),
        ("169.254.0.0/16", "a link-local address, where clouds keep their metadata"),
        # Azure's own service on every machine.
        ("168.63.129.16/32", "a metadata address"),
        ("10.0.0.0/8", "a private address"),
        ("172.16.0.0/12", "a private address"),
        ("192.168.0.0/16", "a private address"),
        ("100.64.0.0/10", "an address behind a provider's NAT"),
        ("0.0.0.0/8", "an address of this host"),
        ("192.0.0.0/24", "an address for protocols"),
        ("192.0.2.0/24", "an address for documentation"),
        ("198.51.100.0/24", "an address for documentation"),
        ("203.0.113.0/24", "an address for documentation"),
        ("192.88.99.0/24", "a 6to4 relay"),
        ("198.18.0.0/15", "an address for benchmarks"),
        ("224.0.0.0/4", "a multicast address"),
        ("240.0.0.0/4", "a reserved address"),
        ("::1/128", "a loopback address"),
        ("fe80::/10", "a link-local address"),
        ("fc00::/7", "a private address"),
        ("ff00::/8", "a multicast address"),
        ("2001::/23", "an address for protocols"),
        ("2001:db8::/32", "an address for documentation"),
        ("3fff::/20", "an address for documentation"),
        # Any operator may run its relay, and it may contain any address.
        ("2002::/16", "a 6to4 address"),
    )
)
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_REMEDY = "To send there all the same, an administrator adds {} to [alerts] allow_private in fenceline.toml."


class TargetRefused(ValueError):
    """A target is refused; the text has the place, the reason and the remedy, without secrets."""


class Unresolved(OSError):
    """The name has no address at present."""


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed address: `host` in ASCII, no brackets, no trailing dot; `path` with its query."""

    scheme: str
    host: str
    port: int
    path: str
    #: user and password of the address, decoded; None without them.
    login: tuple[str, str] | None = None

    @property
    def authority(self) -> str:
        """Return host and port in the form of the header `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


_PORTS = {"http": 80, "https": 443}
#: The longest host name (RFC 1035), and the shown part of one. Names with _ are resolved too.
_LONGEST_HOST, _SHOWN = 253, 60
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.IGNORECASE | re.ASCII)
#: Class E, with the broadcast address.
_NEVER = ipaddress.ip_network("240.0.0.0/4")


def parse_target(address: str) -> Target:
    """Parse an http or https address; raises `TargetRefused` for others, without repeating secrets."""
    if not address.isprintable() or any(sign in address for sign in ' \\"<>^`{|}'):
        raise TargetRefused(
            "The address has spaces or signs that no address has: percent-encode or remove them."
        )
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as error:
        raise TargetRefused("The address is not one: write https://host:port/path.") from error
    if parts.scheme not in _PORTS:
        raise TargetRefused("The address must begin with https:// or http://.")
    if port == 0:
        raise TargetRefused(
            "The address has port 0: nothing listens there. Leave the port out or correct it."
        )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    login = (unquote(parts.username or ""), unquote(parts.password or "")) if "@" in parts.netloc else None
    return Target(parts.scheme, _host(parts), port or _PORTS[parts.scheme], _ascii_path(path), login)


def _host(parts: SplitResult) -> str:
    host = (parts.hostname or "").rstrip(".")
    if not host:
        raise TargetRefused("The address names no host: write https://host:port/path.")
    if "[" in parts.netloc:
        return _bracketed(host)
    try:
        name = host if host.isascii() else idna.encode(host, uts46=True).decode()
    except idna.IDNAError as error:
        raise _no_name(host) from error
    labels = name.split(".")
    if len(name) > _LONGEST_HOST or not all(map(_LABEL.fullmatch, labels)):
        raise _no_name(host)
    if labels[-1].isdigit():
        _refuse_unusable(name)
    return name


def _no_name(host: str) -> TargetRefused:
    return TargetRefused(f"The host {host[:_SHOWN]} is not a name that may exist: check its spelling.")


def _refuse_unusable(host: str) -> None:
    """Raise `TargetRefused` for an address that no receiver can have, regardless of the allowed ones."""
    try:
        address = ipaddress.ip_address(host if ":" in host else socket.inet_aton(host))
    except (OSError, ValueError) as error:
        raise TargetRefused(f"{host[:_SHOWN]} is not an IPv4 address: check its numbers.") from error
    if address.is_unspecified or address.is_multicast or address in _NEVER:
        raise TargetRefused(
            f"No receiver has the address {host} (unspecified, multicast, broadcast or reserved): "
            "write the one that yours listens on."
        )


def _bracketed(host: str) -> str:
    try:
        address = str(ipaddress.IPv6Address(host))
        _refuse_unusable(address)
        return address
    except ipaddress.AddressValueError as error:
        raise TargetRefused(
            "What is in brackets is no IPv6 address: write https://[2001:db8::1]:port/path."
        ) from error


def _ascii_path(path: str) -> str:
    """Return a path with other characters than ASCII percent-encoded, as browsers do."""
    return "".join(
        character if character.isascii() else "".join(f"%{byte:02X}" for byte in character.encode())
        for character in path
    )


def resolve_host(host: str, port: int) -> Sequence[str]:
    """Resolve a host by the system's means: hosts file, search list, DNS."""
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


@dataclass(frozen=True, slots=True)
class TargetGuard:
    """Checks targets against `allowed`: host names, CIDRs and HOST:PORT of `[alerts] allow_private`."""

    allowed: tuple[str, ...] = ()
    resolver: Resolver = resolve_host
    #: Connects to a permitted address.
    connect: Connector = socket.create_connection

    def allowed_addresses(self, target: Target) -> list[str]:
        """Return the permitted addresses of a target, at least one.

        Raises `Unresolved` if the name has none now, `TargetRefused` if none of them is allowed.
        """
        try:
            addresses = self.resolver(target.host, target.port)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or str(error)
            text = f"{target.host} cannot be resolved: {why}. Check its spelling and DNS."
            raise Unresolved(text) from error
        refusals = {address: self._refusal(target, address) for address in addresses}
        permitted = [address for address, why in refusals.items() if not why]
        if permitted:
            return permitted
        for address, why in refusals.items():
            name = "It" if address == target.host else f"{target.host} resolves to {address}, which"
            raise TargetRefused(f"Not sent to {target.host}: {name} is {why}. {_REMEDY.format(target.host)}")
        raise Unresolved(f"{target.host} has no address. Check its spelling and DNS.")

    def _refusal(self, target: Target, address: str) -> str:
        """Return why connecting to an address is refused, "" if it is allowed."""
        try:
            plain = unwrap_address(ipaddress.ip_address(address))
        except ValueError:
            return "an address that cannot be read"
        why = address_refusal(plain)
        return "" if why and self._is_allowed(target, plain) else why

    def _is_allowed(self, target: Target, address: Address) -> bool:
        for name, port in map(split_port, self.allowed):
            if port not in (None, target.port):
                continue
            network = _network(name)
            if network is None:
                if name.rstrip(".").lower() == target.host:
                    return True
            elif address.version == network.version and address in network:
                return True
        return False


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Return the network of an entry of allow_private, without its port; None for a host name."""
    try:
        return ipaddress.ip_network(text.strip("[]"), strict=False)
    except ValueError:
        return None


def unwrap_address(address: Address) -> Address:
    """Return the IPv4 address inside an IPv6 one (mapped, NAT64), else the address itself."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def address_refusal(address: Address) -> str:
    """Return why an unwrapped address is not public, "" if it is."""
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id:
        return "an address of one interface"
    for network, what in _REFUSED:
        if address.version == network.version and address in network:
            return what
    if isinstance(address, ipaddress.IPv6Address) and address not in _PUBLIC_V6:
        return "not a public address"
    return ""
