"""Prove that a store can keep a checkpoint's ledger: `python -m spark_pipeline.sink.check_store URL`.

URL is a folder as Spark spells it, which need not exist: s3a://bucket/checkpoints, hdfs://host/x, /mnt/x.
Exit status: 0 it can, 1 it cannot, 2 the store could not be opened. Each output line is one proof.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from fenceline.spark.paths import scheme_of
from spark_pipeline.sink.errors import Refused
from spark_pipeline.sink.stores.conformance import Open, check_store
from spark_pipeline.sink.stores.storage import open_storage

#: Schemes that Spark's own Hadoop opens.
_NAME_NODES = ("hdfs", "webhdfs", "swebhdfs")


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the store that the arguments name; return the exit status."""
    parser = argparse.ArgumentParser(prog="check_store", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("url", help="a folder as Spark spells it; it need not exist")
    parser.add_argument(
        "--option", action="append", default=[], metavar="KEY=VALUE",
        help="an option of the store's fsspec package, such as endpoint_url=… (repeatable)",
    )  # fmt: skip
    namespace = parser.parse_args(arguments)
    options = dict(option.partition("=")[::2] for option in namespace.option)
    try:
        open_folder = _opener(namespace.url, options)
    except Refused as refused:
        print(f"check_store: {refused}", file=sys.stderr)  # noqa: T201
        return 2
    return _report(namespace.url, open_folder)


def _opener(url: str, options: dict[str, Any]) -> Open:
    if scheme_of(url) in _NAME_NODES:
        from pyspark.sql import SparkSession

        from spark_pipeline.sink.stores.hadoop import open_from_spark

        session = SparkSession.builder.master("local[1]").appName("check_store").getOrCreate()
        return partial(open_from_spark, session, url, "")
    if options or scheme_of(url):
        # fsspec shares one client for equal options; the check needs two that see each other's writes.
        options["skip_instance_cache"] = True
    open_storage(url, options)
    return partial(open_storage, url, options)


def _report(url: str, open_folder: Open) -> int:
    troubles = 0
    for proof in check_store(open_folder):
        troubles += bool(proof.trouble)
        print(f"{'no ' if proof.trouble else 'yes'}  {proof.what}", end="")  # noqa: T201
        print(f": {proof.trouble}" if proof.trouble else "")  # noqa: T201
    if troubles:
        print(f"{url} cannot keep a ledger: the sink refuses it when a query starts.")  # noqa: T201
        return 1
    print(f"{url} can keep a ledger.")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
