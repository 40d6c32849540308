"""Why this version cannot use a database's schema: a newer version made it, or it has only some of the
migrations that a squashed one replaces.
"""

from __future__ import annotations

from django.db.migrations.loader import MigrationLoader

_APP = "dashboard"
#: The last commit with the migrations that `0001_squashed` replaces.
LAST_UNSQUASHED = "1d84c44"


def newer_schema_reason(loader: MigrationLoader) -> str:
    """Return the migration that a newer version has added to the loader's database, as text, or ""."""
    known = set(loader.disk_migrations).union(
        *(migration.replaces for migration in loader.replacements.values())
    )
    unknown = [name for app, name in loader.applied_migrations.keys() - known if app == _APP]
    return f"made by a newer Fenceline (it has {max(unknown)})" if unknown else ""


def partial_schema_reason(loader: MigrationLoader) -> str:
    """Return what an older version's database lacks and the remedy, "" if it lacks nothing.

    Django does not use a squashed migration there: `migrate` would find nothing to run.
    """
    for (app, _), squashed in loader.replacements.items():
        missing = [name for _, name in squashed.replaces if (app, name) not in loader.applied_migrations]
        if app == _APP and 0 < len(missing) < len(squashed.replaces):
            return (
                f"made by an older Fenceline (it lacks {missing[0]}). Run `manage.py prepare`, or `make up`, "
                f"of commit {LAST_UNSQUASHED} on it first, or use an empty database (of `make up`: "
                "remove .data)"
            )
    return ""
