"""What Docker Compose makes of a file, without Docker: variables, `extends`, files merged over each other.

Only what Fenceline's files use: `${NAME}`, `${NAME:-default}`, `${NAME:+value}`, no nesting, `!reset`.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from sandbox.options import ROOT

_VARIABLE = re.compile(r"\$\$|\$\{(\w+)(?::([-+])([^{}]*))?\}")
_RESET = object()


class _Loader(yaml.CSafeLoader):
    """YAML with Compose's own tag."""


_Loader.add_constructor("!reset", lambda loader, node: _RESET)


def load(environment: Mapping[str, str], *names: str) -> Any:
    """Return the files as one document, as Compose reads them with these variables and no others."""
    merged: Any = {}
    for name in names or ("docker-compose.yml",):
        path = ROOT / name
        merged = merge(merged, _extended(parse(path.read_text(), environment), path.parent, environment))
    return merged


def parse(text: str, environment: Mapping[str, str]) -> Any:
    """Return one document with its variables replaced."""
    return _interpolated(yaml.load(text, _Loader), environment)


def merge(under: Any, over: Any) -> Any:
    """Return mappings merged, and of everything else the latter."""
    if not isinstance(under, dict) or not isinstance(over, dict):
        return over
    both = {key: merge(under[key], over[key]) if key in under else over[key] for key in over}
    return {key: value for key, value in (under | both).items() if value is not _RESET}


def interpolate(text: str, environment: Mapping[str, str]) -> str:
    """Return a text with its variables replaced."""

    def value(found: re.Match[str]) -> str:
        name, operator, word = found.groups()
        if name is None:
            return "$"
        given = environment.get(name, "")
        if operator == "+":
            return word if given else ""
        return given or word or ""

    return _VARIABLE.sub(value, text)


def _interpolated(node: Any, environment: Mapping[str, str]) -> Any:
    if isinstance(node, dict):
        return {key: _interpolated(value, environment) for key, value in node.items()}
    if isinstance(node, list):
        return [_interpolated(value, environment) for value in node]
    return interpolate(node, environment) if isinstance(node, str) else node


def _extended(document: Any, folder: Path, environment: Mapping[str, str]) -> Any:
    for name, service in document.get("services", {}).items():
        if base := service.pop("extends", None):
            other = parse((folder / base["file"]).read_text(), environment)
            document["services"][name] = merge(other["services"][base["service"]], service)
    return document
