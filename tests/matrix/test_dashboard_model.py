"""Proves that Grafana knows every key of the dashboards in `deploy`: its own model of a dashboard, panel or
variable keeps only keys that exist."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.options import ROOT

pytestmark = pytest.mark.matrix
DASHBOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
#: For Grafana 10.1 and newer.
MODEL = "grafana-foundation-sdk==1769699998!10.1.0"
READ_AND_WRITE = """
import json, sys
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
register_default_plugins()
print(json.dumps(Dashboard.from_json(json.load(sys.stdin)), cls=JSONEncoder))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Grafana's model from the package index, in a folder of its own."""
    folder = tmp_path_factory.mktemp("model")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), MODEL]
    subprocess.run(install, check=True)
    return folder


def keys(value: Any, place: str = "") -> Iterator[str]:
    """Yield the path of every key."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{place}.{key}"
            yield from keys(inner, f"{place}.{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from keys(inner, f"{place}[{number}]")


def unknown_keys(board: Any, model: Path) -> set[str]:
    """Return the keys that Grafana's model loses."""
    done = subprocess.run(
        [sys.executable, "-c", READ_AND_WRITE], input=json.dumps(board), env={"PYTHONPATH": str(model)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(keys(board)) - set(keys(json.loads(done.stdout)))


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_grafana_knows_each_key(model: Path, path: Path) -> None:
    assert unknown_keys(json.loads(path.read_text()), model) == set()


def test_a_key_that_grafana_does_not_know_is_found(model: Path) -> None:
    board = json.loads(DASHBOARDS[0].read_text())
    board["panels"][0]["targets"][0]["query"] = "up"
    board["templating"]["list"][1]["many"] = True
    assert unknown_keys(board, model) == {".panels[0].targets[0].query", ".templating.list[1].many"}
