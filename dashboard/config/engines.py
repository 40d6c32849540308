"""The REST APIs of engines in `fenceline.toml`: `rest` of `[[checkpoints]]`, and `[[connect]]`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dashboard.config.values import ConfigError, named_cluster, read_list, read_texts, refuse_unknown
from fenceline.engines.status import EngineKind

_LONGEST_URL = 300


@dataclass(frozen=True, slots=True)
class EngineEndpoint:
    """The REST API of an engine that writes to a cluster: `rest` of `[[checkpoints]]`, or `[[connect]]`."""

    kind: EngineKind
    url: str
    cluster: str
    #: Headers of each request, with secrets already read.
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Connect's `group.id`; "" if not given.
    group: str = ""


def read_engines(
    path: Path, document: Mapping[str, Any], clusters: Sequence[str], env: Mapping[str, str]
) -> Sequence[EngineEndpoint]:
    """Return the REST APIs in `[[checkpoints]]` and `[[connect]]`, each once."""
    endpoints = []
    for number, table in enumerate(read_list(path, "checkpoints", document), 1):
        if "rest" in table:
            where = f"checkpoints[{number}]"
            url = _api_url(path, f"{where}.rest", table["rest"])
            headers = read_texts(path, where, "rest_headers", table, env)
            cluster = named_cluster(path, where, table, clusters)
            endpoints.append(EngineEndpoint(EngineKind.FLINK, url, cluster, headers))
    for number, table in enumerate(read_list(path, "connect", document), 1):
        where = f"connect[{number}]"
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: {where} must be a table; write [[connect]].")
        refuse_unknown(path, f"{where}.", table, ("url", "cluster", "group", "headers"))
        url, group = _api_url(path, f"{where}.url", table.get("url")), table.get("group", "")
        if not isinstance(group, str):
            raise ConfigError(f"{path}: {where}.group must be text, not {group!r}.")
        cluster = named_cluster(path, where, table, clusters)
        headers = read_texts(path, where, "headers", table, env)
        endpoints.append(EngineEndpoint(EngineKind.CONNECT, url, cluster, headers, group))
    return list({(endpoint.cluster, endpoint.url): endpoint for endpoint in endpoints}.values())


def _api_url(path: Path, where: str, url: Any) -> str:
    remedy = 'write "http://HOST:PORT"'
    if not isinstance(url, str) or not url.startswith(("http://", "https://")) or len(url) > _LONGEST_URL:
        raise ConfigError(f"{path}: {where} must begin with http:// or https://, not {url!r}; {remedy}.")
    try:
        parts = urlsplit(url)
        is_plain = bool(parts.hostname) and not (parts.query or parts.fragment)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"{path}: {where}: {error}; {remedy}.") from error
    if "@" in parts.netloc:
        raise ConfigError(f"{path}: {where} has credentials: put them into headers, as env: or file:.")
    if not is_plain:
        raise ConfigError(f"{path}: {where} must be a host and a path alone, not {url!r}; {remedy}.")
    return url.rstrip("/")
