"""Proves what follows from a query's recent batches; what became of a transaction of its sink, by its
coordinator and by later transitions of its id; and which URL fsspec opens for a path as Spark spells it."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fenceline.facts import TransactionState, Transition, TransitionKind
from fenceline.spark.paths import both_spellings, join_path, scheme_of, to_url
from fenceline.spark.queries import (
    BatchPast,
    Stall,
    interleaved_runs,
    late_generation,
    usual_ms,
    watermark_stall,
)
from fenceline.spark.records import Decided, Decision, DecisionOutcome, Done
from fenceline.spark.sink_fates import (
    Coordinated,
    TransactionFate,
    outcome_by_coordinator,
    outcome_by_history,
    rows_written,
)
from tests.cases import cases
from tests.unit.factories import transition_of
from tests.unit.sink_batches import BAD, DARK, GOING, GOOD, NOW_MS, OPEN, STARTED_MS, decided, done, written

MINUTE_MS = 60_000


def batch(
    number: int, *, run: str = "a", took_ms: int | None = 100, rows: bool = True, watermark: int | None = None
) -> BatchPast:
    return BatchPast(run, number * MINUTE_MS, took_ms, rows, watermark)


@cases(
    ([100] * 19, None),
    ([100] * 20, 100),
    ([*range(1, 101)], 99),
    ([*range(1, 201)], 198),
    ([*[100] * 20, *[None] * 50], 100),
)
def test_the_usual_duration_is_taken_from_recent_batches(
    times: Sequence[int | None], wanted: int | None
) -> None:
    found = usual_ms(batch(n, took_ms=took_ms) for n, took_ms in enumerate(times))
    assert found == wanted


@cases(
    ([None, None], None, "no watermark at all"),
    ([0, 0, 0], None, "none yet"),
    ([5, 6, 7], None, "the last one has moved it"),
    ([5, 6, 6, 6], Stall(6, 2, 2 * MINUTE_MS), "two batches since it came there"),
    ([6, 6, 6], Stall(6, 3, 0), "as far as one can look back"),
    ([], None, "nothing is known"),
)
def test_a_watermark_that_stops_is_stalled(
    marks: Sequence[int | None], wanted: Stall | None, why: str
) -> None:
    past = [batch(n, watermark=mark) for n, mark in enumerate(marks)]
    assert watermark_stall(past) == wanted, why
    past = [batch(0, watermark=5), *(batch(n, watermark=6, rows=n % 2 == 0) for n in range(1, 7))]
    assert watermark_stall(past) == Stall(6, 2, 4 * MINUTE_MS), "batches without input do not count"


@cases(
    (["a", "a", "b", "b"], None, "a restart"),
    (["a", "b", "a"], ("a", "b"), "the first one goes on"),
    (["a", "", "a", "b"], None, "a batch that nobody told of"),
    (["a", "b", "c", "b"], ("b", "c"), "of three"),
    ([], None, "nothing is known"),
)
def test_two_runs_in_turn(runs: Sequence[str], wanted: tuple[str, str] | None, why: str) -> None:
    assert interleaved_runs(batch(n, run=run) for n, run in enumerate(runs)) == wanted, why


@cases(
    ([(1, 10), (1, 20), (2, 30)], None),
    ([(1, 10), (2, 20), (1, 30)], (1, 2, 30)),
    ([(2, 20), (1, 10)], (1, 2, 10)),
    ([], None),
)
def test_an_older_generation_that_decides(
    decisions: Sequence[tuple[int, int]], wanted: tuple[int, int, int] | None
) -> None:
    assert late_generation(decisions) == wanted


@cases(
    (decided(), done(), 1_000),
    (decided(), None, None),
    (decided(), done(DecisionOutcome.LOST, written(1).transactional_id), 500),
    (decided(Decided.ABORTED), done(DecisionOutcome.ABORTED), None),
    (decided(number=0), done(), 0),
)
def test_rows_written_are_the_ledgers(decision: Decision, outcome: Done | None, rows: int | None) -> None:
    assert rows_written(decision, outcome) == rows


ONGOING, COMMITTED = TransactionState.ONGOING, TransactionState.COMPLETE_COMMIT
ABORTED = TransactionState.COMPLETE_ABORT


def newest(state: TransactionState, *, epoch: int = 3, version: int = 0, **more: Any) -> Coordinated:
    values = {"producer_id": 4_000, "started_ms": STARTED_MS, **more}
    return Coordinated(state, producer_epoch=epoch, updated_ms=NOW_MS, client_version=version, **values)


@cases(
    (newest(ONGOING), OPEN, "as it was left"),
    (newest(TransactionState.PREPARE_COMMIT), GOING, "decided, markers are being written"),
    (newest(COMMITTED), GOOD, "the same epoch: a client of librdkafka, ended by EndTxn v4"),
    (newest(COMMITTED, epoch=4, version=2), GOOD, "protocol 2 commits under the next epoch"),
    (newest(COMMITTED, epoch=4), DARK, "an older one does not: another's commit"),
    (newest(TransactionState.PREPARE_ABORT, epoch=4), BAD, "the coordinator's timeout raises the epoch"),
    (newest(ABORTED, epoch=4, version=2), BAD, "so does protocol 2"),
    (newest(ABORTED), BAD, "aborted under its own epoch"),
    (newest(ABORTED, epoch=5), DARK, "two epochs on: another's abort"),
    (newest(TransactionState.EMPTY, epoch=4, started_ms=None), DARK, "initialised again: after what?"),
    (newest(ONGOING, epoch=4), DARK, "another's transaction"),
    (newest(ONGOING, started_ms=NOW_MS), DARK, "the next one of the same producer"),
    (newest(ABORTED, started_ms=NOW_MS), DARK, "of the same epoch, and not ours"),
    (newest(COMMITTED, producer_id=9), DARK, "another producer id"),
    (newest(COMMITTED, epoch=2), DARK, "older than ours: the row is old"),
    (newest(COMMITTED, started_ms=None), GOOD, "no start is told, the rest agrees"),
    (None, DARK, "no such id is known"),
)
def test_the_outcome_of_a_transaction_follows_its_coordinator(
    now: Coordinated | None, fate: TransactionFate, why: str
) -> None:
    assert outcome_by_coordinator(written(), now).fate is fate, why


@cases(
    (newest(ONGOING, epoch=4), True),
    (newest(ONGOING, started_ms=NOW_MS), True),
    (newest(COMMITTED, producer_id=9), True),
    (newest(TransactionState.EMPTY, epoch=4, started_ms=None), True),
    (newest(COMMITTED, epoch=2), False),
    (newest(COMMITTED, producer_id=9)._replace(updated_ms=STARTED_MS - 1), False),
    (None, False),
)
def test_an_id_is_used_again_only_by_a_later_record(now: Coordinated | None, again: bool) -> None:
    assert outcome_by_coordinator(written(), now).id_used_again is again


def transition(kind: TransitionKind, *, started_ms: int = STARTED_MS, producer_id: int = 4_000) -> Transition:
    at_ms = NOW_MS - 700
    return transition_of(kind, at_ms=at_ms, producer_id=producer_id, open_ms=at_ms - started_ms)


@cases(
    ([transition(TransitionKind.COMMIT)], GOOD, "what began when ours did was committed"),
    ([transition(TransitionKind.TIMEOUT)], BAD, "or aborted"),
    ([transition(TransitionKind.COMMIT, started_ms=STARTED_MS + 1)], DARK, "that was another one"),
    ([transition(TransitionKind.COMMIT, producer_id=9)], DARK, "another producer's"),
    (
        [transition(TransitionKind.BEGIN), transition(TransitionKind.CLIENT_ABORT)],
        BAD,
        "the next one is of no interest",
    ),
    ([], DARK, "nothing is known"),
)
def test_the_outcome_of_a_transaction_follows_later_transitions_of_its_id(
    past: list[Transition], fate: TransactionFate, why: str
) -> None:
    assert outcome_by_history(written(), past).fate is fate, why


HDFS = {"hdfs://nameservice1/": "/mnt/hdfs/"}


@cases(
    ("s3a://bucket/checkpoints/orders", "s3://bucket/checkpoints/orders"),
    ("s3n://bucket/x", "s3://bucket/x"),
    ("s3://bucket/x", "s3://bucket/x"),
    ("S3A://bucket/x", "s3://bucket/x"),
    ("s3a://bucket", "s3://bucket"),
    ("s3a://bucket/", "s3://bucket"),
    ("file:/x", "file:///x"),
    ("file:///x", "file:///x"),
    ("file:///x/", "file:///x"),
    ("file:/x//y/./z/../w", "file:///x/y/w"),
    ("/x", "file:///x"),
    ("/", "file:///"),
    ("x/y", "file:///x/y"),
    ("/a folder/100%25", "file:///a folder/100%25"),
    ("/x/a:b", "file:///x/a:b"),
    ("x/a:b", "file:///x/a:b"),
    ("hdfs://nn:8020/x", "hdfs://nn:8020/x"),
    ("hdfs:/x", "hdfs:///x"),
    ("abfss://box@account.example/x", "abfss://box@account.example/x"),
    ("gs://bucket/x", "gs://bucket/x"),
    ("memory://x/y", "memory://x/y"),
)
def test_spellings(path: str, url: str) -> None:
    assert to_url(path) == url


@cases(
    ("hdfs://nameservice1/chk/orders", HDFS, "file:///mnt/hdfs/chk/orders"),
    ("hdfs://nameservice1/", HDFS, "file:///mnt/hdfs"),
    ("hdfs://nameservice2/x", HDFS, "hdfs://nameservice2/x"),
    ("dbfs:/mnt/x/y", {"dbfs:/mnt/x": "s3a://bucket"}, "s3://bucket/y"),
    ("dbfs:/mnt/xy", {"dbfs:/mnt/x": "s3a://bucket"}, "dbfs:///mnt/xy"),
    ("/data/deep/x", {"/data": "/a", "/data/deep": "/b"}, "file:///b/x"),
    ("/data/x", {"": "/a"}, "file:///data/x"),
)
def test_the_longest_mapped_prefix_is_replaced(path: str, mapped: dict[str, str], url: str) -> None:
    assert to_url(path, mapped=mapped) == url


def test_a_scheme_is_told_from_a_folder_with_a_colon_and_below_a_folder_its_own_spelling_stays() -> None:
    assert [scheme_of(path) for path in ("hdfs:/x", "S3A://b/x", "file:x")] == ["hdfs", "s3a", "file"]
    assert {scheme_of(path) for path in ("/a:b", "a/b:c", "c:/x", "x", "")} == {""}
    assert join_path("s3a://bucket/chk", "orders", "offsets") == "s3a://bucket/chk/orders/offsets"
    assert join_path("s3a://bucket/chk/", "orders") == "s3a://bucket/chk/orders"
    assert join_path("s3a://bucket") == "s3a://bucket"


def test_two_spellings_of_a_path_are_the_same_path() -> None:
    assert to_url("s3a://bucket/x/") == to_url("s3://bucket//x")
    assert to_url("hdfs://nameservice1/x", mapped=HDFS) == to_url("file:/mnt/hdfs/x")
    assert both_spellings("s3a://bucket/x", "s3://bucket/x") == "s3a://bucket/x (opened as s3://bucket/x)"
    assert both_spellings("file:///x/", "file:///x") == "file:///x/"
    assert both_spellings("/x", "file:///x") == "/x"
    assert both_spellings("x", "file:///x") == "x (opened as file:///x)"


@given(st.text(max_size=60))
def test_any_text_becomes_a_url_that_does_not_change_again(path: str) -> None:
    url = to_url(path)
    assert "://" in url
    assert to_url(url) == url
