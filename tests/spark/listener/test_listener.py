"""Proves the listener's one line: what it takes, what it refuses at once, and where it keeps things; and what
it finds out of a run beside its events, in plans of queries that read Kafka."""

import pickle
import tomllib
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from sandbox.kafka import Broker
from sandbox.options import ROOT
from spark_listener import FencelineListener
from spark_listener.emit import Trouble, read_secret
from spark_listener.listener import VERSION, RunFacts, _read_facts
from spark_listener.spool import Spool, adopt_leftovers
from tests.brokers import create_topics
from tests.cases import cases
from tests.db.listener_posts import QUERY, RUN
from tests.spark.listener.events import TOKEN, call_listener, started
from tests.spark.listener.servers import Scripted
from tests.waiting import wait_for

DEADLINE_S = 60
COMMITTED = {"kafka.isolation.level": "read_committed"}


@cases(
    ("", "set FENCELINE_URL"),
    ("fenceline.example", "no URL of a Fenceline"),
    ("ftp://fenceline.example", "no URL of a Fenceline"),
    ("https://user:secret@fenceline.example", "the token is its own argument"),
    ("https://fenceline.example/?x=1", "no user, query or fragment"),
)
def test_a_url_that_cannot_be_one_is_refused_at_once(tmp_path: Path, url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        FencelineListener(url, TOKEN, spool=tmp_path)


def test_a_missing_token_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FENCELINE_TOKEN", raising=False)
    with pytest.raises(ValueError, match="create_token NAME --role ingest"):
        FencelineListener("http://127.0.0.1:1", spool=tmp_path)


def test_url_and_token_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Scripted() as server:
        server.start()
        monkeypatch.setenv("FENCELINE_URL", f"{server.url}/")
        monkeypatch.setenv("FENCELINE_TOKEN", "from the environment")
        listener = FencelineListener(spool=tmp_path)
        call_listener(listener, range(1))
        listener.close()
        assert server.posted[0].token == "from the environment"
        assert server.paths == ["POST /ingest/v1/progress"]


def test_a_secret_is_itself_or_in_the_environment_or_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", "one")
    (tmp_path / "token").write_text("two\n")
    assert [read_secret("env:A_TOKEN"), read_secret(f"file:{tmp_path / 'token'}"), read_secret("three")] == [
        "one",
        "two",
        "three",
    ]
    for wrong in ("env:NOT_THERE", f"file:{tmp_path / 'nowhere'}", "t\u00f6ken", "to\nken"):
        with pytest.raises(Trouble, match="token"):
            read_secret(wrong)


def test_a_listener_can_be_pickled_for_spark_connect_3_5(tmp_path: Path) -> None:
    with Scripted() as server:
        server.start()
        listener = FencelineListener(server.url, TOKEN, cluster="prod", spool=tmp_path)
        again = pickle.loads(pickle.dumps(listener))
        call_listener(again, range(3))
        again.close()
        listener.close()
        assert server.numbers == [0, 1, 2]
        assert server.taken[0].document["cluster"] == "prod"


def test_a_session_that_was_stopped_has_no_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = FencelineListener("http://127.0.0.1:1", TOKEN, spool=tmp_path)
    monkeypatch.setattr(SparkContext, "_active_spark_context", object())
    listener._jlistenerobj = object()
    listener.onQueryStarted(started())
    assert listener._running() == [[QUERY, RUN]]
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    assert listener._running() == []
    del listener._jlistenerobj
    listener.spark = SimpleNamespace(is_stopped=False)
    listener.onQueryStarted(started())
    assert listener._running() == [[QUERY, RUN]]
    listener.spark = SimpleNamespace(is_stopped=True)
    assert listener._running() == []
    listener.close()


def test_its_version_is_fencelines() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION


def spool_with(root: Path, events: int, **options: Any) -> Spool:
    spool = Spool(root, {"cluster": None}, **options)
    for number in range(events):
        spool.append(b'"kind":"x","n":%d}' % number, number)
    return spool


def test_a_spool_returns_its_events_and_those_added_during_a_read(tmp_path: Path) -> None:
    spool = spool_with(tmp_path, 10)
    first = spool.read(4, 10**6)
    spool.append(b'"kind":"x","n":10}', 10)
    rest = spool.read(100, 10**6)
    assert [each.seq for each in first + rest] == list(range(1, 12))
    assert spool.waiting == 11
    spool.ack(rest[-1])
    assert (spool.waiting, spool.dropped) == (0, 0)
    spool.close()
    assert not list(tmp_path.iterdir())


def test_a_post_has_at_most_the_allowed_bytes(tmp_path: Path) -> None:
    spool = spool_with(tmp_path, 10)
    assert len(spool.read(10, 1)) == 1
    assert len(spool.read(10, 100)) < 9
    spool.close()


def test_only_undelivered_events_are_adopted(tmp_path: Path) -> None:
    spool = spool_with(tmp_path, 10)
    assert adopt_leftovers(tmp_path) == [], "its driver lives"
    spool.ack(spool.read(4, 10**6)[-1])
    spool.close()
    (left,) = adopt_leftovers(tmp_path)
    assert adopt_leftovers(tmp_path) == [], "it has been adopted"
    assert left.waiting == 6
    assert [each.seq for each in left.read(100, 10**6)] == [5, 6, 7, 8, 9, 10]
    left.close()


def test_damaged_leftovers_are_read_as_far_as_possible(tmp_path: Path) -> None:
    spool = spool_with(tmp_path, 4_000, most_bytes=20_000)
    dropped = spool.dropped
    spool.close()
    folder = next(tmp_path.iterdir())
    segments = sorted(folder.glob("*.z"))
    segments[1].write_bytes(b"no zlib at all")
    lost = int(segments[2].stem) - int(segments[1].stem)
    (folder / "cursor").write_bytes(b"nonsense")
    (folder / "about.json").write_text("[")
    (tmp_path / "somebody's").mkdir()
    (left,) = adopt_leftovers(tmp_path)
    events = left.read(10_000, 10**9)
    assert left.dropped == dropped + lost
    assert len(events) == 4_000 - dropped - lost
    left.ack(events[-1])
    left.close()
    assert [path.name for path in tmp_path.iterdir()] == ["somebody's"]


def test_the_size_limit_includes_leftovers(tmp_path: Path) -> None:
    for _ in range(3):
        spool = spool_with(tmp_path, 4_000, most_bytes=20_000)
        spool.close()
    with Scripted() as server:
        listener = FencelineListener(server.url, TOKEN, spool=tmp_path, spool_mb=20_000 / 2**20)
        emitter = listener._emitter
        wait_for(lambda: len(emitter._left) == 3, "they are adopted", DEADLINE_S)
        wait_for(lambda: sum(each.spool.size for each in emitter._left) <= 20_000, "they are cut", DEADLINE_S)
        assert [bool(each.spool.size) for each in emitter._left][-1], "the newest stays"
        listener.close()


@pytest.mark.kafka
@pytest.mark.spark
@cases(
    ([COMMITTED], "read_committed"),
    ([{}], "read_uncommitted"),
    ([COMMITTED, {"kafka.isolation.level": "read_uncommitted"}], "read_uncommitted"),
    ([], None),
)
def test_the_weakest_isolation_of_all_kafka_sources_counts(
    spark: SparkSession, kafka_42: Broker, sources: list[Mapping[str, str]], isolation: str | None
) -> None:
    topic = f"facts-{uuid.uuid4().hex[:8]}"
    create_topics(kafka_42.bootstrap, topic, partitions=1)
    kafka = {"kafka.bootstrap.servers": kafka_42.bootstrap, "subscribe": topic}
    rows = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
    for more in sources:
        read = spark.readStream.format("kafka").options(**kafka).options(**more).load()
        rows = rows.union(read.selectExpr("CAST(value AS STRING) AS value"))
    query = rows.writeStream.format("noop").start()
    try:
        assert _read_facts(str(query.id)) == RunFacts(False, isolation)
    finally:
        query.stop()
    assert _read_facts(str(query.id)) == RunFacts()
