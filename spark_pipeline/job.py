"""What the jobs share under spark-submit: results on stdout, an error as one line on stderr, arguments."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable

from pyspark.sql import DataFrame, SparkSession

from fenceline.kafka.applications import LONGEST
from fenceline.owners import Owner


class JobError(Exception):
    """A job cannot continue; the text is one sentence with the reason and the remedy."""


class BatchFunction:
    """A function of foreachBatch; it keeps its failure, because Spark wraps the reason in a page of Java."""

    def __init__(self, write: Callable[[DataFrame, int], None]) -> None:
        self._write = write
        self.failure: Exception | None = None

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        try:
            self._write(rows, batch_id)
        except Exception as error:
            self.failure = error
            raise


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


def job_parser(program: str, description: str, examples: str) -> argparse.ArgumentParser:
    """Return a parser of the cluster's arguments; `@FILE` reads arguments from a file, one a line."""
    parser = argparse.ArgumentParser(
        program, description=description, epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter, fromfile_prefix_chars="@",
    )  # fmt: skip
    parser.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT,…")
    parser.add_argument(
        "--kafka",
        action="append",
        default=[],
        type=key_value,
        metavar="KEY=VALUE",
        help="a property of Kafka's Java clients, such as security.protocol=SSL; repeatable",
    )
    return parser


def java_properties(options: argparse.Namespace) -> dict[str, str]:
    """Return the given properties of Kafka's Java clients."""
    return {**dict(options.kafka), "bootstrap.servers": options.bootstrap_servers}


def named_application(text: str) -> Owner:
    """Return an application's owner from `PATTERN=NAME`; an empty NAME leaves these ids without a name."""
    match, equals, name = text.partition("=")
    if not match or not equals or len(name) > LONGEST or not name.isprintable():
        raise argparse.ArgumentTypeError(f"write PATTERN=NAME, a name of up to {LONGEST} characters")
    return Owner(match, team="", application=name)


def key_value(text: str) -> tuple[str, str]:
    """Return a property of Kafka's Java clients and its value from `KEY=VALUE`."""
    name, value = reader_option(text)
    return name.removeprefix("kafka."), value


def reader_option(text: str) -> tuple[str, str]:
    """Return an option of a reader of Spark and its value from `KEY=VALUE`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"write KEY=VALUE, not {name!r}")
    return name, value


def folder_name(text: str) -> str:
    """Return a name that is valid as a folder's name, such as a cluster's."""
    # As dashboard.config has it.
    if not text or len(text) > 64 or not all((c.isalnum() and c.isascii()) or c in "-_." for c in text):
        raise argparse.ArgumentTypeError("use letters, digits, - _ and . (at most 64)")
    return text


def positive_number(text: str) -> int:
    """Return a whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {number}")
    return number
