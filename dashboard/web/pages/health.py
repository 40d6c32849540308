"""Whether this process lives, and whether it can serve; for supervisors and load balancers."""

from __future__ import annotations

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.exceptions import MigrationSchemaMissing
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from dashboard.system.schema import partial_schema_reason

#: Seconds Redis has to answer.
_TIMEOUT_S = 2.0


@never_cache
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Answer "ok": the process is alive. Looks at nothing else."""
    return HttpResponse("ok\n", content_type="text/plain; charset=utf-8")


@never_cache
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Answer 200 when pages can be served, else 503; names each part as true or as why it is not."""
    parts = find_troubles()
    states = {name: trouble or True for name, trouble in parts.items()}
    return JsonResponse(states, status=503 if any(parts.values()) else 200)


def find_troubles() -> dict[str, str]:
    """Return what is wrong with each part that pages stand on, "" where nothing is."""
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
        with redis.Redis.from_url(
            settings.REDIS_URL, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S
        ) as client:
            client.ping()
    except (redis.RedisError, OSError, ValueError) as error:
        return _line(error)
    return ""


def _migrations() -> str:
    try:
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except (DatabaseError, MigrationSchemaMissing) as error:
        return _line(error)
    to_run = f"{len(missing)} to run: manage.py prepare" if missing else ""
    return partial_schema_reason(executor.loader) or to_run


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
