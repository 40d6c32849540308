"""Proves that of many writers of one file exactly one succeeds, in each kind of store, that a file is never
read half written, and that a store that cannot promise it is refused before anything is written."""

from __future__ import annotations

import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier

import fsspec
import pytest
from pyspark.sql import SparkSession

from sandbox.ports import free_port
from spark_pipeline.sink.check_store import check_store
from spark_pipeline.sink.check_store import main as check_store_command
from spark_pipeline.sink.errors import Refused
from spark_pipeline.sink.hadoop import HadoopStorage, open_from_spark
from spark_pipeline.sink.storage import (
    FsspecStorage,
    LocalStorage,
    Storage,
    local_path,
    open_storage,
    refuse_weak,
)
from tests.cases import cases

CREATORS = 8


@pytest.fixture(params=["local", "memory", pytest.param("hdfs", marks=pytest.mark.matrix)])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty folder in each kind of store."""
    if request.param == "local":
        return LocalStorage(tmp_path / "ledger")
    if request.param == "memory":
        return open_storage(f"memory://{uuid.uuid4().hex}/ledger")
    spark: SparkSession = request.getfixturevalue("spark")
    root = request.getfixturevalue("hdfs_root")
    found = open_from_spark(spark, f"{root}/{uuid.uuid4().hex}/ledger", "")
    assert isinstance(found, HadoopStorage)
    return found


def test_a_file_is_created_once_read_listed_and_removed(folder: Storage) -> None:
    assert folder.file_names() == []
    assert folder.read("1.0.decision") is None
    assert folder.create("1.0.decision", b"first")
    assert not folder.create("1.0.decision", b"second")
    assert folder.read("1.0.decision") == b"first"
    assert folder.create("empty", b"")
    assert folder.read("empty") == b""
    assert sorted(folder.file_names()) == ["1.0.decision", "empty"]
    folder.remove("empty")
    folder.remove("empty")
    assert folder.file_names() == ["1.0.decision"]
    inner = folder.subfolder("deeper")
    assert inner.create("x", b"1")
    assert inner.path.endswith("ledger/deeper")
    refuse_weak(folder)


def test_the_store_has_what_a_ledger_needs(folder: Storage) -> None:
    proofs = list(check_store(lambda: folder))
    assert len(proofs) == 5
    assert {trouble for _, trouble in proofs} == {""}
    assert folder.file_names() == []


def test_of_many_threads_that_create_one_file_one_succeeds(folder: Storage) -> None:
    ready = Barrier(CREATORS)

    def create(number: int) -> bool:
        ready.wait()
        return folder.create("decision", b"%d" % number * 10_000)

    with ThreadPoolExecutor(CREATORS) as pool:
        won = list(pool.map(create, range(CREATORS)))
    assert won.count(True) == 1
    assert folder.read("decision") == b"%d" % won.index(True) * 10_000
    assert folder.file_names() == ["decision"]


def test_of_many_processes_that_create_one_file_one_succeeds(tmp_path: Path) -> None:
    program = (
        "import sys; from spark_pipeline.sink.storage import LocalStorage; sys.stdin.read();"
        "print(LocalStorage(sys.argv[1]).create('decision', b'x'))"
    )
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(3)
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.close()
    said = [racer.stdout.read().strip() for racer in racers if racer.stdout is not None]
    assert [racer.wait(60) for racer in racers] == [0, 0, 0]
    assert sorted(said) == [b"False", b"False", b"True"]


def test_a_store_that_creates_twice_is_refused() -> None:
    class Forgetful(type(fsspec.filesystem("memory"))):  # type: ignore[misc]
        def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **more: object) -> None:
            super().pipe_file(path, value)

    weak = FsspecStorage(Forgetful(), "/weak", "weak://bucket")
    with pytest.raises(Refused, match=r"weak://bucket: this store lets a file be created twice"):
        refuse_weak(weak)
    troubles = [trouble for _, trouble in check_store(lambda: weak)]
    assert "a file was created twice, so two drivers could each decide about a batch" in troubles
    assert any("of 8 who created one file at once succeeded" in trouble for trouble in troubles)


def test_a_store_whose_lists_are_old_is_found() -> None:
    class Stale(LocalStorage):
        def file_names(self) -> list[str]:
            return []

        def subfolder(self, folder: str) -> Stale:
            return Stale(f"{self.path}/{folder}")

    with TemporaryDirectory() as place:
        troubles = [trouble for _, trouble in check_store(lambda: Stale(place))]
    assert "another client does not list a file that was written" in troubles


@cases(
    ("{folder}/new", 0, "{folder}/new can keep a ledger."),
    ("{folder}/file", 1, "{folder}/file cannot keep a ledger: the sink refuses it when a query starts."),
)
def test_the_command_reports_each_proof(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], url: str, status: int, last: str
) -> None:
    (tmp_path / "file").write_text("in its way")
    assert check_store_command([url.format(folder=tmp_path)]) == status
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert {line[:3] for line in lines[1:5]} == {"no " if status else "yes"}
    assert lines[-1] == last.format(folder=tmp_path)
    assert [each.name for each in tmp_path.rglob("*") if each.is_file()] == ["file"]


def test_the_command_reports_a_store_that_nobody_opens(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_store_command(["nosuch://bucket/x"]) == 2
    assert "cannot open nosuch://bucket/x" in capsys.readouterr().err


def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in its way")
    with pytest.raises(Refused, match="cannot keep a ledger in"):
        refuse_weak(LocalStorage(tmp_path / "file"))


# Hadoop writes one slash where there is no authority: none of these is a folder of this machine.
@pytest.mark.parametrize("url", ["nosuch://bucket/x", "nosuch:/x", "dbfs:/x", "hdfs:/x", "viewfs:///x"])
def test_a_store_without_a_driver_is_refused(url: str) -> None:
    with pytest.raises(Refused, match=f"cannot open {url}: .*its fsspec package") as refused:
        open_storage(url)
    assert "HDFS is opened by foreachBatch" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_any_error_of_a_store_s_client_is_a_refusal_in_one_line() -> None:
    class Denying(type(fsspec.filesystem("memory"))):  # type: ignore[misc]
        def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **more: object) -> None:
            raise LookupError("no credentials\nfound" + "!" * 1_000)

    denying = FsspecStorage(Denying(), "/bucket", "s3a://bucket")
    with pytest.raises(Refused, match="in s3a://bucket: LookupError: no credentials found!"):
        refuse_weak(denying)


@cases(("file:/a/b", "/a/b"), ("file:///a/b%20c", "/a/b c"), ("file:///a/b", "/a/b"))
def test_local_urls_are_plain_paths(url: str, path: str) -> None:
    assert local_path(url) == path
    assert open_storage(url).path == path


@pytest.mark.spark
def test_an_unreachable_hdfs_is_refused_with_the_reason(spark: SparkSession) -> None:
    away = open_from_spark(spark, f"hdfs://127.0.0.1:{free_port()}/checkpoint", "")
    for ask in (
        away.file_names,
        lambda: away.read("x"),
        lambda: away.create("x", b""),
        lambda: away.remove("x"),
    ):
        with pytest.raises(OSError, match="Connection refused"):
            ask()
    with pytest.raises(Refused, match=r"cannot keep a ledger in hdfs://127.0.0.1:\d+/checkpoint: .*refused"):
        refuse_weak(away)


@pytest.mark.spark
def test_hadoop_clients_without_atomic_rename_are_refused(spark: SparkSession) -> None:
    with pytest.raises(Refused, match=r"cannot open viewfs://cluster/checkpoint"):
        open_from_spark(spark, "viewfs://cluster/checkpoint", "")


@pytest.mark.spark
def test_spark_s_own_names_of_local_folders_are_opened_as_local_folders(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name in str(tmp_path), tmp_path.as_uri():
        found = open_from_spark(spark, name, tmp_path.as_uri().replace("///", "/"))
        assert isinstance(found, LocalStorage)
        assert found.path == str(tmp_path)
    # Hadoop's rename on an object store is no single step: fsspec's client is asked instead.
    found = open_from_spark(spark, "s3a://bucket/checkpoint", "")
    assert isinstance(found, FsspecStorage)
    assert found.path == "s3a://bucket/checkpoint"
    with pytest.raises(Refused, match="the query's own checkpointLocation is file:/elsewhere"):
        open_from_spark(spark, str(tmp_path), "file:/elsewhere")


def test_a_store_is_opened_with_its_options(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    folder = open_storage("dir://checkpoint", {"path": str(tmp_path), "target_protocol": "file"})
    refuse_weak(folder)
    assert folder.create("0.0.decision", b"first")
    assert not folder.create("0.0.decision", b"second")
    assert (tmp_path / "checkpoint" / "0.0.decision").read_bytes() == b"first"
