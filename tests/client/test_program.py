"""Proves the program itself: what it needs, completion, and that no error of its own is a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from fenceline_client import cli
from tests.client.conftest import Fenceline
from tests.client.program import PROGRAM

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("package", ["click", "requests"])
def test_a_missing_package_is_named(tmp_path: Path, package: str) -> None:
    block = f"import sys; sys.modules[{package!r}] = None; from fenceline_client.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == f"fenceline: the package {package} is missing. Install it: pip install 'fenceline[cli]'\n"
    )


def test_an_older_python_is_named() -> None:
    block = "import sys; sys.version_info = (3, 9, 25); from fenceline_client.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("fenceline: the command line needs Python 3.11 or newer, this is 3.9.25: ")


def test_no_django_is_loaded() -> None:
    block = "import sys, fenceline_client.cli; print({'django', 'dashboard', 'numpy'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", block], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_completes_commands(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = {"COMP_WORDS": "fenceline saf", "COMP_CWORD": "1" if shell != "fish" else "saf"}
    for name, value in {**words, "_FENCELINE_COMPLETE": f"{shell}_complete"}.items():
        monkeypatch.setenv(name, value)
    done = subprocess.run(PROGRAM, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "safe-to-stop" in done.stdout


def test_an_error_of_the_program_is_one_line(fenceline: Fenceline, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise KeyError("a\x1bb")

    monkeypatch.setattr(cli, "CommandLine", fails)
    done = fenceline("incidents")
    assert (done.status, done.error) == (
        2, r"An error of this program, please report it: KeyError: 'a\x1bb'",
    )  # fmt: skip


def test_help_names_every_command(fenceline: Fenceline) -> None:
    done = fenceline("--help")
    assert done.status == 0
    for name in ("login", "incidents", "transactions", "groups", "queries", "why", "watch", "plan", "execute",
                 "safe-to-stop", "doctor", "check"):  # fmt: skip
        assert f"\n  {name} " in done.out
        assert "Usage:" in fenceline(name, "--help").out
