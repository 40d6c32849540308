"""The state keys job: reads keys of a stateful operator out of a checkpoint, for a page of the dashboard.

    spark-submit --py-files fenceline-spark.zip spark_pipeline/state_keys.py --cluster prod \\
        --checkpoint s3a://data/checkpoints/orders --output s3a://data/fenceline-state \\
        --operator 0 --where "key.user_id = 'u-17'"

It reads with Spark's own data sources `state-metadata` and `statestore` (Spark 4.0 and newer), which change
nothing in the checkpoint. `fenceline.spark.state_keys` has the layout of the output, docs/state-keys.md who
may see it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from fenceline.formatting import count_noun, list_names
from fenceline.spark.state_keys import (
    StateKeys,
    StateRow,
    state_keys_file,
    state_keys_folder,
    write_state_keys,
)
from spark_pipeline.arguments import folder_name, positive_number
from spark_pipeline.folder import OutputFolder
from spark_pipeline.job import JobError, run_job
from spark_pipeline.sink.checkpoint import QueryFiles
from spark_pipeline.sink.errors import SinkError
from spark_pipeline.sink.stores.hadoop import open_from_spark

DEFAULT_STORE = "default"
#: Rows in a file, unless more are asked for, and at most.
ROWS, MOST_ROWS = 100, 1_000
#: Spark's name of the column that is not the key's or the value's.
_PARTITION = "partition_id"


def argument_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        "state_keys.py",
        description="Read keys of a stateful operator, for the dashboard's page of its state.",
        fromfile_prefix_chars="@",
    )
    add = made.add_argument
    add("--cluster", required=True, type=folder_name, help="its name in fenceline.toml")
    add("--checkpoint", required=True, metavar="URL", help="the query's own checkpointLocation; only read")
    add("--output", required=True, metavar="URL", help="a folder; the dashboard reads it")
    add("--operator", type=int, default=0, metavar="N", help="the operator's number (default: 0)")
    add("--store", default=DEFAULT_STORE, metavar="NAME", help="a store of the operator (default: default)")
    add("--variable", metavar="NAME", help="a state variable of transformWithState")
    add("--batch", type=int, metavar="N", help="the state after this batch (default: the newest)")
    add("--where", default="", metavar="SQL", help="which rows, by key, value and partition_id")
    add("--rows", type=positive_number, default=ROWS, metavar="N", help=f"at most {MOST_ROWS}")
    add("--values", action="store_true", help="write values as well as keys")
    return made


def read_keys(spark: SparkSession, options: argparse.Namespace) -> str:
    """Read once and replace the operator's file; return what was found, in one sentence. Raises JobError."""
    query_id = _query_id(spark, options.checkpoint)
    operator = _operator(spark, options)
    batch_id = int(operator.maxBatchId) if options.batch is None else options.batch
    limit = min(options.rows, MOST_ROWS)
    rows = _rows(spark, options, batch_id, limit + 1)
    keys = StateKeys(
        query_id,
        options.operator,
        str(operator.operatorName),
        options.store,
        batch_id,
        time.time_ns() // 1_000_000,
        options.where,
        tuple(rows[:limit]),
        len(rows) > limit,
    )
    folder = OutputFolder(
        spark, f"{options.output.rstrip('/')}/{state_keys_folder(options.cluster, query_id)}"
    )
    folder.replace(state_keys_file(options.operator, options.store), write_state_keys(keys))
    return f"{count_noun(len(keys.rows), 'row')} of {operator.operatorName} after batch {batch_id}"


def _query_id(spark: SparkSession, checkpoint: str) -> str:
    try:
        found = QueryFiles(open_from_spark(spark, checkpoint, "")).query_id()
    except (SinkError, OSError) as error:
        raise JobError(f"checkpoint {checkpoint} cannot be read: {error}") from error
    if found is None:
        raise JobError(
            f"{checkpoint} is no checkpoint of a streaming query: it has no file metadata. Name the query's "
            "own checkpointLocation."
        )
    return found


def _operator(spark: SparkSession, options: argparse.Namespace) -> Row:
    """Return the operator's row of Spark's state metadata. Raises JobError where there is no such store."""
    if int(spark.version.partition(".")[0]) < 4:
        raise JobError(f"Spark {spark.version} cannot read state: run the job with Spark 4.0 or newer.")
    try:
        rows = spark.read.format("state-metadata").load(options.checkpoint).collect()
    except (PySparkException, Py4JJavaError) as error:
        raise JobError(f"the state of {options.checkpoint} cannot be read: {_first_line(error)}") from error
    for row in rows:
        if (row.operatorId, row.stateStoreName) == (options.operator, options.store):
            return row
    stores = list_names([f"--operator {row.operatorId} --store {row.stateStoreName}" for row in rows])
    raise JobError(
        f"{options.checkpoint} has no operator {options.operator} with a store {options.store}: "
        f"{'choose ' + stores if stores else 'the query keeps no state'}."
    )


def _rows(spark: SparkSession, options: argparse.Namespace, batch_id: int, limit: int) -> list[StateRow]:
    try:
        state = _state(spark, options, batch_id)
        found = state.where(options.where) if options.where else state
        value = f.to_json("value") if options.values else f.lit(None).cast("string")
        columns = (f.col(_PARTITION), f.to_json("key").alias("key"), value.alias("value"))
        return [StateRow(*row) for row in found.select(*columns).limit(limit).collect()]
    except (PySparkException, Py4JJavaError) as error:
        where = f"operator {options.operator} after batch {batch_id}"
        raise JobError(f"the state of {where} cannot be read: {_first_line(error)}") from error


def _state(spark: SparkSession, options: argparse.Namespace, batch_id: int) -> DataFrame:
    reader = spark.read.format("statestore").option("operatorId", options.operator)
    reader = reader.option("batchId", batch_id).option("storeName", options.store)
    if options.variable:
        reader = reader.option("stateVarName", options.variable)
    return reader.load(options.checkpoint)


def _first_line(error: Exception) -> str:
    text = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else str(error)
    return (text or type(error).__name__).strip().partition("\n")[0]


def main(arguments: Sequence[str]) -> int:
    """Run the job; return the exit status."""
    options = argument_parser().parse_args(arguments)
    return run_job("state keys", options.checkpoint, lambda spark: [read_keys(spark, options)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
