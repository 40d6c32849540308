"""Proves that what `make up` is given and cannot use stops the start in one line.

Bad clusters of a configuration stop nothing: tests/stack/room/test_one_bad_cluster.py.
"""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.options import ROOT


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"PORT": "eighty"}, "give a number"),
        ({"DATABASE_URL": "mysteryql://x/y"}, "DATABASE_URL"),
    ],
)
def test_a_bad_variable_stops_the_start_in_one_line(
    tmp_path: Path, variables: dict[str, str], says: str
) -> None:
    assert says in refused_start(tmp_path, **variables)


def test_bad_toml_stops_the_start_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('[clusters.a]\n"bootstrap.servers" = "h:1"\n[limit]\n')
    said = refused_start(tmp_path, CONFIG=str(tmp_path / "bad.toml"))
    assert "bad.toml: unknown key 'limit'; did you mean 'limits'?" in said


def test_a_taken_port_stops_the_start_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert port in refused_start(tmp_path, PORT=port)


def refused_start(tmp_path: Path, **variables: str) -> str:
    """Start a stack that must refuse, and return what it printed, free of tracebacks."""
    command = [sys.executable, "-m", "sandbox.up"]
    environment = {"PATH": "/usr/bin:/bin", "FENCELINE_DATA": str(tmp_path / "data"), "DEMO": "0"} | variables
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Traceback" not in said
    return said
