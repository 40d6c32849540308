"""Why this version cannot use a database's schema: a newer version made it, or one before 0.1.0."""

from collections.abc import Collection

from django.db.migrations.loader import MigrationLoader

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
