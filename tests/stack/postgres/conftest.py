"""One PostgreSQL for all of these tests; none where the whole run is on one already."""

from collections.abc import Iterator

import pytest

from tests.stack.postgres.server import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server
