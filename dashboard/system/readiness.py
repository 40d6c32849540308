"""Check the readiness of a process: the problem of each part that pages need."""

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.exceptions import MigrationSchemaMissing
from django.db.migrations.executor import MigrationExecutor

from dashboard.system.schema import older_schema_reason

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
