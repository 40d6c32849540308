"""Parse values of `fenceline.toml`: tables, lists, secrets. A mistake is a ConfigError."""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any


class ConfigError(Exception):
    """The configuration is unusable; the text has the place and the remedy, always in one line."""

    def __init__(self, text: str) -> None:
        super().__init__(text.replace("\n", "\\n"))


def parse_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}). Check CONFIG.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text at byte {error.start}. Save it as UTF-8.") from error
    except ValueError as error:  # invalid TOML, or a number with more digits than Python reads
        raise ConfigError(f"{path}: is not valid TOML: {error}.") from error


def read_table(path: Path, key: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
    table = document.get(key, {})
    if not isinstance(table, dict):
        header = "clusters.NAME" if key == "clusters" else key
        raise ConfigError(f"{path}: '{key}' must be a table; write [{header}].")
    return table


def refuse_unknown(
    path: Path,
    where: str,
    table: Mapping[str, Any],
    known: tuple[str, ...],
    removed: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Raise ConfigError at the first unknown key; `removed` has the reasons for former keys."""
    for key in table:
        if key in removed:
            raise ConfigError(f"{path}: '{where}{key}' was removed; delete it. {removed[key]}")
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}."
            raise ConfigError(f"{path}: unknown key '{where}{key}'; {hint}")


def read_list(path: Path, key: str, document: Mapping[str, Any]) -> Sequence[Any]:
    tables = document.get(key, [])
    if not isinstance(tables, list):
        raise ConfigError(f"{path}: '{key}' must be a list of tables; write [[{key}]].")
    return tables


def read_texts(
    path: Path, where: str, key: str, table: Mapping[str, Any], env: Mapping[str, str]
) -> Mapping[str, str]:
    texts = table.get(key, {})
    if not isinstance(texts, dict):
        raise ConfigError(f'{path}: {where}.{key} must be a table; write {key} = {{ "a" = "b" }}.')
    return {name: read_property(path, f'{where}.{key}."{name}"', value, env) for name, value in texts.items()}


def read_property(path: Path, where: str, value: Any, env: Mapping[str, str]) -> str:
    if isinstance(value, dict):
        raise ConfigError(f'{path}: {where} is a table; quote dotted names: "security.protocol" = "…".')
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, (str, int, float)):
        raise ConfigError(f"{path}: {where} must be text or a number.")
    return read_secret(path, where, str(value), env)


def read_secret(path: Path, where: str, value: str, env: Mapping[str, str]) -> str:
    if value.startswith("env:"):
        name = value.removeprefix("env:")
        if name not in env:
            raise ConfigError(f"{path}: {where} asks for the environment variable {name}, which is not set.")
        return env[name]
    if value.startswith("file:"):
        file = value.removeprefix("file:")
        try:
            return Path(file).read_text().rstrip("\n")
        except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a path with a NUL
            raise ConfigError(f"{path}: {where}: cannot read {file}: {error}") from error
    return value


def is_number(value: Any, *kinds: Any) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool) and bool(0 <= value < 10**9)


def named_cluster(path: Path, where: str, table: Mapping[str, Any], clusters: Sequence[str]) -> str:
    cluster = table.get("cluster", clusters[0] if len(clusters) == 1 else "")
    if cluster not in clusters:
        names = ", ".join(clusters) or "none"
        raise ConfigError(f"{path}: {where}.cluster must name a cluster ({names}), not {cluster!r}.")
    return str(cluster)
