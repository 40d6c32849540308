"""What holds for every test: a database that was made for them is dropped, whoever is still connected; and in
this process files are read and passwords hashed at little cost."""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.signals import setting_changed
from django.db import connection, transaction
from django.template import Template
from django.test import override_settings

from dashboard.flow.queries import flow_of_revision
from dashboard.models import AuditEntry
from dashboard.system import access
from fenceline.kafka.applications import name_applications


class MigratedTables:
    """The database in memory that Django's connections of this process share, and its copy in a file."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = folder / "migrated.sqlite3"
        self._lock = (folder / "migrated.lock").open("w")
        # It lasts as long as one connection to it.
        self._memory = sqlite3.connect(name, uri=True)

    def restore(self) -> None:
        """Copy the tables of a worker that has made them, or keep others waiting until `keep`."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        if self._file.exists():
            with closing(sqlite3.connect(self._file)) as copy:
                copy.backup(self._memory)
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def keep(self) -> None:
        """Copy the tables for other workers, unless they are from there."""
        if not self._file.exists():
            with closing(sqlite3.connect(self._file)) as copy:
                self._memory.backup(copy)
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the connection and the lock."""
        self._memory.close()
        self._lock.close()


#: As it is before Django's test environment has each template announced.
_RENDER = Template._render


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MigratedTables | None]:
    """Copy the tables that another worker has migrated, which took 1.6 CPU seconds; None without others."""
    if connection.vendor != "sqlite" or "PYTEST_XDIST_WORKER" not in os.environ:
        yield None
        return
    tables = MigratedTables(tmp_path_factory.getbasetemp().parent, connection.creation._get_test_db_name())
    tables.restore()
    yield tables
    tables.close()


@pytest.fixture(scope="session")
def django_db_setup(
    migrated: MigratedTables | None, django_db_setup: None, django_db_blocker: Any
) -> Iterator[None]:
    """Make the roles once, as `prepare` does, and in the end close what threads of the tests left open.

    Making them takes 30 ms, a tenth of tests/web. PostgreSQL drops no database that somebody uses.
    """
    if migrated:
        migrated.keep()
    with django_db_blocker.unblock():
        access.ensure_roles()
        AuditEntry.objects.all().delete()
    yield
    if connection.vendor == "postgresql":
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )


@pytest.fixture(scope="module")
def rows_of_module(database: None, django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Let a fixture of a module write rows once: each test sees them, and what it writes itself is undone.

    Tests marked `sql` change the database in between: it has them once for each.
    """
    with django_db_blocker.unblock(), transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.fixture(scope="session", autouse=True)
def applications_are_named_as_settings_are(django_test_environment: None) -> Iterator[None]:
    """Let owners of a test's configuration name applications, as those of a process do from its start on."""

    def follow(*, setting: str, value: Any, **_: Any) -> None:
        if setting == "FENCELINE":
            name_applications(value.owners if value is not None else settings.FENCELINE.owners)

    setting_changed.connect(follow)
    yield
    setting_changed.disconnect(follow)


@pytest.fixture(autouse=True)
def no_flow_is_kept() -> None:
    """Let each test derive its flows: clusters of several tests have one key and one revision."""
    flow_of_revision.cache_clear()


@pytest.fixture(scope="session", autouse=True)
def nothing_is_slow_by_design(django_test_environment: None) -> Iterator[None]:
    """WhiteNoise else reads all files for each client of a test, a sixth of the time of tests/web.

    And the real hasher is slow on purpose, while what is tested is not its strength. Django's test client
    keeps a copy of the context of each template, which no test reads: a twentieth of tests/web.
    """
    hashers = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    Template._render = _RENDER
    with override_settings(WHITENOISE_AUTOREFRESH=True, PASSWORD_HASHERS=hashers):
        yield
