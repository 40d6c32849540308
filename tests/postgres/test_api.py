"""Proves on a real PostgreSQL what tests/api proves on SQLite: the same tests."""

from __future__ import annotations

from pathlib import Path

from tests.postgres import again
from tests.postgres.server import Server


def test_the_same_tests_are_green(server: Server, tmp_path: Path) -> None:
    again.run("tests/api", server, tmp_path)
