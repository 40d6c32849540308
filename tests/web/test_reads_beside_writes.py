"""Proves that reading waits for no writer: pages and API answer at once while another process holds the lock
of writers, by a token and by a session, on SQLite and on PostgreSQL."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from dashboard.models import Token
from dashboard.system import access
from dashboard.system.tokens import token_digest
from tests.sql import POSTGRESQL, SQLITE
from tests.web import factories, roles

#: Beside what the same request takes without a writer.
AT_ONCE_S = 2.0
#: Holds the lock of writers until its input ends, or for as long as a test may fail by.
_HOLD = """
import os, sys, threading
timer = threading.Timer(30, os._exit, [0])
timer.daemon = True
timer.start()
if {path!r}:
    import sqlite3
    holder = sqlite3.connect({path!r}, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
else:
    import psycopg
    holder = psycopg.connect({url!r})
    tables = "dashboard_token, django_session, auth_user, axes_accessattempt"
    holder.execute(f"LOCK TABLE {{tables}} IN EXCLUSIVE MODE")
print("held", flush=True)
sys.stdin.read()
"""
READS = ("/api/v1/clusters", "/api/v1/transactions", "/api/v1/exports/transactions.csv", "/metrics")
PAGES = ("/", "/transactions", "/system", "/find?q=a", "/channels", *READS[:3])


@pytest.fixture(scope="module")
def url(shared_database: str) -> str:
    """The URL of a database with a cluster that is watched."""
    access.ensure_roles()
    factories.tail_collectors(factories.cluster())
    return shared_database


@contextmanager
def writer(url: str) -> Iterator[None]:
    """Another process that writes all the time."""
    path = url.removeprefix("sqlite:///") if url.startswith("sqlite") else ""
    script = _HOLD.format(path=path, url=url)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        yield
        holder.stdin.close()


def took_s(client: Client, path: str, **headers: str) -> float:
    """Return how long a read takes, in seconds."""
    began = time.monotonic()
    answer = client.get(path, headers=headers)
    assert answer.status_code == 200, (path, answer.status_code)
    return time.monotonic() - began


def token(name: str) -> Token:
    """Return a token that was never used: its first use is noted."""
    return Token.objects.create(name=name, role="viewer", digest=token_digest(name))


def test_a_read_by_token_waits_for_no_writer(url: str) -> None:
    alone_s = {}
    for number, path in enumerate(READS):
        for each in "before", "while":
            token(f"{each}-{number}")
        alone_s[path] = took_s(Client(), path, Authorization=f"Bearer before-{number}")
    with writer(url):
        for number, path in enumerate(READS):
            beside_s = took_s(Client(), path, Authorization=f"Bearer while-{number}")
            assert beside_s < alone_s[path] + AT_ONCE_S, path


def test_the_use_is_noted_by_the_next_request(url: str) -> None:
    row = token("ci")
    with writer(url):
        took_s(Client(), "/api/v1/clusters", Authorization="Bearer ci")
        row.refresh_from_db()
        assert row.last_used_at is None
    took_s(Client(), "/api/v1/clusters", Authorization="Bearer ci")
    row.refresh_from_db()
    assert row.last_used_at is not None


def test_noting_a_use_leaves_the_wait_of_other_writes_as_it_is(url: str) -> None:
    token("ci-2")
    wanted = {SQLITE: "PRAGMA busy_timeout", POSTGRESQL: "SHOW lock_timeout"}[connection.vendor]

    def waits() -> Any:
        with connection.cursor() as cursor:
            cursor.execute(wanted)
            return cursor.fetchone()[0]

    before = waits()
    with writer(url):
        took_s(Client(), "/api/v1/clusters", Authorization="Bearer ci-2")
    assert waits() == before


def test_a_read_by_session_waits_for_no_writer(url: str) -> None:
    client = roles.client_with_role("admin")
    alone_s = {path: took_s(client, path) for path in PAGES}
    with writer(url):
        for path in PAGES:
            assert took_s(client, path) < alone_s[path] + AT_ONCE_S, path
        assert took_s(Client(), "/login/") < AT_ONCE_S
