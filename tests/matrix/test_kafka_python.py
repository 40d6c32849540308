"""The contract of transaction_admin, from tests/kafka, with every release of kafka-python from the pinned
one on.

transaction_admin uses parts of kafka-python that are not its public interface: this shows what a release
would break before the pin in pyproject.toml moves.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.options import ROOT
from tests.stack.postgres import rerun

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]
#: The release whose parts were read when transaction_admin was written.
FIRST = (3, 0, 12)
CONTRACT = [
    f"tests/kafka/test_{name}.py"
    for name in ("transaction_admin", "end_transactions", "markers", "reads", "reads_refused", "doctor")
]


def run(*command: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env={**os.environ, **variables},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def releases() -> list[str]:
    """Return the final releases that the package index serves, ours and newer ones, oldest first."""
    served = re.search(
        r"^Available versions: (.+)$", run("-m", "pip", "index", "versions", "kafka-python"), re.M
    )
    assert served, "the package index names no releases"
    known = {name: tuple(map(int, name.split("."))) for name in served[1].split(", ")}
    return sorted((name for name, numbers in known.items() if numbers >= FIRST), key=known.__getitem__)


def test_each_release_keeps_the_contract(tmp_path: Path) -> None:
    found = releases()
    assert found[0] == ".".join(map(str, FIRST))
    for release in found:
        folder = tmp_path / release
        run(
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            str(folder),
            f"kafka-python=={release}",
        )
        path = {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
        shown = run("-c", "import kafka; print(kafka.__version__, kafka.__file__)", **path)
        assert shown.split() == [release, str(folder / "kafka" / "__init__.py")]
        rerun.run_with(path, CONTRACT, folder)
