"""A value of the settings under other variables of the environment, in a process of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from sandbox.options import ROOT

_PROGRAM = """
import importlib, json, os, sys
name, *environments = json.loads(sys.argv[1])
plain, values = dict(os.environ), []
for variables in environments:
    os.environ.clear()
    os.environ.update(plain | variables)
    sys.modules.pop("dashboard.settings", None)
    values.append(getattr(importlib.import_module("dashboard.settings"), name))
print(json.dumps(values))
"""


def settings_values(name: str, *environments: Mapping[str, str]) -> list[Any]:
    """Return a setting's value under each of some variables."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps([name, *environments])],
        cwd=ROOT,
        env=os.environ | {"SECRET_KEY": "x", "FENCELINE_CONFIG": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[Any] = json.loads(done.stdout)
    return found
