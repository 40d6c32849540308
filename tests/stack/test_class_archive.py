"""Proves that a class archive is made once and used, and that a JVM runs as ever where it is not there, not
whole or not its own."""

import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox import SandboxError, prepared
from sandbox.java import Java, classpath, fetch_jars, find_java

KAFKA = "kafka-4.2.0"
PROGRAM = ("kafka.tools.StorageTool", "random-uuid")
Run = Callable[..., str]


@pytest.fixture
def java(tmp_path: Path) -> Java:
    return find_java(tmp_path)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def run(java: Java) -> Run:
    """Run a small program on Kafka's jars; returns its output."""

    def run(*options: str, jars: Sequence[Path] = fetch_jars(KAFKA)) -> str:
        command = [java.command, *options, "-cp", classpath(jars), *PROGRAM]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    return run


def test_an_archive_is_made_once_and_is_for_its_jars_alone(java: Java, cache: Path, run: Run) -> None:
    trained: list[Path] = []
    said: list[str] = []

    def train(folder: Path, options: Sequence[str]) -> None:
        trained.append(folder)
        run(*options)

    def options() -> list[str]:
        return prepared.archive_options(KAFKA, cache, java, fetch_jars(KAFKA), train, said.append)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: options(), range(2))
    assert first == second == options()
    assert len(trained) == 1
    assert said == [f"{KAFKA}: making its class archive, once"]
    assert "kafka.tools.StorageTool source: shared objects file (top)" in run(*first, "-Xlog:class+load")
    # Nothing else is left of it.
    assert {path.suffix for path in cache.iterdir()} == {".jsa", ".lock", ".sha256"}
    with_others = run(*first, jars=[*reversed(fetch_jars(KAFKA))])
    assert "[warning][cds" in with_others, "it is of other jars"
    assert len(with_others.splitlines()[-1]) == len("FFZXFMtnS7eAw1oLqhLz4Q")


def test_a_training_that_ends_early_leaves_no_archive(java: Java, cache: Path) -> None:
    said: list[str] = []

    def train(folder: Path, options: Sequence[str]) -> None:
        _archive(options).write_bytes(b"half")
        raise SandboxError("it was killed")

    assert prepared.archive_options(KAFKA, cache, java, fetch_jars(KAFKA), train, said.append) == []
    assert said[-1] == f"{KAFKA}: starts without a class archive: it was killed"
    assert {path.suffix for path in cache.iterdir()} == {".lock"}


def test_a_jvm_that_makes_no_archive_is_not_trained_again(java: Java, cache: Path) -> None:
    trained: list[Path] = []
    for _ in range(2):
        found = prepared.archive_options(
            KAFKA,
            cache,
            java,
            fetch_jars(KAFKA),
            lambda folder, options: trained.append(folder),
            lambda line: None,
        )
        assert found == []
    assert len(trained) == 1


def test_without_a_writable_cache_a_jvm_runs_without_an_archive(java: Java, cache: Path) -> None:
    cache.write_text("a file is in the way")
    said: list[str] = []
    assert prepared.archive_options(KAFKA, cache, java, fetch_jars(KAFKA), pytest.fail, said.append) == []
    assert "starts without a class archive" in said[-1]


def test_each_jvm_and_class_path_has_its_own_archive(java: Java, cache: Path, run: Run) -> None:
    def options(build: str, paths: list[Path]) -> list[str]:
        one = replace(java, build=build)
        return prepared.archive_options(
            KAFKA, cache, one, paths, lambda _, options: _archive(options).touch(), lambda line: None
        )

    for build, paths in (("a", fetch_jars(KAFKA)), ("b", fetch_jars(KAFKA)), ("b", fetch_jars(KAFKA)[:-1])):
        options(build, paths)
    assert len(list(cache.glob("*.jsa"))) == 3


@pytest.mark.parametrize("spoil", [b"", b"half"], ids=["empty", "half"])
def test_an_incomplete_archive_is_made_again(java: Java, cache: Path, spoil: bytes) -> None:
    """JDK 17 aborts on it."""

    def train(folder: Path, options: Sequence[str]) -> None:
        _archive(options).write_bytes(b"whole")

    def options() -> list[str]:
        return prepared.archive_options(KAFKA, cache, java, fetch_jars(KAFKA), train, lambda line: None)

    first = options()
    (path,) = cache.glob("*.jsa")
    path.write_bytes(spoil)
    assert options() == first
    assert path.read_bytes() == b"whole"


def _archive(options: Sequence[str]) -> Path:
    """Return where a training is to write."""
    return Path(options[-1].partition("=")[2])
