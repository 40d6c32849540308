"""Check the readiness of a process: the problem of each part that pages need."""

from collections.abc import Collection

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.exceptions import MigrationSchemaMissing
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

#: The time limit for Redis, in seconds.
_TIMEOUT_S = 2.0


def find_troubles() -> dict[str, str]:
    """Return the problem of each part that pages need, or ""."""
    return {"database": _database(), "redis": _redis(), "migrations": _migrations()}


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        return _line(error)
    return ""


def _redis() -> str:
    try:
        with _redis_client() as client:
            client.ping()
    except (redis.RedisError, OSError, ValueError) as error:
        return _line(error)
    return ""


def redis_version() -> str:
    """Return the server and the version that Redis reports, as "valkey 9.1.2"; "" without a report.

    By HELLO: a user without administrative rights may not call INFO.
    """
    try:
        with _redis_client() as client:
            reply = client.execute_command("HELLO")
    except (redis.RedisError, OSError, ValueError):
        return ""
    fields = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=False))
    return f"{fields.get('server', '')} {fields.get('version', '')}".strip()


def _redis_client() -> redis.Redis:
    return redis.Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=_TIMEOUT_S,
        socket_connect_timeout=_TIMEOUT_S,
        decode_responses=True,
    )


def _migrations() -> str:
    try:
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except (DatabaseError, MigrationSchemaMissing) as error:
        return _line(error)
    to_run = f"{len(missing)} to run: manage.py prepare" if missing else ""
    return older_schema_reason(executor.loader) or to_run


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


_APP, _FIRST = "dashboard", "0001_squashed"
#: The commit of 0.1.0, which migrates older databases.
FIRST_RELEASE = "395f52b"


def newer_schema_reason(loader: MigrationLoader) -> str:
    """Return the migration that a newer version has added to the loader's database, as text, or ""."""
    newest = max(_names(loader.applied_migrations), default="")
    is_newer = newest > max(_names(loader.disk_migrations))
    return f"made by a newer Fenceline (it has {newest})" if is_newer else ""


def older_schema_reason(loader: MigrationLoader) -> str:
    """Return the remedy for a database that lacks the migrations of 0.1.0, "" otherwise.

    Its tables exist, so `migrate` would fail as it creates the first one.
    """
    applied = _names(loader.applied_migrations)
    if not applied or _FIRST in applied:
        return ""
    return (
        f"made by a Fenceline before 0.1.0 (it lacks {_FIRST}). Run `manage.py prepare`, or `make up`, "
        f"of commit {FIRST_RELEASE} on it first, or use an empty database (of `make up`: remove .data)"
    )


def _names(migrations: Collection[tuple[str, str]]) -> set[str]:
    return {name for app, name in migrations if app == _APP}
