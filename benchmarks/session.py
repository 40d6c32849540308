"""A small Spark session for benchmarks: local[2], quiet, its files in one folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.conftest import environment, settings


@contextmanager
def small_session(folder: Path) -> Iterator[SparkSession]:
    """Run a session, with the memory that a batch of a million rows needs."""
    os.environ.update(environment(folder))
    builder = SparkSession.builder.appName("bench")
    for key, value in (settings(folder) | {"spark.driver.memory": "2g"}).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
