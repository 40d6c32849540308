"""The identity providers in `fenceline.toml`: `[[identity_providers]]`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dashboard.config.values import ConfigError, is_number, read_list, read_secret, read_table, refuse_unknown

#: In ascending order, as `dashboard.system.access.ROLES`.
_ROLES = ("viewer", "operator", "admin")
_TEXTS = ("name", "label", "issuer", "client_id", "client_secret", "scope", "username_claim", "groups_claim")
_NEEDED = ("name", "issuer", "client_id", "client_secret")
#: The usual headers of a proxy that signs users in.
_HEADERS = {"user": "X-Forwarded-User", "groups": "X-Forwarded-Groups"}
_LONGEST_SESSION_H = 24 * 31


@dataclass(frozen=True, slots=True)
class IdentityProvider:
    """One OpenID Connect provider, and the roles of its groups."""

    #: Part of its callback's address.
    name: str
    issuer: str
    client_id: str
    client_secret: str
    #: Its name on the sign-in page.
    label: str
    #: Group and role, in the order of roles: a user's last one is used.
    roles: tuple[tuple[str, str], ...]
    scope: str = "openid profile"
    username_claim: str = "preferred_username"
    groups_claim: str = "groups"
    #: Group and its grants, in the form of `dashboard.system.access.granted_roles`; empty: every user sees
    #: all clusters.
    clusters: tuple[tuple[str, tuple[str, ...]], ...] = ()
    #: After this many hours a user must sign in again, and gets the role of the present groups.
    session_h: int = 8
    #: Maximum difference of its clock from ours, in seconds.
    leeway_s: int = 60


@dataclass(frozen=True, slots=True)
class SignInProxy:
    """`[sign_in_proxy]`: a proxy that signs users in, and sends headers as their claims."""

    #: Networks of the proxy's requests.
    networks: tuple[IPv4Network | IPv6Network, ...]
    provider: IdentityProvider

    def sends_from(self, address: str) -> bool:
        try:
            return any(ip_address(address) in network for network in self.networks)
        except ValueError:
            return False


def read_proxy(path: Path, document: Mapping[str, Any]) -> SignInProxy | None:
    """Return `[sign_in_proxy]`, None without one; raises ConfigError."""
    table, where = read_table(path, "sign_in_proxy", document), "sign_in_proxy"
    if not table:
        return None
    refuse_unknown(path, f"{where}.", table, ("addresses", "user", "groups", *_ROLES, "clusters"))
    headers = {key: table.get(key, usual) for key, usual in _HEADERS.items()}
    for key, value in headers.items():
        if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9-]+", value):
            raise ConfigError(f"{path}: {where}.{key} must be the name of a header, not {value!r}.")
    return SignInProxy(
        _networks(path, f"{where}.addresses", table.get("addresses")),
        IdentityProvider(
            name="proxy",
            issuer="",
            client_id="",
            client_secret="",
            label="the proxy",
            roles=_roles(path, where, table),
            username_claim=headers["user"],
            groups_claim=headers["groups"],
            clusters=_clusters(path, f"{where}.clusters", table.get("clusters", {})),
        ),
    )


def _networks(path: Path, where: str, addresses: Any) -> tuple[IPv4Network | IPv6Network, ...]:
    try:
        if isinstance(addresses, list) and addresses:
            return tuple(map(ip_network, addresses))
    except ValueError as error:
        raise ConfigError(f"{path}: {where}: {error}.") from error
    raise ConfigError(f'{path}: {where} must name where the proxy is: write ["127.0.0.1", "10.0.0.0/8"].')


def read_providers(
    path: Path, document: Mapping[str, Any], env: Mapping[str, str]
) -> Sequence[IdentityProvider]:
    """Return every `[[identity_providers]]`; raises ConfigError."""
    tables = read_list(path, "identity_providers", document)
    providers = [_provider(path, number, table, env) for number, table in enumerate(tables, 1)]
    names = [provider.name for provider in providers]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise ConfigError(f"{path}: two identity_providers are called {twice!r}: rename one.")
    return providers


def _provider(path: Path, number: int, table: Any, env: Mapping[str, str]) -> IdentityProvider:
    where = f"identity_providers[{number}]"
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {where} must be a table; write [[identity_providers]].")
    refuse_unknown(path, f"{where}.", table, (*_TEXTS, *_ROLES, "clusters", "session_h", "leeway_s"))
    texts = {key: table[key] for key in _TEXTS if key in table}
    for key, value in texts.items():
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{path}: {where}.{key} must be text, not {value!r}.")
    if missing := [key for key in _NEEDED if key not in texts]:
        raise ConfigError(f"{path}: {where} lacks {', '.join(missing)}.")
    if not re.fullmatch(r"[a-z0-9-]{1,32}", texts["name"]):
        raise ConfigError(f"{path}: {where}.name must have lower-case letters, digits and '-' alone.")
    numbers = {key: table[key] for key in ("session_h", "leeway_s") if key in table}
    _check_numbers(path, where, numbers)
    return IdentityProvider(
        **texts
        | {"label": texts.get("label", texts["name"])}
        | {"issuer": _issuer(path, where, texts["issuer"])}
        | {"client_secret": read_secret(path, f"{where}.client_secret", texts["client_secret"], env)}
        | numbers,
        roles=_roles(path, where, table),
        clusters=_clusters(path, f"{where}.clusters", table.get("clusters", {})),
    )


def _clusters(path: Path, where: str, table: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    remedy = 'write clusters = { "GROUP" = ["CLUSTER", "CLUSTER=ROLE"] }'
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {where} must be a table; {remedy}.")
    for group, names in table.items():
        if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
            raise ConfigError(
                f'{path}: {where}."{group}" must be a list of clusters, not {names!r}; {remedy}.'
            )
        if wrong := [name for name in names if not _is_grant(name)]:
            known = f'CLUSTER, "*" or CLUSTER=ROLE, ROLE one of {", ".join(_ROLES)}'
            raise ConfigError(f'{path}: {where}."{group}": {wrong[0]!r} is none of {known}.')
    return tuple((group, tuple(names)) for group, names in table.items())


def _is_grant(name: str) -> bool:
    cluster, has_role, role = name.partition("=")
    return not has_role or (role in _ROLES and cluster not in ("", "*"))


def _check_numbers(path: Path, where: str, numbers: Mapping[str, Any]) -> None:
    longest = {"session_h": (1, _LONGEST_SESSION_H), "leeway_s": (0, 600)}
    for key, value in numbers.items():
        least, most = longest[key]
        if not is_number(value, int) or not least <= value <= most:
            raise ConfigError(
                f"{path}: {where}.{key} must be a number from {least} to {most}, not {value!r}."
            )


def _issuer(path: Path, where: str, issuer: str) -> str:
    """Return an issuer; it is compared letter by letter with the provider's own."""
    parts = urlsplit(issuer)
    if parts.scheme == "https" and parts.hostname and not (parts.query or parts.fragment):
        return issuer
    if parts.scheme == "http" and _is_loopback(parts.hostname or ""):
        return issuer
    raise ConfigError(f"{path}: {where}.issuer must be an https:// address without a query, not {issuer!r}.")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _roles(path: Path, where: str, table: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    roles = []
    for role in _ROLES:
        groups = table.get(role, [])
        if not isinstance(groups, list) or not all(isinstance(name, str) and name for name in groups):
            raise ConfigError(
                f'{path}: {where}.{role} must be a list of groups such as ["sre"], not {groups!r}.'
            )
        roles += [(group, role) for group in groups]
    if not roles:
        raise ConfigError(f'{path}: {where} gives nobody a role: write viewer = ["GROUP"] or another role.')
    return tuple(roles)
