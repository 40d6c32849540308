"""Run a job under spark-submit: print results as lines on stdout, and an error as one line on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from pyspark.sql import SparkSession


class JobError(Exception):
    """A job cannot continue; the text is one sentence with the reason and the remedy."""


def run_job(name: str, subject: str, run: Callable[[SparkSession], Iterable[str]]) -> int:
    """Run a job about `subject` in its own session, and print each result; return the exit status."""
    spark = SparkSession.builder.appName(f"fenceline {name} of {subject}").getOrCreate()
    try:
        for result in run(spark):
            print(f"{name}: {result}", flush=True)  # noqa: T201 - a command speaks
    except JobError as error:
        print(f"{name}: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return 1
    finally:
        spark.stop()
    return 0
