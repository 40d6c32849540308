"""Notes which files have tests that a run leaves out, and by which marker. A pytest plugin, named in
pyproject.toml: `tests/unit/test_tests_readme.py` compares what it finds with tests/README.md."""

from collections.abc import Mapping, Sequence

import pytest

MARKERS = ("soak", "matrix")
#: A file whose tests all run has no marker.
_BY_FILE = pytest.StashKey[dict[str, set[str]]]()


def pytest_configure(config: pytest.Config) -> None:
    """Begin with no file."""
    config.stash[_BY_FILE] = {}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Note the file of a test."""
    item.config.stash[_BY_FILE].setdefault(_file_of(item), set())


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Note which marker leaves a test out: `soak` before `matrix`, as their commands do."""
    for item in items:
        if name := next((name for name in MARKERS if item.get_closest_marker(name)), None):
            item.config.stash[_BY_FILE][_file_of(item)].add(name)


def markers_by_file(config: pytest.Config) -> Mapping[str, set[str]]:
    """Return the markers of the tests that this run leaves out, of each file that it has collected."""
    return config.stash[_BY_FILE]


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
