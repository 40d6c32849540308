"""Proves that tests/README.md names every file with tests that `make test` leaves out, and their command.

Recorded durations hold what ran, without what the gate no longer has; `make test-fast` leaves out tests by
them.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import excluded
from tests.durations import long_tests, merged, only_of

ROOT = Path(__file__).parents[2]
README = ROOT / "tests" / "README.md"
#: The last column of the table, by marker.
COMMANDS = {"soak": "make soak", "matrix": "make test-matrix"}


def commands_by_file() -> dict[str, set[str]]:
    """Return the commands that the README's last table names for each file."""
    rows = re.findall(r"^\| `(\S+\.py)` \|.*\| ([^|]+) \|$", README.read_text(), re.MULTILINE)
    return {f"tests/{file}": set(re.findall(r"`([^`]+)`", commands)) for file, commands in rows}


def markers_by_file(config: pytest.Config) -> Mapping[str, set[str]]:
    """Return the markers of tests outside the gate by file: what a run of many files has collected anyway, or
    all files.
    """
    found = excluded.markers_by_file(config)
    if len(found) > 100:
        return found
    command = [sys.executable, "-m", "tests.unit.excluded_tests"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {file: set(markers) for file, markers in json.loads(done.stdout.splitlines()[-1]).items()}


def test_excluded_tests_are_listed_with_their_command(request: pytest.FixtureRequest) -> None:
    outside = markers_by_file(request.config)
    expected = {file: {COMMANDS[name] for name in found} for file, found in outside.items() if found}
    listed = commands_by_file()
    assert len(listed) > 20
    assert all((ROOT / file).is_file() for file in listed)
    assert {file: commands for file, commands in listed.items() if file in outside} == expected


def test_every_folder_is_named() -> None:
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/__init__.py")} - {"data", "java"}
    named_there = re.search(r"## What each folder proves\n(.*?)\n## ", README.read_text(), re.DOTALL)
    assert named_there
    assert folders == {word for row in re.findall(r"^\| (`.*?) \|", named_there[1], re.MULTILINE)
                       for word in re.findall(r"`(\w+)`", row)}  # fmt: skip


KNOWN = {
    "files": {"tests/unit/test_a.py": 7.0, "tests/unit/test_gone.py": 5.0, "postgresql": 3.0},
    "tests": {
        "tests/unit/test_a.py::test_one": {"call": 6.0},
        "tests/unit/test_a.py::test_soak": {"call": 1.0},
        "tests/unit/test_gone.py::test_two": {"call": 5.0},
        "tests/db/test_b.py::test_three[postgresql]": {"call": 3.0},
    },
}


def test_what_the_gate_no_longer_has_is_removed() -> None:
    gate = {"tests/unit/test_a.py::test_one", "tests/db/test_b.py::test_three[postgresql]"}
    assert only_of(KNOWN, gate) == {
        "files": {"tests/unit/test_a.py": 6.0, "postgresql": 3.0},
        "tests": {name: KNOWN["tests"][name] for name in sorted(gate, reverse=True)},
    }


def test_a_file_that_ran_replaces_what_was_known_of_it() -> None:
    ran = {"tests/unit/test_a.py::test_one": {"setup": 0.06, "call": 0.84}}
    found = merged(KNOWN, ran)
    assert found["files"]["tests/unit/test_a.py"] == 0.9
    assert found["tests"]["tests/unit/test_a.py::test_one"] == {"call": 0.8}
    assert "tests/unit/test_a.py::test_soak" not in found["tests"]
    assert found["tests"]["tests/unit/test_gone.py::test_two"] == {"call": 5.0}


def test_long_tests_are_left_out_but_for_the_checks_of_the_code() -> None:
    known = {
        "tests/web/test_a.py::test_long": {"call": 2.0},
        "tests/web/test_a.py::test_first": {"setup": 3.0, "call": 0.05},
        "tests/unit/test_doc_checks.py::test_names": {"call": 5.0},
        "tests/unit/test_architecture.py::test_code[class names]": {"call": 5.0},
    }
    assert long_tests({"files": {}, "tests": known}) == {"tests/web/test_a.py::test_long"}
