"""Sparks and Pythons that users have, each in an environment of its own. Needs a package index."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

#: Each Spark with the oldest and the newest Python that it takes and that is here, and each Python once.
PLATFORMS = (
    ("3.5.6", "3.9"), ("3.5.6", "3.11"),
    ("4.0.1", "3.9"), ("4.0.1", "3.10"), ("4.0.1", "3.12"),
    ("4.1.1", "3.10"), ("4.1.1", "3.13"),
    ("4.2.0", "3.10"), ("4.2.0", "3.13"),
)  # fmt: skip
#: What the sink needs beside PySpark, in versions that all of these take.
_FOR_ARROW = ("pandas==2.2.3", "pyarrow==18.1.0", "numpy<2.2")
FOR_SINK = ("confluent-kafka==2.16.1", "kafka-python==3.0.12", "fsspec", *_FOR_ARROW)


def python_with(platform: tuple[str, str], folder: Path, *more: str) -> str:
    """Return a Python that has this PySpark, what is named beside it, and nothing else."""
    spark, version = platform
    # Spark 3.5 still asks Python for distutils, which setuptools has.
    return _environment(find_python(version), folder, f"pyspark=={spark}", "setuptools", *more)


def python_for_arrow(folder: Path) -> str:
    """Return a Python like ours that has what Spark's executors need for Arrow, and nothing else."""
    return _environment(sys.executable, folder, *_FOR_ARROW)


def _environment(python: str, folder: Path, *wanted: str) -> str:
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "-q", "-p", python, str(folder)], check=True)
    made = str(folder / "bin" / "python")
    # uv would keep each PySpark that it builds, a gigabyte a time; some indexes have it built each time.
    cache = os.environ | {"UV_CACHE_DIR": f"{folder}-cache"}
    subprocess.run([*uv, "pip", "install", "-q", "-p", made, *wanted], check=True, env=cache)
    shutil.rmtree(f"{folder}-cache", ignore_errors=True)
    return made


def find_python(version: str) -> str:
    """Return the path of a Python of this version, or the version itself, which uv then fetches."""
    runs = (
        each for each in _candidates(version) if not subprocess.run([each, "-c", ""], check=False).returncode
    )
    return next(runs, version)


def _candidates(version: str) -> Iterator[str]:
    if f"{sys.version_info[0]}.{sys.version_info[1]}" == version:
        yield sys.executable
    if found := shutil.which(f"python{version}"):
        yield found
    pythons = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from map(str, sorted(pythons.glob(f"{version}.*/bin/python")))
