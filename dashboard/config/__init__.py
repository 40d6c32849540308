"""Read `fenceline.toml`: the clusters to watch, the rules' limits, the retention of history.

Every mistake of a user ends in one `ConfigError` that names the file, the key and the remedy.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from dashboard.config.engines import EngineEndpoint as EngineEndpoint
from dashboard.config.engines import read_engines
from dashboard.config.identity import IdentityProvider, SignInProxy, read_providers, read_proxy
from dashboard.config.values import ConfigError as ConfigError
from dashboard.config.values import (
    is_number,
    named_cluster,
    parse_toml,
    read_list,
    read_property,
    read_table,
    read_texts,
    refuse_unknown,
)
from fenceline.alerts.engine import Alerting, split_port
from fenceline.authentication.java import translate_properties
from fenceline.authentication.mechanisms import find_mistakes
from fenceline.findings import removed_rule
from fenceline.kafka.applications import LONGEST
from fenceline.kafka.scope import EVERYTHING, Scope
from fenceline.limits import Limits, Retention
from fenceline.owners import Owner
from fenceline.plans.plan import Act

_SECTIONS = (
    "clusters",
    "limits",
    "retention",
    "owners",
    "checkpoints",
    "connect",
    "identity_providers",
    "sign_in_proxy",
    "actions",
    "history",
    "audit",
    "alerts",
)
_REMOVED_SECTIONS = {"state_keys": "Spark itself reads the state of a query (docs/checkpoints.md)."}
#: Limits of removed rules.
_REMOVED_NUMBERS = {
    "collector_on_time_s": removed_rule("collector_behind"),
    "habit_events": removed_rule("abort_rate_anomaly"),
    "habit_factor": removed_rule("abort_rate_anomaly"),
    "rotations_per_day": removed_rule("epoch_burn"),
}
#: Fenceline's own keys of a cluster; all others are librdkafka's, or the same in Java's and Spark's names.
_SEES_ALL, _READ_ONLY, _PAYLOADS = "sees_all_transactional_ids", "read_only", "payloads"
_SCOPE = "scope"
_ZERO_IS_OFF = (
    "reconcile_every_s",
    "partitions_every_s",
    "groups_every_s",
    "checkpoints_every_s",
    "engines_every_s",
    "markers_mb",
)
_SECRET_WORDS = ("password", "passphrase", "secret", "key.pem", "oauthbearer.config")
_NAME_REMEDY = "use letters, digits, '-', '_' and '.', at most 64 of them"


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """One `[clusters.NAME]`: properties by librdkafka's names, with secrets already read."""

    name: str
    properties: Mapping[str, str]
    #: Whether the operator guarantees that no transactional id is hidden from this principal.
    sees_all_transactional_ids: bool = False
    #: The part of the cluster that may be read.
    scope: Scope = EVERYTHING
    #: Whether actions on this cluster are forbidden.
    read_only: bool = False
    #: Whether keys and values of records may be shown to users with the permission for it.
    payloads: bool = False

    @property
    def bootstrap(self) -> str:
        """Return the bootstrap servers, `host:port` separated by commas."""
        return self.properties["bootstrap.servers"]

    def redacted_properties(self) -> dict[str, str]:
        """Return the properties and our own settings for a page or a log, with all secrets hidden."""
        flags = {_READ_ONLY: self.read_only, _PAYLOADS: self.payloads}
        ours = {_SCOPE: str(self.scope), **{key: "true" if is_set else "" for key, is_set in flags.items()}}
        secret = {key for key in self.properties if any(word in key for word in _SECRET_WORDS)}
        shown = {key: "(hidden)" if key in secret else value for key, value in self.properties.items()}
        return shown | {key: value for key, value in ours.items() if value}


class CheckpointKind(StrEnum):
    """The engine of the checkpoints in a `[[checkpoints]]`."""

    SPARK = "spark"
    FLINK = "flink"


@dataclass(frozen=True, slots=True)
class CheckpointRoot:
    """One `[[checkpoints]]`: a folder of checkpoints of queries or of jobs, and their cluster."""

    #: In the file's spelling; `fenceline.spark.paths` converts it for fsspec.
    root: str
    cluster: str
    #: Our prefix by Spark's or Flink's prefix of the same place.
    map: Mapping[str, str] = field(default_factory=dict)
    #: fsspec's storage options, secrets already read.
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Config:
    """The contents of `fenceline.toml`."""

    path: Path | None = None
    clusters: Mapping[str, ClusterConfig] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    retention: Retention = field(default_factory=Retention)
    owners: Sequence[Owner] = ()
    #: Roots of Spark's queries, and of Flink's jobs.
    checkpoints: Sequence[CheckpointRoot] = ()
    flink_checkpoints: Sequence[CheckpointRoot] = ()
    #: JobManagers and Connect workers whose REST APIs are polled.
    engines: Sequence[EngineEndpoint] = ()
    identity_providers: Sequence[IdentityProvider] = ()
    sign_in_proxy: SignInProxy | None = None
    #: Acts that another person than the planner must confirm.
    second_person: frozenset[str] = frozenset()
    #: The history job's output, any fsspec URL; "" for none.
    history_url: str = ""
    #: The audit job's output, any fsspec URL; "" for none.
    audit_url: str = ""
    alerts: Alerting = field(default_factory=Alerting)

    @property
    def sign_in_names(self) -> frozenset[str]:
        proxies = [self.sign_in_proxy.provider] if self.sign_in_proxy else []
        return frozenset(provider.name for provider in (*self.identity_providers, *proxies))


def load_config(path: Path | None, env: Mapping[str, str]) -> Config:
    """Return the configuration in the file at `path`; without a path, one without clusters.

    Raises `ConfigError` for an unreadable file, invalid TOML, unknown keys and bad values. `env` resolves the
    `env:NAME` secrets.
    """
    if path is None:
        return Config()
    document = parse_toml(path)
    refuse_unknown(path, "", document, _SECTIONS, _REMOVED_SECTIONS)
    clusters = read_table(path, "clusters", document)
    roots = _checkpoint_roots(path, read_list(path, "checkpoints", document), list(clusters), env)
    return Config(
        path=path,
        clusters={name: _cluster(path, name, clusters[name], env) for name in clusters},
        limits=Limits(**_numbers(path, "limits", document, Limits, "seconds")),
        retention=Retention(**_numbers(path, "retention", document, Retention, "days")),
        owners=[
            _owner(path, number, entry) for number, entry in enumerate(read_list(path, "owners", document), 1)
        ],
        checkpoints=roots[CheckpointKind.SPARK],
        flink_checkpoints=roots[CheckpointKind.FLINK],
        engines=read_engines(path, document, list(clusters), env),
        identity_providers=read_providers(path, document, env),
        sign_in_proxy=read_proxy(path, document),
        second_person=_second_person(path, read_table(path, "actions", document)),
        history_url=_url(path, "history", document),
        audit_url=_url(path, "audit", document),
        alerts=_alerts(path, document),
    )


def _cluster(path: Path, name: str, table: Any, env: Mapping[str, str]) -> ClusterConfig:
    where = f"clusters.{name}"
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: '{where}' must be a table; write [{where}].")
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
        raise ConfigError(f"{path}: '{where}' is not a usable cluster name; {_NAME_REMEDY}.")
    flags = {key: table.get(key, False) for key in (_SEES_ALL, _READ_ONLY, _PAYLOADS)}
    for key, value in flags.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{path}: {where}.{key} must be true or false, not {value!r}.")
    scope = _scope(path, f"{where}.{_SCOPE}", table.get(_SCOPE, {}))
    theirs = {key: value for key, value in table.items() if key not in (*flags, _SCOPE)}
    properties = {key: read_property(path, f'{where}."{key}"', value, env) for key, value in theirs.items()}
    properties, refused = translate_properties(properties)
    for key, reason in (refused or find_mistakes(properties)).items():
        raise ConfigError(f'{path}: {where}."{key}" {reason}.')
    if not properties.get("bootstrap.servers"):
        raise ConfigError(f'{path}: {where} lacks "bootstrap.servers"; set it to "host:port".')
    return ClusterConfig(name, properties, scope=scope, **flags)


def _scope(path: Path, where: str, table: Any) -> Scope:
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: '{where}' must be a table; write [{where}].")
    names = tuple(field.name for field in fields(Scope))
    refuse_unknown(path, f"{where}.", table, names)
    for key, patterns in table.items():
        if not isinstance(patterns, list) or not patterns or not all(map(_is_pattern, patterns)):
            raise ConfigError(
                f'{path}: {where}.{key} must be a list of names, or of beginnings such as "orders-*", '
                f"not {patterns!r}."
            )
    return Scope(**{key: tuple(patterns) for key, patterns in table.items()})


def _is_pattern(pattern: object) -> bool:
    return isinstance(pattern, str) and bool(pattern) and "*" not in pattern[:-1]


def _owner(path: Path, number: int, table: Any) -> Owner:
    where = f"owners[{number}]"
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {where} must be a table; write [[owners]].")
    refuse_unknown(path, f"{where}.", table, Owner._fields)
    for key, value in table.items():
        if not isinstance(value, str):
            raise ConfigError(f"{path}: {where}.{key} must be text, not {value!r}.")
    if not table.get("match") or not table.get("team"):
        raise ConfigError(f'{path}: {where} needs both: match = "payments-*" and team = "…".')
    application = table.get("application", "")
    if len(application) > LONGEST or not application.isprintable():
        raise ConfigError(
            f"{path}: {where}.application must be up to {LONGEST} printable characters, not {application!r}."
        )
    runbook = table.get("runbook", "")
    if runbook and not runbook.startswith(("https://", "http://")):
        raise ConfigError(f"{path}: {where}.runbook must begin with https:// or http://, not {runbook!r}.")
    return Owner(**table)


def _checkpoint_roots(
    path: Path, tables: Sequence[Any], clusters: Sequence[str], env: Mapping[str, str]
) -> Mapping[CheckpointKind, Sequence[CheckpointRoot]]:
    """Return every `[[checkpoints]]` by its kind, by default Spark's."""
    roots: dict[CheckpointKind, list[CheckpointRoot]] = {kind: [] for kind in CheckpointKind}
    for number, table in enumerate(tables, 1):
        root = _checkpoint_root(path, number, table, clusters, env)
        kind = table.get("kind", CheckpointKind.SPARK)
        if kind not in set(CheckpointKind):
            names = " or ".join(f'"{kind}"' for kind in CheckpointKind)
            raise ConfigError(f"{path}: checkpoints[{number}].kind must be {names}, not {kind!r}.")
        roots[CheckpointKind(kind)].append(root)
    return roots


def _checkpoint_root(
    path: Path, number: int, table: Any, clusters: Sequence[str], env: Mapping[str, str]
) -> CheckpointRoot:
    """Return one `[[checkpoints]]`; with a single cluster, it need not name it."""
    where = f"checkpoints[{number}]"
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {where} must be a table; write [[checkpoints]].")
    known = ("root", "kind", "cluster", "map", "options", "rest", "rest_headers")
    refuse_unknown(path, f"{where}.", table, known)
    root = table.get("root")
    if not isinstance(root, str) or not root:
        raise ConfigError(
            f'{path}: {where} lacks root; set it to the folder: root = "s3a://bucket/checkpoints".'
        )
    if "rest" in table and table.get("kind") != CheckpointKind.FLINK:
        raise ConfigError(f'{path}: {where}.rest is of Flink: it needs kind = "flink".')
    cluster = named_cluster(path, where, table, clusters)
    return CheckpointRoot(
        root,
        cluster,
        read_texts(path, where, "map", table, env),
        read_texts(path, where, "options", table, env),
    )


def _url(path: Path, section: str, document: Mapping[str, Any]) -> str:
    """Return the `url` of a section without other keys."""
    table = read_table(path, section, document)
    refuse_unknown(path, f"{section}.", table, ("url",))
    url = table.get("url", "")
    if not isinstance(url, str):
        raise ConfigError(f"{path}: {section}.url must be text, not {url!r}.")
    return url


def _alerts(path: Path, document: Mapping[str, Any]) -> Alerting:
    """Return `[alerts]`; each value must have the type of its default, and numbers must not be negative."""
    table = read_table(path, "alerts", document)
    known = {option.name: option.default for option in fields(Alerting)}
    refuse_unknown(path, "alerts.", table, tuple(known))
    return Alerting(**{key: _alerts_value(path, key, value, known[key]) for key, value in table.items()})


def _alerts_value(path: Path, key: str, value: Any, default: Any) -> Any:
    where = f"{path}: alerts.{key}"
    if isinstance(default, tuple):
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise ConfigError(f'{where} must be a list of texts, ["a", "b"], not {value!r}.')
        for entry in value if key == "allow_private" else ():
            _network_or_name(where, entry)
        return tuple(value)
    if isinstance(default, str):
        if not isinstance(value, str) or not value.startswith(("http://", "https://")):
            raise ConfigError(f"{where} must begin with https:// or http://, not {value!r}.")
        return value.rstrip("/")
    if not is_number(value, int, type(default)):
        what = "a whole number" if isinstance(default, int) else "a number of seconds"
        raise ConfigError(f"{where} must be {what}, 0 or more, not {value!r}.")
    return type(default)(value)


def _network_or_name(where: str, entry: str) -> None:
    """Check one entry of allow_private: a network has a slash and no port, other entries are host names."""
    if "://" in entry or not entry.strip():
        raise ConfigError(f"{where} takes host names and CIDRs, not {entry!r}.")
    name, port = split_port(entry)
    if port is not None and not 1 <= port <= 65_535:
        raise ConfigError(f"{where}: {entry!r} has no port from 1 to 65535. Write HOST:PORT.")
    try:
        ipaddress.ip_network(name if "/" in name else "::", strict=False)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}. Write a CIDR, 10.20.0.0/16, or a host's name.") from error


def _numbers(
    path: Path, section: str, document: Mapping[str, Any], of: type[Limits] | type[Retention], unit: str
) -> dict[str, float]:
    """Return a section of numbers, each a field of `of`, above 0 except those that 0 turns off.

    Limits whose names do not end in `_s` have no unit.
    """
    table = read_table(path, section, document)
    refuse_unknown(path, f"{section}.", table, tuple(f.name for f in fields(of)), _REMOVED_NUMBERS)
    for key, value in table.items():
        off = key in _ZERO_IS_OFF
        what = f"a number of {unit}" if of is Retention or key.endswith("_s") else "a number"
        what += ", 0 or more" if off else " above 0"
        if not is_number(value, int, float) or (value == 0 and not off):
            raise ConfigError(f"{path}: {section}.{key} must be {what}, not {value!r}.")
    return dict(table)


def _second_person(path: Path, table: Mapping[str, Any]) -> frozenset[str]:
    refuse_unknown(path, "actions.", table, ("second_person",))
    acts = table.get("second_person", [])
    known = [act.value for act in Act]
    if not isinstance(acts, list) or not set(map(str, acts)) <= set(known):
        wrong = f"a list of {', '.join(known)}, not {acts!r}"
        raise ConfigError(f"{path}: actions.second_person must be {wrong}.")
    return frozenset(acts)


def environment_path(env: Mapping[str, str]) -> Path | None:
    """Return the path in FENCELINE_CONFIG, None without one."""
    value = env.get("FENCELINE_CONFIG", "")
    return Path(value) if value else None
