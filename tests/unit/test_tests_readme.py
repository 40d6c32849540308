"""Proves that tests/README.md names every file with tests that `make test` leaves out, and their command."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "tests" / "README.md"
#: The last column of the table, by marker.
COMMANDS = {"soak": "make soak", "matrix": "make test-matrix"}


def commands_by_file() -> dict[str, set[str]]:
    """Return the commands that the README's last table names for each file."""
    rows = re.findall(r"^\| `(\S+\.py)` \|.*\| ([^|]+) \|$", README.read_text(), re.MULTILINE)
    return {f"tests/{file}": set(re.findall(r"`([^`]+)`", commands)) for file, commands in rows}


def test_excluded_tests_are_listed_with_their_command() -> None:
    command = [sys.executable, "-m", "tests.unit.excluded_tests"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    outside = json.loads(done.stdout.splitlines()[-1])
    assert len(outside) > 20
    assert commands_by_file() == {file: {COMMANDS[name] for name in found} for file, found in outside.items()}


def test_every_folder_is_named() -> None:
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/__init__.py")} - {"data", "java"}
    named_there = re.search(r"## What each folder proves\n(.*?)\n## ", README.read_text(), re.DOTALL)
    assert named_there
    assert folders == {word for row in re.findall(r"^\| (`.*?) \|", named_there[1], re.MULTILINE)
                       for word in re.findall(r"`(\w+)`", row)}  # fmt: skip
