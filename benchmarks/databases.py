"""Measures a module in a database of each kind, and how long a page takes for a signed-in user."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.reader import reader_environment, run_redis
from sandbox.options import ROOT
from tests.stack.postgres.server import Server

if TYPE_CHECKING:
    from django.test import Client


def measure_on_both(module: str) -> dict[str, object]:
    """Run a module as a process on SQLite and on a PostgreSQL of our own; it prints its figures as JSON."""
    with tempfile.TemporaryDirectory() as folder, run_redis(Path(folder)) as url, Server() as server:
        variables = reader_environment(Path(folder) / "ours", "127.0.0.1:9", url)
        figures = _measured(module, "SQLite", variables)
        variables |= {"DATABASE_URL": server.new_database()}
        subprocess.run([sys.executable, "manage.py", "prepare"], cwd=ROOT, env=variables, check=True)
        return figures | _measured(module, "PostgreSQL", variables)


def _measured(module: str, database: str, variables: Mapping[str, str]) -> dict[str, object]:
    command = [sys.executable, "-m", module]
    done = subprocess.run(command, cwd=ROOT, env=variables, text=True, check=True, stdout=subprocess.PIPE)
    return {f"{database}: {what}": value for what, value in json.loads(done.stdout).items()}


def signed_in_client(role: str) -> Client:
    """Return a client of a new user with a role; Django must be set up."""
    from django.contrib.auth.models import Group, User
    from django.test import Client

    from dashboard.system import access

    access.ensure_roles()
    user = User.objects.create_user("reader")
    user.groups.add(Group.objects.get(name=role))
    client = Client()
    client.force_login(user)
    # A server has loaded its middleware before the first request.
    client.handler.load_middleware()
    return client


def time_ms(client: Client, path: str) -> float:
    """Return how many milliseconds the server's code takes for a page."""
    began = time.perf_counter()
    answer = client.get(path, headers={"host": "localhost"})
    assert answer.status_code == 200, (path, answer.status_code)
    return (time.perf_counter() - began) * 1_000
