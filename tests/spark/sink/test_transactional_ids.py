"""Proves that the sink needs two transactional ids for each task, however often its query starts or dies, and
that no attempt can take an id from another: ids of attempts and of generations that follow each other are
disjoint, a driver that was taken over starts no task any more, and ids of former versions are ended."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.facts import TransactionState
from fenceline.kafka.applications import Shape, application_of
from fenceline.limits import Limits
from fenceline.spark.records import SinkTransaction
from spark_pipeline.sink import names
from spark_pipeline.sink.coordinator import Attempt
from spark_pipeline.sink.errors import SinkError
from spark_pipeline.sink.options import translate_options
from spark_pipeline.sink.steps import Step
from spark_pipeline.sink.task.writer import admin_for
from spark_pipeline.sink.transactions import DriverLease, Transactions
from tests.cases import cases
from tests.spark.sink.queries import FakeQuery, open_ids, states, values_of

STEM = "orders-0225f62c"
#: How many batches each of 50 drivers commits in the soak.
BATCHES = int(os.environ.get("FENCELINE_ID_BATCHES", "50"))
whole = st.integers(0, 10_000)


@pytest.mark.parametrize("prefix", ["orders", "a-p1-g2", "ä b.c_d", "x" * 200])
def test_an_id_with_any_prefix_is_read_back(prefix: str) -> None:
    stem = names.id_stem(prefix, "0225f62c5efd493e")
    (first, *_) = names.task_ids(stem, 1_000, 17, 0)
    assert first == f"{prefix}-0225f62c-p1000-g1-s0"
    assert names.parse_id(first) == names.Parts(stem, 1_000, 1, 0)
    old = names.Parts(stem, 1_000, 17, 63, parity=1)
    assert str(old) == f"{prefix}-0225f62c-p1000-g17-b1-s63", "as former versions wrote it"
    assert names.parse_id(str(old)) == old
    assert names.prefix_refusal(prefix) is None


@cases(
    "", "orders", "orders-0225f62c-p1-g2-b2-s3", "orders-0225F62C-p1-g2-s3", "orders-0225f62c-p1-g2-s3-x",
    "orders-p1-g2-s3", names.lease_id(STEM),
)  # fmt: skip
def test_other_ids_are_not_those_of_tasks(other: str) -> None:
    assert names.parse_id(other) is None


def test_the_lease_is_of_the_same_application_as_the_tasks() -> None:
    (first, *_) = names.task_ids(STEM, 0, 1, 0)
    for name in first, names.lease_id(STEM):
        assert application_of(name)[::3] == ("orders", Shape.FENCELINE_SINK)


@given(st.tuples(whole, whole, whole), st.tuples(whole, whole, whole))
def test_two_attempts_share_no_id(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    """Of two partitions, of two attempts at one, or of two generations that follow each other."""
    ids, others = (set(names.task_ids(STEM, *each)) for each in (one, other))
    same_generation = one[1] % names.GENERATIONS == other[1] % names.GENERATIONS
    if (one[0], one[2]) == (other[0], other[2]) and same_generation:
        assert ids == others
    else:
        assert not ids & others
    partition, generation, attempt = one
    assert not ids & set(names.task_ids(STEM, partition, generation + 1, attempt))


@given(whole, whole, st.integers(1, 100))
def test_an_id_may_be_of_any_driver_up_to_its_own(generation: int, older: int, newer: int) -> None:
    (name, *_) = names.task_ids(STEM, 0, generation, 0)
    parts = names.parse_id(name)
    assert parts is not None
    assert parts.may_be_of(older)
    old = names.Parts(STEM, 0, generation, 0, parity=0)
    assert old.may_be_of(generation)
    assert not old._replace(generation=generation + newer).may_be_of(generation)


def run_batches(query: FakeQuery, first: int, batches: int, tasks: int) -> None:
    """Run a driver that commits some batches, and stops amid the next with its transactions open."""
    driver = query.driver(first)
    with ThreadPoolExecutor(4) as pool:

        def written(attempt: Attempt) -> list[SinkTransaction]:
            def write(number: int) -> SinkTransaction | None:
                return query.run_task(attempt, number, values_of(attempt.batch_id, number))

            return [each for each in pool.map(write, range(tasks)) if each is not None]

        for batch in range(first, first + batches):
            attempt = query.begin(driver, batch)
            driver.commit(attempt, written(attempt))
        written(query.begin(driver, first + batches))


def ids_of(query: FakeQuery) -> list[str]:
    admin = admin_for(translate_options(query.options).connection)
    return [name for name in admin.list_transactions().entries if name.startswith(query.topic)]


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("starts", "batches", "tasks"), [(4, 2, 2), pytest.param(50, BATCHES, 25, marks=pytest.mark.soak)]
)
def test_restarts_leave_two_ids_for_each_task(
    query: FakeQuery, starts: int, batches: int, tasks: int
) -> None:
    """Each driver stops amid a batch, with a transaction of each task open."""
    for number in range(starts):
        run_batches(query, number * batches, batches, tasks)
    query.driver(starts * batches)
    ids = ids_of(query)
    assert len(ids) == 2 * tasks + 1, "those of the tasks, and the lease"
    assert len({application_of(name).application for name in ids}) == 1
    assert len(ids) < Limits().new_ids_per_hour
    assert open_ids(query) == []
    assert len(query.committed()) == 2 * starts * batches * tasks


@pytest.mark.kafka
@pytest.mark.parametrize("takeovers", [1, 2])
def test_tasks_of_a_driver_that_was_taken_over_write_nothing(query: FakeQuery, takeovers: int) -> None:
    late = query.begin(query.driver(0), 0)
    for _ in range(takeovers):
        driver = query.driver(0)
    attempt = query.begin(driver, 0)
    written = query.run_tasks(attempt)
    with pytest.raises(SinkError, match=r"another driver took over from generation 1: .*-lease"):
        query.run_tasks(late)
    driver.commit(attempt, written)
    assert query.committed() == values_of(0, 0, 1)


@pytest.mark.kafka
def test_a_lease_that_coordinators_have_forgotten_stops_nobody(query: FakeQuery) -> None:
    """After transactional.id.expiration.ms; a driver that had taken over would have made it again."""
    driver = query.driver(0)
    attempt = query.begin(driver, 0)
    expired = attempt._replace(stem=f"{query.topic}-ffffffff", lease=DriverLease(1, 1))
    written = query.run_tasks(expired)
    driver.abort(attempt, written, "enough seen")


@pytest.mark.kafka
def test_a_copy_of_a_repeated_task_cannot_begin_in_the_next_batch(query: FakeQuery) -> None:
    driver = query.driver(0)
    first = query.begin(driver, 0)
    again = query.run_task(first, 0, values_of(0, 0), number=1)
    assert again is not None
    driver.commit(first, [again])
    second = query.begin(driver, 1)
    assert second.lease != first.lease
    written = query.run_tasks(second)
    with pytest.raises(SinkError, match="another driver took over"):
        query.run_task(first, 0, ["late"])
    driver.commit(second, written)
    assert query.begin(driver, 2).lease == second.lease
    assert query.committed() == values_of(0, 0) + values_of(1, 0, 1)


@pytest.mark.kafka
def test_a_slow_driver_leaves_alone_what_its_successor_has_open(query: FakeQuery) -> None:
    """It has listed them, and finds that it was taken over before it fences any."""
    driver = query.driver(0)
    attempt = query.begin(driver, 0)
    written = query.run_tasks(attempt)
    transactions = Transactions(admin_for(translate_options(query.options).connection))
    assert transactions.fence_leftovers(attempt.stem, lambda _: True, lambda: False) == []
    assert len(open_ids(query)) == 2
    driver.commit(attempt, written)


def former_ids(stem: str, partition: int, generation: int, attempt: int) -> list[str]:
    """Return an id as a former version of the sink made it."""
    return [str(names.Parts(stem, partition, generation, 17, parity=0))]


def stop_prepared(step: Step, batch_id: int) -> None:
    if step is Step.PREPARED:
        raise InterruptedError


@pytest.mark.kafka
@pytest.mark.parametrize("decided", [True, False])
def test_what_a_former_version_has_left_is_ended(
    query: FakeQuery, monkeypatch: pytest.MonkeyPatch, decided: bool
) -> None:
    observer: Callable[[Step, int], None] | None = stop_prepared if decided else None
    with monkeypatch.context() as former:
        former.setattr(names, "task_ids", former_ids)
        driver = query.driver(0, observer=observer)
        attempt = query.begin(driver, 0)
        written = query.run_tasks(attempt)
        if decided:
            with pytest.raises(InterruptedError):
                driver.commit(attempt, written)
    assert all(name.endswith("-g1-b0-s17") for name in open_ids(query))
    query.driver(0)
    assert query.committed() == (values_of(0, 0, 1) if decided else [])
    ended = TransactionState.COMPLETE_COMMIT if decided else TransactionState.EMPTY
    assert states(query, *(each.transactional_id for each in written)) == [ended] * 2
