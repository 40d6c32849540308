"""A real Prometheus on loopback, and promtool: `make test-matrix` installs both."""

import json
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from sandbox.options import ROOT
from sandbox.ports import HOST, free_port
from tests.waiting import wait_for

RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
_CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: fenceline
    static_configs: [{{targets: ["{target}"]}}]
"""


def program(name: str) -> str:
    """Return the path of a program of Prometheus; skip the test where it is not installed."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"needs {name} on PATH (Debian: apt install prometheus)")
    return path


class PrometheusServer:
    """A Prometheus that scrapes one address and evaluates the rules of `deploy` each second."""

    def __init__(self, folder: Path, target: str) -> None:
        self._folder, self._address = folder, f"{HOST}:{free_port()}"
        (folder / "prometheus.yml").write_text(_CONFIG.format(rules=RULES, target=target))

    def __enter__(self) -> Self:
        command = [
            program("prometheus"),
            f"--config.file={self._folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address={self._address}",
        ]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for(self._is_ready, "Prometheus is ready")
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, (self._folder / "log").read_text()
        try:
            with urlopen(f"http://{self._address}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def query(self, expression: str) -> dict[str, float]:
        """Return the values of an expression now, by their labels."""
        answer = self.api("query", query=expression)
        return {json.dumps(series["metric"]): float(series["value"][1]) for series in answer["result"]}

    def api(self, path: str, **parameters: str) -> Any:
        """Return the data that `/api/v1/PATH` answers."""
        url = f"http://{self._address}/api/v1/{path}?{urlencode(parameters)}"
        with urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]
