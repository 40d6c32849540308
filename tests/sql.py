"""Runs tests marked `sql` on SQLite and once more on a PostgreSQL of the tests' own. A pytest plugin.

    pytestmark = pytest.mark.sql                         # both
    pytest.mark.sql("postgresql")                        # what only this one can show

Of a test for both, PostgreSQL has the first set of parameters: the SQL is the same for all of them.
`make test-matrix` has every one there, with all of tests/db, tests/api and tests/web.

Such a test runs raw SQL, or leans on locks, upserts, concurrency or the order of text. With DATABASE_URL the
whole run is on that server, and nothing is repeated. Connections of other threads that a test leaves open
stay where they are: a test closes its own.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dj_database_url
import pytest
from django.core.management import call_command
from django.db import connections

from tests.databases import new_database
from tests.stack.postgres.server import Server

SQLITE, POSTGRESQL = "sqlite", "postgresql"
_MARKS = {POSTGRESQL: pytest.mark.postgresql}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a marked test the databases that it runs on."""
    marker = metafunc.definition.get_closest_marker("sql")
    if marker:
        named = marker.args or (SQLITE, POSTGRESQL)
        given = [pytest.param(name, marks=_MARKS.get(name, ())) for name in named]
        metafunc.parametrize("database", given, indirect=True, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where a whole run is on one server, leave out what is for another or would be there twice."""
    server = POSTGRESQL if os.environ["DATABASE_URL"].startswith("postgres") else ""
    left = [item for item in items if database_of(item) in ("", server)] if server else without_repeats(items)
    if len(left) < len(items):
        kept = set(left)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = left


def without_repeats(items: list[pytest.Item]) -> list[pytest.Item]:
    """Leave out what runs on PostgreSQL with other parameters than the first of its test."""
    seen: set[str] = set()

    def is_repeat(item: pytest.Item) -> bool:
        marker = item.get_closest_marker("sql")
        if marker is None or marker.args or database_of(item) != POSTGRESQL:
            return False
        test = item.nodeid.partition("[")[0]
        seen_before = test in seen
        seen.add(test)
        return seen_before

    return [item for item in items if not is_repeat(item)]


def database_of(item: pytest.Item) -> str:
    """Return the database that a test is for; "" for one that runs where the whole run does."""
    callspec = getattr(item, "callspec", None)
    named = ("database", "shared_database")
    return (
        next((str(callspec.params[name]) for name in named if name in callspec.params), "")
        if callspec
        else ""
    )


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of an empty database on a server of this process."""
    with Server() as server:
        yield server.new_database()


@pytest.fixture(scope="session", autouse=True)
def database(request: pytest.FixtureRequest) -> Iterator[None]:
    """Lead Django's connections to where a marked test runs."""
    whole_run = os.environ["DATABASE_URL"].startswith("postgres")
    if getattr(request, "param", SQLITE) == SQLITE or whole_run:
        yield
        return
    # pytest-django's own database comes first and goes last.
    request.getfixturevalue("django_db_setup")
    blocker = request.getfixturevalue("django_db_blocker")
    url = request.getfixturevalue("postgresql")
    parsed = connections.configure_settings({"default": dj_database_url.parse(url)})["default"]
    with switch_database(parsed):
        with blocker.unblock():
            call_command("migrate", verbosity=0)
        yield


@pytest.fixture(scope="module", params=[SQLITE, pytest.param(POSTGRESQL, marks=pytest.mark.postgresql)])
def shared_database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, django_db_blocker: Any
) -> Iterator[str]:
    """The URL of a migrated database that other threads and processes can open; Django leads there."""
    if request.param == SQLITE:
        path = tmp_path_factory.mktemp("database") / "fenceline.db"
        url, parsed = f"sqlite:///{path}", {**connections.settings["default"], "NAME": str(path)}
    else:
        url = new_database(request.getfixturevalue("postgresql"))
        parsed = connections.configure_settings({"default": dj_database_url.parse(url)})["default"]
    with django_db_blocker.unblock(), switch_database(parsed):
        call_command("migrate", verbosity=0)
        yield url


@contextmanager
def switch_database(settings: dict[str, Any]) -> Iterator[None]:
    """Make every new connection one by these settings, for the time of the block."""
    before = connections.settings["default"], connections["default"]
    connections.settings["default"] = settings
    connections["default"] = connections.create_connection("default")
    yield
    connections["default"].close()
    connections.settings["default"], connections["default"] = before
