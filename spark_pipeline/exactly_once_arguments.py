"""The arguments of `spark_pipeline.exactly_once`, parsed and checked before Spark starts."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NoReturn

from fenceline.compat import SLOTS

EXAMPLES = """\
examples:
  Copy a topic, each record once:
    spark-submit --packages … --py-files fenceline-spark.zip exactly_once.py \\
      --bootstrap-servers broker:9092 --from orders --to orders_copy \\
      --checkpoint s3a://bucket/checkpoints/orders_copy

  Enrich JSON with SQL; every column but the key becomes a field of the value:
      --from orders --to orders_enriched --value-format json \\
      --schema "order STRING, quantity INT, price DOUBLE" \\
      --sql "SELECT order AS key, order, quantity * price AS total FROM input WHERE quantity > 0"

  Everything there is, then stop (for a scheduler):
      --trigger available-now

  A cluster with SASL over TLS (the password stays out of the process list):
      --kafka-file client.properties

  Go on after a loss that the job has reported and you have written down:
      --accept-loss 1234

The SQL reads the table `input`: key, value (text), topic, partition, offset, timestamp, headers; with
--value-format json the fields of --schema, and `kafka` with those columns in it. Its answer has a column
value, and may have key, partition, headers and timestamp.
exit status: 0 stopped in order, 1 the query failed, 2 it could not start: one line on stderr is the reason.
"""

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_DURATION = re.compile(r"(\d+)\s*(ms|millis\w*|s|sec\w*|m|min\w*|h|hours?)")
_INTERVAL = re.compile(
    r"\d+\s*(milliseconds?|ms|seconds?|s|minutes?|m|hours?|h)(\s+\d+\s*(milliseconds?|seconds?|minutes?|hours?))*"
)


class BadArgument(Exception):
    """An argument is missing or wrong; the text names it."""


@dataclass(frozen=True, **SLOTS)
class Arguments:
    """The job's arguments. Option names are Kafka's own, without a prefix."""

    kafka: Mapping[str, str]
    source: str
    target: str
    checkpoint: str
    name: str
    prefix: str
    #: "" passes the records on as they are.
    sql: str = ""
    value_format: str = "string"
    #: DDL: "order STRING, quantity INT".
    schema: str = ""
    #: Spark's own: "10 seconds"; "available-now"; "" runs batch after batch.
    trigger: str = ""
    output_mode: str = "append"
    #: earliest, latest, or JSON as Spark's Kafka source takes it; used at the first start only.
    starting_offsets: str = "earliest"
    isolation_level: str = "read_committed"
    #: 0 is no limit.
    max_offsets_per_trigger: int = 0
    #: Further options of Spark's Kafka source, by their full names.
    source_options: Mapping[str, str] = field(default_factory=dict)
    transaction_timeout_ms: int | None = None
    accept_loss: tuple[int, ...] = ()
    adopt: bool = False
    outage_timeout_ms: int | None = None
    fenceline_url: str = ""
    fenceline_token: str = ""
    fenceline_cluster: str = ""
    verbose: bool = False

    def kafka_options(self) -> dict[str, str]:
        """Return the cluster's options in the form of Spark's source and the sink."""
        return {f"kafka.{name}": value for name, value in self.kafka.items()}


class _Parser(argparse.ArgumentParser):
    """Raises instead of printing its usage: an error is one line in the log."""

    def error(self, message: str) -> NoReturn:
        raise BadArgument(f"{message} (see --help)")


def parse_arguments(arguments: Sequence[str] | None = None) -> Arguments:
    """Parse a command line, by default this process's own; raises `BadArgument`."""
    namespace = _parser().parse_args(arguments)
    name = namespace.name or f"{namespace.source}-to-{namespace.target}"
    if namespace.source == namespace.target:
        raise BadArgument(f"--from and --to are both {namespace.source}: the job would read what it writes")
    if (namespace.value_format == "json") != bool(namespace.schema):
        raise BadArgument(
            "--value-format json and --schema go together: the schema names the fields that SQL sees"
        )
    if namespace.schema and not (namespace.sql or namespace.sql_file):
        raise BadArgument("--schema without --sql: the records would pass as they are, whatever their fields")
    namespace.kafka, namespace.sql = _kafka(namespace), _sql(namespace)
    namespace.fenceline_token = _token(namespace)
    namespace.name, namespace.prefix = name, namespace.prefix or name
    namespace.source_options = _pairs(namespace.source_options, "--source-option")
    namespace.trigger, namespace.accept_loss = namespace.trigger or "", tuple(namespace.accept_loss)
    return Arguments(**{field.name: getattr(namespace, field.name) for field in fields(Arguments)})


def _parser() -> _Parser:
    parser = _Parser(
        prog="exactly_once.py",
        description="Read a Kafka topic, transform it with SQL, write another: each record exactly once.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_kafka(parser.add_argument_group("Kafka"))
    _add_rows(parser.add_argument_group("rows"))
    _add_query(parser.add_argument_group("query"))
    _add_sink(parser.add_argument_group("exactly once"))
    _add_fenceline(parser.add_argument_group("Fenceline"))
    return parser


def _add_kafka(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--bootstrap-servers", metavar="HOST:PORT[,…]", default="", help="the brokers")
    group.add_argument("--from", dest="source", required=True, metavar="TOPIC", help="the topic to read")
    group.add_argument("--to", dest="target", required=True, metavar="TOPIC", help="the topic to write")
    group.add_argument(
        "--kafka", action="append", default=[], metavar="KEY=VALUE",
        help="an option of Kafka's clients in Java's words, for source and sink (repeatable)",
    )  # fmt: skip
    group.add_argument(
        "--kafka-file",
        default="",
        metavar="FILE",
        help="such options from a Java properties file on the driver",
    )
    group.add_argument(
        "--source-option", dest="source_options", action="append", default=[], metavar="KEY=VALUE",
        help="an option of Spark's Kafka source alone, such as failOnDataLoss=false (repeatable)",
    )  # fmt: skip
    group.add_argument(
        "--starting-offsets", default="earliest", metavar="WHERE",
        help="earliest (default), latest or JSON: where the very first batch begins",
    )  # fmt: skip
    group.add_argument(
        "--isolation-level", default="read_committed", choices=["read_committed", "read_uncommitted"],
        help="whether records of aborted transactions are read (default: read_committed, they are not)",
    )  # fmt: skip
    group.add_argument(
        "--max-offsets-per-trigger",
        type=_positive,
        default=0,
        metavar="N",
        help="at most so many offsets a batch",
    )


def _add_rows(group: argparse._ArgumentGroup) -> None:
    sql = group.add_mutually_exclusive_group()
    sql.add_argument(
        "--sql", default="", metavar="SELECT", help="what to make of the table `input`; default: nothing"
    )
    sql.add_argument("--sql-file", default="", metavar="FILE", help="the same from a file on the driver")
    group.add_argument(
        "--value-format",
        default="string",
        choices=["string", "json"],
        help="what values are (default: string)",
    )
    group.add_argument(
        "--schema", default="", metavar="DDL", help='fields of JSON values: "order STRING, price DOUBLE"'
    )


def _add_query(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--checkpoint",
        required=True,
        metavar="PATH",
        help="where Spark and the sink keep their state: never share it",
    )
    group.add_argument("--name", default="", help="the query's name (default: FROM-to-TO)")
    group.add_argument(
        "--trigger", type=_trigger, default=None, metavar="WHEN",
        help='"10 seconds" between batches, or available-now: all there is, then stop (default: no pause)',
    )  # fmt: skip
    group.add_argument(
        "--output-mode",
        default="append",
        choices=["append", "update"],
        help="of an aggregation (default: append)",
    )
    group.add_argument("--verbose", action="store_true", help="leave Spark's own stack traces in the log")


def _add_sink(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--prefix", default="", help="how the transactional ids begin: grant it in ACLs (default: the name)"
    )
    group.add_argument(
        "--transaction-timeout", dest="transaction_timeout_ms", type=_duration_ms, metavar="TIME",
        help="how long a transaction may stay open, 15m or 900000ms: more than the longest batch and restart "
        "(default: the broker's maximum)",
    )  # fmt: skip
    group.add_argument(
        "--accept-loss", type=_batch, action="append", default=[], metavar="BATCH",
        help="go on although this batch has lost records, as the job has reported (repeatable)",
    )  # fmt: skip
    group.add_argument(
        "--adopt", action="store_true", help="take over a checkpoint that another sink has written from"
    )
    group.add_argument(
        "--outage-timeout", dest="outage_timeout_ms", type=_duration_ms, metavar="TIME",
        help="how long brokers may be away before the query ends (default: 60s)",
    )  # fmt: skip


def _add_fenceline(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--fenceline-url", default="", metavar="URL", help="a dashboard to report to")
    group.add_argument(
        "--fenceline-token",
        default="",
        metavar="TOKEN",
        help="its ingest token (better: FENCELINE_TOKEN in the environment)",
    )
    group.add_argument(
        "--fenceline-cluster", default="", metavar="NAME", help="what the dashboard calls the cluster"
    )


def _kafka(namespace: argparse.Namespace) -> dict[str, str]:
    """Return the cluster's options; a specific argument overrides a general one."""
    options = _properties(namespace.kafka_file) if namespace.kafka_file else {}
    options.update(_pairs(namespace.kafka, "--kafka"))
    options = {name.removeprefix("kafka."): value for name, value in options.items()}
    if namespace.bootstrap_servers:
        options["bootstrap.servers"] = namespace.bootstrap_servers
    if not options.get("bootstrap.servers"):
        raise BadArgument("--bootstrap-servers is missing (see --help)")
    return options


def _pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise BadArgument(f"{option} {text!r} is no KEY=VALUE")
        pairs[name.strip()] = value.strip()
    return pairs


def _properties(path: str) -> dict[str, str]:
    """Parse a Java properties file: comments, continued lines, and `=`, `:` or a blank as separators."""
    lines = re.sub(r"\\\r?\n[ \t]*", "", _text(path, "--kafka-file")).splitlines()
    entries = [line.strip() for line in lines if line.strip() and line.strip()[0] not in "#!"]
    split = (re.fullmatch(r"([^\s=:]+)(?:\s*[=:]\s*|\s+|$)(.*)", line) for line in entries)
    return {parts[1]: parts[2] for parts in split if parts}


def _sql(namespace: argparse.Namespace) -> str:
    sql = _text(namespace.sql_file, "--sql-file") if namespace.sql_file else namespace.sql
    if namespace.sql_file and not sql.strip():
        raise BadArgument(f"--sql-file {namespace.sql_file} is empty")
    return str(sql).strip().rstrip(";").strip()


def _text(path: str, option: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise BadArgument(f"{option} {path} cannot be read: {reason}") from None


def _token(namespace: argparse.Namespace) -> str:
    token = namespace.fenceline_token or os.environ.get("FENCELINE_TOKEN", "")
    if namespace.fenceline_url and not token:
        raise BadArgument("--fenceline-url needs an ingest token: --fenceline-token or FENCELINE_TOKEN")
    return str(token)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)


def _batch(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no batch id")
    return int(text)


def _trigger(text: str) -> str:
    if text != "available-now" and not _INTERVAL.fullmatch(text.strip()):
        raise argparse.ArgumentTypeError(
            f'{text!r} is neither available-now nor an interval such as "10 seconds"'
        )
    return text.strip()


def _duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 15m, 900s or 900000ms")
    unit = "ms" if match[2].startswith(("ms", "milli")) else match[2][0]
    return int(match[1]) * _UNITS[unit]
