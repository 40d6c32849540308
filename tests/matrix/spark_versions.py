"""Older Sparks, each with a Python environment of its own. Needs a package index."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SPARKS = ("3.5.6", "4.0.1", "4.1.1")
#: What the sink needs beside PySpark, in versions that all of these Sparks take.
FOR_SINK = (
    "confluent-kafka==2.16.1", "kafka-python==3.0.12", "fsspec",
    "pandas==2.2.3", "pyarrow==18.1.0", "numpy<2.2",
)  # fmt: skip


def python_with(version: str, folder: Path, *more: str) -> str:
    """Return a Python that has this PySpark, what is named beside it, and nothing else."""
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "-q", "-p", sys.executable, str(folder)], check=True)
    python = str(folder / "bin" / "python")
    # Spark 3.5 still asks Python for distutils, which setuptools has.
    wanted = [f"pyspark=={version}", "setuptools", *more]
    subprocess.run([*uv, "pip", "install", "-q", "-p", python, *wanted], check=True)
    return python
