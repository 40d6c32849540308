"""Who tests what where two workers share the machine (`make test`). A pytest plugin, named in pyproject.toml.

Tests that run whole stacks or a Spark take all the cores there are, so one worker runs all of those, one
after the other; files of all other kinds go to whichever worker is free.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

_HEAVY = (
    "tests/faults/",
    "tests/listener/",
    "tests/sandbox/test_cluster.py",
    "tests/sandbox/test_stack.py",
    "tests/spark/",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Put every test into the group that one worker runs: the heavy ones', or that of its file."""
    for item in items:
        file = item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group("heavy" if file.startswith(_HEAVY) else file))
