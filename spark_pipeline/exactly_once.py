"""Topic to SQL to topic, each record exactly once: a job for spark-submit, with `--help` as its manual.

A mistake in the arguments, the cluster or the query is one clear line on stderr (exit status 2 before
anything runs, 1 later). After SIGTERM or SIGINT the batch in flight finishes; a second signal ends it at
once.
"""

from __future__ import annotations

import logging
import re
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, ParseException, PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_pipeline.exactly_once_arguments import Arguments, BadArgument, parse_arguments
from spark_pipeline.job import BatchFunction
from spark_pipeline.sink import ExactlyOnceKafkaSink, SinkError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

#: The name of the SQL's input table.
VIEW = "input"
#: Columns that the sink takes beside `value`; not `topic`, which `--to` names.
KNOWN = ("key", "value", "partition", "headers", "timestamp")
#: The columns of a Kafka record.
OF_KAFKA = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
#: Exit statuses: a mistake in the arguments or the environment, and a query that fails later.
WRONG, FAILED = 2, 1
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_{scala}:{spark}"
#: Spark logs pages of stack traces for a failed query; our own line has the failure.
LOUD = (
    "org.apache.spark.sql.execution.streaming",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.executor.Executor",
    "org.apache.spark.sql.execution.datasources.v2",
)
#: The sink's own words in a traceback.
_FROM_TASK = re.compile(r"^(?:\w+\.)*(?:SinkError|Refused): (.+)$", re.MULTILINE)
#: Spark's error messages with their condition: [CAST_INVALID_INPUT] The value …
_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]+\] [^\n]+")
#: The text after the message of an error.
_BEHIND = re.compile(r"\n|; line \d+ pos \d+|\s*SQLSTATE: \w+")


class BadQuery(Exception):
    """The SQL is unusable; the text has the reason."""


def read_input(spark: SparkSession, chosen: Arguments) -> DataFrame | None:
    """Return the input topic's records from Spark's source; None if Spark lacks that source."""
    options = {
        **chosen.kafka_options(),
        "kafka.isolation.level": chosen.isolation_level,
        "subscribe": chosen.source,
        "startingOffsets": chosen.starting_offsets,
        "includeHeaders": "true",
    }
    options.update(chosen.source_options)
    if chosen.max_offsets_per_trigger:
        options["maxOffsetsPerTrigger"] = str(chosen.max_offsets_per_trigger)
    try:
        return spark.readStream.format("kafka").options(**options).load()
    except AnalysisException as error:
        if "kafka" in str(error).lower() and "find" in str(error).lower():
            return None
        raise


def sql_columns(rows: DataFrame, chosen: Arguments) -> DataFrame:
    """Return the columns of the SQL's table: Kafka's, with key and value as text; for JSON its fields.

    With JSON, one column `kafka` holds Kafka's own columns, so that their names stay free for fields.
    """
    text = rows.withColumns({name: f.col(name).cast("string") for name in ("key", "value")})
    if chosen.value_format == "string":
        return text.select(*OF_KAFKA)
    try:
        parsed = text.withColumn("json", f.from_json("value", chosen.schema))
    except PySparkException as error:
        raise BadQuery(f"--schema {chosen.schema!r} is no list of columns: {_words(error)}") from None
    if "kafka" in (name.lower() for name in parsed.select("json.*").columns):
        raise BadQuery("--schema has a field named kafka, which is where Kafka's own columns are: rename it")
    return parsed.select("json.*", f.struct(*OF_KAFKA).alias("kafka"))


def for_sink(spark: SparkSession, rows: DataFrame, chosen: Arguments) -> DataFrame:
    """Return the SQL's result in the sink's columns; without SQL the unchanged records.

    With JSON, a result without a column `value` gets one from all columns that the sink does not take.
    """
    if not chosen.sql:
        return rows.select("key", "value", "headers")
    columns = sql_columns(rows, chosen)
    columns.createOrReplaceTempView(VIEW)
    try:
        rows = spark.sql(chosen.sql)
    except (AnalysisException, ParseException) as error:
        raise BadQuery(f"the SQL cannot run: {_words(error)} (its table is `{VIEW}` with the columns "
                       f"{', '.join(columns.columns)})") from None  # fmt: skip
    if not rows.isStreaming:
        raise BadQuery(f"the SQL does not read the topic: its rows must come from the table `{VIEW}`")
    return _packed(rows, chosen)


def _packed(rows: DataFrame, chosen: Arguments) -> DataFrame:
    others = [name for name in rows.columns if name not in KNOWN]
    if "value" not in rows.columns and chosen.value_format == "json" and others:
        kept = [name for name in KNOWN if name in rows.columns]
        rows = rows.select(*kept, f.to_json(f.struct(*others)).alias("value"))
    elif "value" not in rows.columns:
        raise BadQuery(
            f"the SQL's answer has no column `value` (it has {', '.join(rows.columns)}): name one with AS"
        )
    elif others:
        raise BadQuery(f"the sink knows no column {', '.join(others)}: it takes {', '.join(KNOWN)}")
    return _as_text(rows)


def _as_text(rows: DataFrame) -> DataFrame:
    """Cast a numeric or similar key and value to text: the sink takes text and bytes."""
    simple: dict[str, Column] = {
        name: f.col(name).cast("string")
        for name in ("key", "value")
        if name in rows.columns and rows.schema[name].dataType.typeName() not in ("string", "binary")
    }
    return rows.withColumns(simple) if simple else rows


def _words(error: PySparkException) -> str:
    """Return Spark's message without its class, plan and position."""
    text = str(error).strip().splitlines()[0].split(" SQLSTATE:")[0]
    return text.rstrip(". ;")


class Stopped(Exception):
    """The job cannot run; the text has the reason and the remedy."""


class Stop:
    """Set by SIGTERM or SIGINT; a second signal asks not to wait for the batch in flight."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.at_once = threading.Event()

    def request_stop(self) -> None:
        (self.at_once if self.asked.is_set() else self.asked).set()

    def listen_for_signals(self, spark: SparkSession) -> None:
        """Listen for signals here and in the JVM: under spark-submit the JVM gets them."""

        def on_signal(number: int, frame: object) -> None:
            # A handler interrupts any statement of the main thread: it must not take that thread's locks.
            threading.Thread(target=self.request_stop, daemon=True).start()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, on_signal)
        _listen_in_jvm(spark, self)


class _JvmHandler:
    """sun.misc.SignalHandler, for py4j."""

    def __init__(self, stop: Stop) -> None:
        self.stop = stop

    def handle(self, which: Any) -> None:
        """Be called by the JVM."""
        self.stop.request_stop()

    class Java:
        """The Java interface that py4j implements by this class."""

        implements = ["sun.misc.SignalHandler"]


def _jvm(spark: SparkSession) -> Any:
    """The driver's JVM, as py4j shows it."""
    return spark.sparkContext._jvm


def _listen_in_jvm(spark: SparkSession, stop: Stop) -> None:
    from py4j.protocol import Py4JError
    from pyspark.java_gateway import ensure_callback_server_started

    jvm = _jvm(spark)
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
    try:
        for name in ("TERM", "INT"):
            jvm.sun.misc.Signal.handle(jvm.sun.misc.Signal(name), _JvmHandler(stop))
    except Py4JError:
        # A JVM that ignores signals (-Xrs) is stopped in another way.
        logging.getLogger(__name__).debug("the JVM hands out no signals", exc_info=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; return the exit status."""
    try:
        chosen = parse_arguments(arguments)
    except BadArgument as error:
        return _say(str(error), WRONG)
    spark = SparkSession.builder.appName(chosen.name).getOrCreate()
    if not chosen.verbose:
        _quieten(spark)
    try:
        stop = Stop()
        stop.listen_for_signals(spark)
        return run_query(spark, chosen, stop)
    finally:
        spark.stop()


def run_query(spark: SparkSession, chosen: Arguments, stop: Stop) -> int:
    """Start the query and wait for its end; return the exit status."""
    try:
        rows = prepare_rows(spark, chosen)
        attach_listener(spark, chosen)
        sink = BatchFunction(sink_of(chosen))
        query = start_query(rows, sink, chosen)
    except (Stopped, BadQuery, SinkError) as error:
        return _say(str(error), WRONG)
    except PySparkException as error:
        return _say(explain_error(error), WRONG)
    try:
        await_end(query, stop)
    except StreamingQueryException as error:
        return _say(explain_error(sink.failure or error), FAILED)
    return 0


def prepare_rows(spark: SparkSession, chosen: Arguments) -> DataFrame:
    """Return the rows for the sink. Raises Stopped for an unusable cluster, BadQuery for unusable SQL.

    It checks the cluster before Spark does: Spark answers a wrong address with a minute of silence.
    """
    require_topics(chosen)
    rows = read_input(spark, chosen)
    if rows is None:
        scala = str(_jvm(spark).scala.util.Properties.versionNumberString()).rpartition(".")[0]
        package = CONNECTOR.format(scala=scala, spark=spark.version)
        raise Stopped(f"Spark has no Kafka connector: give spark-submit `--packages {package}`")
    return for_sink(spark, rows, chosen)


def require_topics(chosen: Arguments, timeout_s: float = 10) -> None:
    """Raise Stopped unless a broker answers and both topics exist."""
    from confluent_kafka import KafkaError, KafkaException

    from spark_pipeline.sink.cluster import make_client
    from spark_pipeline.sink.options import translate_options

    silent = logging.getLogger("spark_pipeline.librdkafka")
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    complaints: list[KafkaError] = []
    try:
        connection = translate_options(chosen.kafka_options()).connection
        client = make_client(connection, logger=silent, error_cb=complaints.append)
        topics = client.list_topics(timeout=timeout_s).topics
    except KafkaException as error:
        where = chosen.kafka["bootstrap.servers"]
        client.poll(0)
        reasons = [complaint for complaint in complaints if complaint.code() != KafkaError._ALL_BROKERS_DOWN]
        reason = (reasons or [error.args[0]])[-1].str().partition(" (after ")[0]
        raise Stopped(
            f"no broker answers at {where} ({reason}): check --bootstrap-servers, and the security settings"
        ) from None
    for option, topic in (("--from", chosen.source), ("--to", chosen.target)):
        if topic not in topics:
            raise Stopped(
                f"no topic {topic} ({option}) that this principal may see: create it, or grant DESCRIBE"
            )


def attach_listener(spark: SparkSession, chosen: Arguments) -> None:
    """Attach Fenceline's listener if its address was given. Raises Stopped for a wrong address."""
    if chosen.fenceline_url:
        from spark_listener import FencelineListener

        try:
            listener = FencelineListener(
                chosen.fenceline_url, chosen.fenceline_token, cluster=chosen.fenceline_cluster or None
            )
        except ValueError as error:
            raise Stopped(f"--fenceline-url, --fenceline-token: {error}") from None
        spark.streams.addListener(listener)


def sink_of(chosen: Arguments) -> ExactlyOnceKafkaSink:
    return ExactlyOnceKafkaSink(
        checkpoint=chosen.checkpoint,
        options=chosen.kafka_options(),
        topic=chosen.target,
        prefix=chosen.prefix,
        transaction_timeout_ms=chosen.transaction_timeout_ms,
        accept_loss=chosen.accept_loss,
        adopt=chosen.adopt,
        outage_timeout_ms=chosen.outage_timeout_ms,
    )


def start_query(rows: DataFrame, sink: BatchFunction, chosen: Arguments) -> StreamingQuery:
    writer = (
        rows.writeStream.queryName(chosen.name)
        .outputMode(chosen.output_mode)
        .option("checkpointLocation", chosen.checkpoint)
        .foreachBatch(sink)
    )
    if chosen.trigger == "available-now":
        writer = writer.trigger(availableNow=True)
    elif chosen.trigger:
        writer = writer.trigger(processingTime=chosen.trigger)
    return writer.start()


def await_end(query: StreamingQuery, stop: Stop) -> None:
    """Wait until the query ends or a signal comes. Raises StreamingQueryException when it fails."""
    while not stop.asked.is_set():
        if query.awaitTermination(1):
            return
    last = _last_batch(query)
    while query.isActive and query.status["isTriggerActive"] and _last_batch(query) == last:
        if stop.at_once.wait(0.02):
            break
    if not query.isActive:
        query.awaitTermination()
    query.stop()


def _last_batch(query: StreamingQuery) -> int | None:
    progress: Mapping[str, Any] | None = query.lastProgress
    return progress["batchId"] if progress else None


def quieten_python() -> None:
    """Report failures in our own line only: PySpark and py4j would log each with its stack trace."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:
        return  # PySpark before 4.0 has no such logger.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _quieten(spark: SparkSession) -> None:
    quieten_python()
    log4j = _jvm(spark).org.apache.logging.log4j
    for name in LOUD:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


def explain_error(error: Exception) -> str:
    """Return the message of an exception, without the plans and stack traces that Spark adds.

    A sink's error in a task is the last line of a Python traceback inside Java's; our own errors are
    unwrapped.
    """
    text = str(error).strip()
    if isinstance(error, SinkError):
        return text
    if reasons := _FROM_TASK.findall(text):
        return str(reasons[-1]).strip()
    text = text.rpartition("terminated with exception: ")[2] if text.startswith("[STREAM_FAILED]") else text
    if conditions := _CONDITION.findall(text):
        # The last error is the innermost: outer errors are failures of a stage, a batch, the query.
        text = conditions[-1]
    return _BEHIND.split(text, maxsplit=1)[0].strip().removesuffix(".")


def _say(text: str, status: int) -> int:
    print(f"exactly_once: {text}", file=sys.stderr, flush=True)  # noqa: T201
    return status


if __name__ == "__main__":
    sys.exit(main())
