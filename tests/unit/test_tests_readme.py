"""Proves that tests/README.md names every file with tests that `make test` leaves out, and their command."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import excluded

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
