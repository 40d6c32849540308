"""Read the settings of `make up` from its data folder, for management commands in a user's own shell.

The processes of a stack get these settings in their environment; a user's shell does not have them.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def sandbox_environment(data: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the data folder's settings for variables that are not set."""
    variables = _stack(data) | _files(data)
    return variables | {name: value for name, value in environment.items() if value}


def _stack(data: Path) -> dict[str, str]:
    with suppress(OSError, ValueError):
        described = json.loads((data / "stack.json").read_text())
        return {"REDIS_URL": described["redis"], "DATABASE_URL": described["database"]}
    return {}


def _files(data: Path) -> dict[str, str]:
    variables = {}
    with suppress(OSError):
        variables["SECRET_KEY"] = (data / "secrets" / "secret_key").read_text().strip()
    if (data / "fenceline.toml").is_file():
        variables["FENCELINE_CONFIG"] = str(data / "fenceline.toml")
    return variables
