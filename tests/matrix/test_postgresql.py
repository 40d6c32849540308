"""Proves on a real PostgreSQL what all of tests/db, tests/api and tests/web prove on SQLite: the same tests.

`make test` runs those of them there that are marked `sql`.
"""

from pathlib import Path

import pytest

from tests.stack.postgres import rerun
from tests.stack.postgres.server import Server

pytestmark = pytest.mark.matrix


@pytest.mark.parametrize("part", ["tests/db", "tests/api", "tests/web"])
def test_the_same_tests_are_green(part: str, tmp_path: Path) -> None:
    with Server() as server:
        rerun.run(part, server, tmp_path)
