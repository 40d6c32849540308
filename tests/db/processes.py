"""A Python process of its own, for what happens as one starts."""

import os
import subprocess
import sys
from collections.abc import Collection

from sandbox.options import ROOT


def run_python(
    program: str, *, without: Collection[str] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program with the dashboard's settings, and with these variables beside those of here."""
    plain = {name: value for name, value in os.environ.items() if name not in without}
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**plain, "DJANGO_SETTINGS_MODULE": "dashboard.settings", **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
