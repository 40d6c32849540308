"""Who tests what where workers share the machine (`make test`). A pytest plugin, named in pyproject.toml.

Workers take whole files, those that took longest first (`durations.json`), so that they end together. Tests
that run whole stacks or a Spark take all the cores there are: the first worker begins with those, the others
with all the rest, until they meet. To start a Spark session and to warm it up takes 20 CPU seconds of each
worker that has one: two have, the first from the start, the second as soon as two would take as long for
what is left of Spark as the others for the rest.
xdist's own groups do not work with pytest 9.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests import durations

_SPARK = "tests/spark/"
_HEAVY = (_SPARK, "tests/stack/")
#: So many workers have a Spark.
_SPARKS = 2


@cache
def _seconds() -> Mapping[str, float]:
    """Return how long each unit of work took when it was measured."""
    return durations.read()["files"]


def _lightness(unit: str) -> int:
    return next((place for place, folder in enumerate(_HEAVY) if unit.startswith(folder)), len(_HEAVY))


class SharedScheduling(LoadScopeScheduling):
    """Gives files to workers in the order of the tests, the heaviest to the first, the lightest to others."""

    def _split_scope(self, nodeid: str) -> str:
        return durations.unit_of(nodeid)

    def _reschedule(self, node: WorkerController) -> None:
        only_spark = all(unit.startswith(_SPARK) for unit in self.workqueue)
        if only_spark and node not in self.nodes[:_SPARKS] and not node.shutting_down:
            node.shutdown()
        else:
            super()._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        begins_heavy = node is self.nodes[0] or (node in self.nodes[:_SPARKS] and self._is_spark_behind())
        sign = 1 if begins_heavy else -1
        unit = min(self.workqueue, key=lambda unit: sign * _lightness(unit))
        self.workqueue.move_to_end(unit, last=False)
        super()._assign_work_unit(node)

    def _is_spark_behind(self) -> bool:
        """Whether what is left of Spark takes its workers as long as all else takes the others."""
        seconds = _seconds()
        left = {True: 0.0, False: 0.0}
        for unit in self.workqueue:
            left[unit.startswith(_SPARK)] += seconds.get(unit, 0)
        others = max(len(self.nodes) - _SPARKS, 1)
        return left[True] / _SPARKS >= left[False] / others


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SharedScheduling:
    """Share files as above."""
    # The order of the tests is ours: xdist would put files with many tests first.
    config.option.loadscopereorder = False
    return SharedScheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put what nobody has measured first, then the longest; one process needs no order."""
    if hasattr(config, "workerinput"):
        seconds = _seconds()
        units = {item: durations.unit_of(item.nodeid) for item in items}
        items.sort(key=lambda item: (-seconds.get(units[item], float("inf")), units[item]))
