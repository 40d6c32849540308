"""Runs a part of the suite once more, as a process of its own, on another database or with other packages."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from sandbox.options import ROOT
from tests.stack.postgres.server import Server


def run(part: str, server: Server, folder: Path) -> None:
    """Run a part's tests on a server, in databases of their own; fails with pytest's output."""
    if os.environ["DATABASE_URL"].startswith("postgres"):
        pytest.skip("this whole run is on PostgreSQL")
    run_with({"DATABASE_URL": server.url("postgres")}, [part], folder)


def run_with(variables: Mapping[str, str], parts: Sequence[str], folder: Path) -> None:
    """Run tests with variables of the environment; fails with pytest's output."""
    options = ["-q", "-p", "no:cacheprovider", f"--basetemp={folder / 'tmp'}"]
    command = [sys.executable, "-m", "pytest", *parts, *options]
    environment = {**_plain(os.environ), **variables}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    said = f"{done.stdout[-20_000:]}\n{done.stderr[-2_000:]}"
    assert done.returncode == 0, f"{' '.join(parts)} with {', '.join(variables)}:\n{said}"


def _plain(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what makes a process one of xdist's workers."""
    return {name: value for name, value in environment.items() if not name.startswith("PYTEST_")}
