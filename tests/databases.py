"""Databases of stacks that tests start: a file in a stack's folder, or one on the server of DATABASE_URL."""

import atexit
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

#: Where a folder keeps the URL of its database: a stack that comes back to it finds its own again.
_NOTE = "database_url"


def for_stack(folder: Path) -> str:
    """Return the URL of a database for a stack in a folder; "" for the file that it makes there itself."""
    server = os.environ.get("DATABASE_URL", "")
    if not server.startswith("postgres"):
        return ""
    note = folder / _NOTE
    if not note.exists():
        url = new_database(server)
        name = urlsplit(url).path.removeprefix("/")
        atexit.register(_administer, server, "DROP DATABASE IF EXISTS {} WITH (FORCE)", name)
        note.write_text(url)
    return note.read_text()


@contextmanager
def reading(url: str) -> Iterator[Any]:
    """Open a stack's database, by the URL in its stack.json; yields a DB-API cursor."""
    if url.startswith("sqlite:///"):
        path = url.removeprefix("sqlite:///")
        opened: Any = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    else:
        opened = psycopg.connect(url)
    with closing(opened):
        yield opened.cursor()


@contextmanager
def snapshot(url: str) -> Iterator[Any]:
    """Open a stack's database as it is now: what is saved meanwhile stays out of the cursor's answers."""
    with reading(url) as cursor:
        on_sqlite = url.startswith("sqlite:///")
        cursor.execute("BEGIN" if on_sqlite else "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield cursor


def new_database(server: str) -> str:
    """Return the URL of an empty database on a PostgreSQL."""
    name = f"fenceline_stack_{secrets.token_hex(4)}"
    _administer(server, "CREATE DATABASE {}", name)
    return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))


def _administer(server: str, statement: str, name: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(sql.Identifier(name)))
