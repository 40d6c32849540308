"""Who tests what where workers share the machine (`make test`). A pytest plugin, named in pyproject.toml.

Tests that run whole stacks or a Spark take all the cores there are. So the first worker begins with those,
the others with all the rest, file by file, until they meet. xdist's own groups do not work with pytest 9.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

#: Those with the longest tests first: who is left with the last file should not be left with a long one.
_HEAVY = (
    "tests/faults/",
    "tests/spark/",
    "tests/sandbox/test_cluster.py",
    "tests/sandbox/test_stack.py",
    "tests/postgres/test_kills.py",
    "tests/listener/",
)


class Sharing(LoadScopeScheduling):
    """Gives whole files to workers: the first one takes them from the front, the others from the back."""

    def _split_scope(self, nodeid: str) -> str:
        return _file(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node is not self.nodes[0]:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Sharing:
    """Share files as above."""
    # The order of the tests is ours: xdist would put files with many tests first.
    config.option.loadscopereorder = False
    return Sharing(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the heavy tests first; where one process runs all of them the quick ones stay there."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _weight(item.nodeid))


def _weight(nodeid: str) -> int:
    places = [place for place, prefix in enumerate(_HEAVY) if _file(nodeid).startswith(prefix)]
    return places[0] if places else len(_HEAVY)


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
