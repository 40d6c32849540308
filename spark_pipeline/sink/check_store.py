"""Prove that a store can keep a checkpoint's ledger: `python -m spark_pipeline.sink.check_store URL`.

URL is a folder as Spark spells it, which need not exist: s3a://bucket/checkpoints, hdfs://host/x, /mnt/x.
Exit status: 0 it can, 1 it cannot, 2 the store could not be opened. Each output line is one proof. Of all
clients that create a name, exactly one must succeed, and from then on every client reads and lists its
content. The files are removed afterwards.
"""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

from fenceline.formatting import error_line
from fenceline.spark.paths import scheme_of
from spark_pipeline.sink.errors import Refused
from spark_pipeline.sink.storage import LocalStorage, Storage, open_storage

#: Schemes that Spark's own Hadoop opens.
_NAME_NODES = ("hdfs", "webhdfs", "swebhdfs")
#: Clients that create one file at once, and rounds.
_CREATORS, _RACES = 8, 5
_LARGE = 1024 * 1024
#: Opens the folder again by a new client, without the first one's cache.
Open = Callable[[], Storage]


def _opener(url: str, options: dict[str, Any]) -> Open:
    if scheme_of(url) in _NAME_NODES:
        from pyspark.sql import SparkSession

        from spark_pipeline.sink.hadoop import open_from_spark

        session = SparkSession.builder.master("local[1]").appName("check_store").getOrCreate()
        return partial(open_from_spark, session, url, "")
    if options or scheme_of(url):
        # fsspec shares one client for equal options; the check needs two that see each other's writes.
        options["skip_instance_cache"] = True
    open_storage(url, options)
    return partial(open_storage, url, options)


def _report(url: str, open_folder: Open) -> int:
    troubles = 0
    for what, trouble in check_store(open_folder):
        troubles += bool(trouble)
        print(f"{'no ' if trouble else 'yes'}  {what}", end="")  # noqa: T201
        print(f": {trouble}" if trouble else "")  # noqa: T201
    if troubles:
        print(f"{url} cannot keep a ledger: the sink refuses it when a query starts.")  # noqa: T201
        return 1
    print(f"{url} can keep a ledger.")  # noqa: T201
    return 0


def check_store(open_folder: Open) -> Iterator[tuple[str, str]]:
    """Yield each property that a ledger needs of a folder's store, and why it does not hold, "" if it does.

    It opens two clients, which must see each other's writes, and uses a subfolder.
    """
    name = f"fenceline-check-{uuid.uuid4().hex}"
    try:
        folder = open_folder()
        one, other = (root.subfolder(name) for root in (folder, open_folder()))
    except Exception as error:  # A store's client raises what it likes.
        yield "the store is opened", error_line(error)
        return
    try:
        for what, prove in _PROOFS.items():
            yield what, _trouble(prove, one, other)
    finally:
        # Files that cannot be removed stay: the failing store is reported already.
        with suppress(Exception):
            _remove_folder(folder, name)


def _remove_folder(folder: Storage, name: str) -> None:
    inner = folder.subfolder(name)
    for left in inner.file_names():
        inner.remove(left)
    if isinstance(inner, LocalStorage):
        Path(inner.path).rmdir()
    else:
        # HDFS has folders, object stores have none.
        folder.remove(name)


def _trouble(prove: Callable[[Storage, Storage], str], one: Storage, other: Storage) -> str:
    try:
        return prove(one, other)
    except Exception as error:  # A store's client raises what it likes.
        return f"{type(error).__name__}: {error_line(error)}"


def _is_empty(one: Storage, other: Storage) -> str:
    if one.file_names() or one.read("nothing") is not None:
        return "a folder that nobody made has files"
    return ""


def _reads_after_write(one: Storage, other: Storage) -> str:
    for data in b"first", b"", b"x" * _LARGE:
        name = f"read-{len(data)}"
        if not one.create(name, data):
            return "a new file was refused"
        if other.read(name) != data:
            return f"another client does not read the {len(data)} bytes that were written"
    return ""


def _refuses_second(one: Storage, other: Storage) -> str:
    one.create("second", b"first")
    if other.create("second", b"second"):
        return "a file was created twice, so two drivers could each decide about a batch"
    return "" if one.read("second") == b"first" else "a refused create changed the file"


def _has_one_winner(one: Storage, other: Storage) -> str:
    with ThreadPoolExecutor(_CREATORS) as pool:
        for race in range(_RACES):
            ready = Barrier(_CREATORS)

            def create(number: int, name: str = f"race-{race}", ready: Barrier = ready) -> bool:
                ready.wait()
                return (one, other)[number % 2].create(name, b"%d" % number * 1_000)

            won = list(pool.map(create, range(_CREATORS)))
            if won.count(True) != 1:
                return f"{won.count(True)} of {_CREATORS} who created one file at once succeeded"
            if one.read(f"race-{race}") != b"%d" % won.index(True) * 1_000:
                return "the file has another content than who created it wrote"
    return ""


def _lists_after_write(one: Storage, other: Storage) -> str:
    other.file_names()
    one.create("listed", b"1")
    if "listed" not in other.file_names():
        return "another client does not list a file that was written"
    one.remove("listed")
    one.remove("listed")
    if "listed" in other.file_names() or other.read("listed") is not None:
        return "another client still finds a file that was removed"
    return "" if other.create("listed", b"2") else "a name that was removed cannot be used again"


_PROOFS: dict[str, Callable[[Storage, Storage], str]] = {
    "a folder that is not there is empty": _is_empty,
    "what is written is read by others at once, whole": _reads_after_write,
    "an existing file is not overwritten": _refuses_second,
    f"of {_CREATORS} who create one file at once, one succeeds": _has_one_winner,
    "what is written and removed is listed so by others at once": _lists_after_write,
}


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


if __name__ == "__main__":
    sys.exit(main())
