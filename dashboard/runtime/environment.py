"""Settings from the environment, and from files: secrets as Docker and Kubernetes mount them (`NAME_FILE` is
the path of NAME's value), and those of `make up`, for management commands in a user's own shell.

The processes of a stack get its settings in their environment; a user's shell does not have them.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

#: Variables that may be given as files; a URL may contain a password.
SECRETS = (
    "SECRET_KEY",
    "DATABASE_URL",
    "POSTGRES_PASSWORD",
    "REDIS_URL",
    "FENCELINE_ADMIN_PASSWORD",
    "FENCELINE_INGEST_TOKEN",
)


class SecretError(Exception):
    """A secret cannot be read; the text has its name, the reason and the remedy."""


def read_secret(environment: Mapping[str, str], name: str) -> str:
    """Return the value of NAME, or the text of the file that NAME_FILE names; "" if neither is set.

    Line ends around the text are stripped. Raises `SecretError` if both are set, and for an empty or
    unreadable file.
    """
    value, path = environment.get(name, ""), environment.get(f"{name}_FILE", "")
    if not path:
        return value
    if value:
        raise SecretError(f"{name} and {name}_FILE are both set: keep one of them.")
    try:
        text = Path(path).read_text().strip("\r\n")
    except OSError as error:
        remedy = f"Name a file that this process, user {os.getuid()}, may read."
        raise SecretError(f"{name}_FILE={path}: {error.strerror}. {remedy}") from error
    except UnicodeDecodeError:
        raise SecretError(f"{name}_FILE={path}: is not text in UTF-8.") from None
    if not text:
        raise SecretError(f"{name}_FILE={path}: the file is empty. Write the secret into it.")
    return text


def with_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with every secret from a file under its own name."""
    return {**environment, **{name: read_secret(environment, name) for name in SECRETS}}


def sandbox_environment(data: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the data folder's settings for variables that are not set."""
    variables: dict[str, str] = {}
    with suppress(OSError, ValueError):
        described = json.loads((data / "stack.json").read_text())
        variables |= {"REDIS_URL": described["redis"], "DATABASE_URL": described["database"]}
    with suppress(OSError):
        variables["SECRET_KEY"] = (data / "secrets" / "secret_key").read_text().strip()
    if (data / "fenceline.toml").is_file():
        variables["FENCELINE_CONFIG"] = str(data / "fenceline.toml")
    return variables | {name: value for name, value in environment.items() if value}
