"""Proves the upgrade and the way back of docs/deploying.md on a real PostgreSQL, and on SQLite: the former
release's own program makes a database, this one migrates it and keeps what is in it, the dump or the copied
file brings the former back.

The commands are those of the text, run by PostgreSQL's programs here instead of in a container.
"""

import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from sandbox.options import ROOT
from tests.stack.postgres.server import Server, programs

#: What was deployed last; move it at each release.
FORMER = "395f52ba8d1f29402af5ed1dd391dbe5e4faf223"
PASSWORD = "correct horse battery staple"


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the former release, unpacked."""
    folder = tmp_path_factory.mktemp("former")
    packed = subprocess.run(["git", "archive", FORMER], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        pytest.skip(f"the former release, {FORMER[:12]}, is not in this checkout's history")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    return folder


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    """Return the URL of an empty database with the name that the text uses."""
    anyone = server.new_database()
    with psycopg.connect(anyone, autocommit=True) as connection:
        connection.execute("CREATE DATABASE fenceline")
    yield urlunsplit(urlsplit(anyone)._replace(path="/fenceline"))
    with psycopg.connect(anyone, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS fenceline WITH (FORCE)")


def manage(release: Path, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a management command of a release."""
    variables = {
        "DATABASE_URL": url,
        "FENCELINE_ADMIN_PASSWORD": PASSWORD,
        "FENCELINE_INGEST_TOKEN": "a token of the listeners",
        "PYTHONPATH": str(release),
    }
    environment = {**os.environ, **variables, "FENCELINE_CONFIG": str(release / "compose" / "fenceline.toml")}
    command = [sys.executable, "manage.py", *arguments]
    return subprocess.run(command, cwd=release, env=environment, capture_output=True, text=True, check=False)


def prepare(release: Path, url: str) -> None:
    done = manage(release, url, "prepare")
    assert done.returncode == 0, done.stderr


def documented(program: str) -> str:
    """Return the shell line of the text's last command that runs a program in PostgreSQL's container."""
    text = (ROOT / "docs" / "deploying.md").read_text()
    found = re.findall(rf"^docker compose exec -T postgres ({program} .+)$", text, re.MULTILINE)
    assert found, program
    return str(found[-1])


def run_documented(program: str, url: str, folder: Path) -> None:
    """Run a command of the text in a folder, on the server of a URL."""
    there = urlsplit(url)
    variables: Mapping[str, str] = {
        "PATH": f"{programs()}:{os.environ['PATH']}",
        "PGHOST": str(there.hostname),
        "PGPORT": str(there.port),
        "PGPASSWORD": str(there.password),
    }
    line = documented(program)
    assert shlex.split(line)[1:3] == ["-U", there.username]
    done = subprocess.run(
        ["sh", "-c", line], cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


STATEMENTS = {
    "users": "SELECT username, password, is_superuser FROM auth_user ORDER BY username",
    "tokens": "SELECT name, role, digest FROM dashboard_token ORDER BY name",
    "clusters": "SELECT name, configured FROM dashboard_cluster ORDER BY name",
    "migrations": "SELECT name FROM django_migrations WHERE app = 'dashboard' ORDER BY name",
}


def rows(url: str) -> dict[str, list[tuple[object, ...]]]:
    """Return what is worth keeping, by columns that both releases have."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            return {name: file.execute(statement).fetchall() for name, statement in STATEMENTS.items()}
    with psycopg.connect(url) as connection:
        return {name: connection.execute(statement).fetchall() for name, statement in STATEMENTS.items()}


@pytest.mark.matrix
def test_forward_and_back(former: Path, url: str, tmp_path: Path) -> None:
    def bring_back() -> None:
        for program in ("dropdb", "createdb", "pg_restore"):
            run_documented(program, url, tmp_path)

    go_and_return(former, url, lambda: run_documented("pg_dump", url, tmp_path), bring_back)


@pytest.mark.matrix
def test_forward_and_back_on_sqlite(former: Path, tmp_path: Path) -> None:
    file, copied = tmp_path / "fenceline.db", tmp_path / "copied.db"

    def bring_back() -> None:
        for left in ("-wal", "-shm"):
            file.with_name(f"{file.name}{left}").unlink(missing_ok=True)
        shutil.copy(copied, file)

    go_and_return(former, f"sqlite:///{file}", lambda: shutil.copy(file, copied), bring_back)


def go_and_return(
    former: Path, url: str, keep: Callable[[], object], bring_back: Callable[[], object]
) -> None:
    """Make a database by the former release, keep it, upgrade it, and bring it back."""
    prepare(former, url)
    before = rows(url)
    assert all(before.values())
    keep()
    prepare(ROOT, url)
    after = rows(url)
    assert set(before["migrations"]) < set(after["migrations"]), "there is something to go back from"
    assert {**after, "migrations": None} == {**before, "migrations": None}
    refused = manage(former, url, "prepare")
    assert refused.returncode == 1
    assert "was made by a newer Fenceline" in refused.stderr
    bring_back()
    assert rows(url) == before
    prepare(former, url)
    assert rows(url) == before


def test_the_way_back_restores_the_dump_that_an_upgrade_makes() -> None:
    dumped, restored = documented("pg_dump"), documented("pg_restore")
    assert dumped.rpartition("> ")[2] == restored.rpartition("< ")[2]
