"""Proves on real brokers that the commit of what a Flink checkpoint decided ends just that transaction, that
whatever happens between preview and execution makes it stale with nothing sent, that a worker that dies is
settled by what is there, and what a fence of such an id loses. The checkpoint names a real open transaction;
its bytes are written here by Flink's rules (real jobs are in `test_flink_jobs.py`)."""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collectors.flink import FlinkCollector
from dashboard.actions import follow_up
from dashboard.config import CheckpointRoot
from dashboard.engines import flink_jobs as queries
from dashboard.engines import store as store
from dashboard.models import Action, Cluster
from dashboard.runtime import leases, loop
from fenceline.facts import TransactionState
from fenceline.kafka.reconcile import Described
from fenceline.plans.plan import Act, Plan
from fenceline.plans.plan import RefusalReason as Why
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.cases import cases
from tests.kafka.action_worker import (
    CLUSTER,
    configured_cluster,
    execute_plan,
    execute_until_killed,
    kill_at,
    make_plan,
    outcomes,
    result_texts,
)
from tests.kafka.driven import take_lease
from tests.kafka.planning_cluster import refusal_reasons, refusal_texts
from tests.kafka.producers import LibrdkafkaProducer
from tests.kafka.topic_records import committed_values
from tests.unit import flink_states as states
from tests.waiting import wait_for
from transaction_admin.kafka_python import TransactionAdmin

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]
TIMEOUT_MS = 777_000


class CheckpointedTransaction:
    """An open transaction of two records, and a checkpoint of a job that decided to commit it."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.broker, self.folder = broker, folder
        self.topic = f"out-{uuid.uuid4().hex[:8]}"
        self.prefix = f"copy-{self.topic}"
        self.name = f"{self.prefix}-0-1"
        create_topics(broker.bootstrap, self.topic, partitions=1)
        self._admin = TransactionAdmin({"bootstrap.servers": broker.bootstrap}, 10.0)
        self._collector = FlinkCollector([CheckpointRoot(str(folder), CLUSTER)])
        self.producer = LibrdkafkaProducer(
            broker.bootstrap, self.name, {"transaction.timeout.ms": str(TIMEOUT_MS)}
        )
        self.producer.init()
        self.begin()
        self.complete(1, self.describe())

    def begin(self) -> None:
        """Begin a transaction of two records."""
        self.producer.begin()
        for _ in range(2):
            self.producer.send(self.topic, 0)
        self.producer.flush()

    def describe(self) -> Described:
        """Return the coordinator's description of the id."""
        found = self._admin.describe_transactions([self.name])[self.name]
        assert isinstance(found, Described)
        return found

    def complete(
        self, number: int, decided: Described | None, *, job: str = "job", age_s: float = 0, kind: str = "chk"
    ) -> Path:
        """Complete a checkpoint, which decides to commit what is given and an id of its own, and poll it."""
        some = [states.committable(f"{self.prefix}-7-{number}", 0, 0)]
        if decided is not None:
            some.append(states.committable(self.name, decided.producer_id, decided.producer_epoch))
        checkpoint = self.folder / job / f"{kind}-{number}"
        checkpoint.mkdir(parents=True)
        raw = states.metadata_6(number, [states.collector_entry(number, some)])
        if kind != "chk":
            raw = raw.replace(b"checkpoint.CheckpointType", b"checkpoint.SavepointType")
        (checkpoint / "_metadata").write_bytes(raw)
        at_s = loop.now_ms() / 1_000 - age_s
        os.utime(checkpoint / "_metadata", (at_s, at_s))
        self.poll()
        return checkpoint

    def poll(self) -> None:
        """Poll the checkpoints with the collector."""
        lease = take_lease(CLUSTER, store.NAME)
        found = self._collector.poll(loop.now_ms(), every_s=0)
        store.save_jobs(lease, found.observations, found.searched, gaps=found.gaps, now_ms=loop.now_ms())
        leases.release(lease)

    def plan(self, *, force: bool = False) -> Plan:
        """Return a plan to commit what was decided."""
        return make_plan(Act.COMMIT_FLINK, self.name, force=force)

    def committed(self) -> int:
        """Return how many records a read_committed consumer gets."""
        return len(committed_values(self.broker.bootstrap, self.topic))

    def close(self) -> None:
        """Close the connections."""
        self._admin.close()


@pytest.fixture
def held(kafka: Broker, tmp_path: Path) -> Iterator[CheckpointedTransaction]:
    with configured_cluster({"bootstrap.servers": kafka.bootstrap}):
        made = CheckpointedTransaction(kafka, tmp_path / "flink")
        yield made
        made.close()


def test_just_the_transaction_that_was_decided_is_committed(held: CheckpointedTransaction) -> None:
    before, plan = held.describe(), held.plan()
    assert refusal_reasons(plan) == [[]]
    amounts = {each.name: each.amount for each in plan.subjects[0].effects}
    assert amounts["records_committed"] == 2
    assert held.committed() == 0
    row = execute_plan(plan)
    assert (row.state, outcomes(row)) == (Action.State.DONE, ["done"]), result_texts(row)
    wait_for(lambda: held.describe().state is TransactionState.COMPLETE_COMMIT, "its markers")
    after = held.describe()
    assert (after.producer_id, after.producer_epoch) == (before.producer_id, before.producer_epoch)
    assert held.committed() == 2
    again = held.plan()
    assert refusal_reasons(again) == [[Why.ALREADY_ENDED]]
    assert "is committed already" in refusal_texts(again)


@cases(
    (lambda held: held.producer.commit(), "it is CompleteCommit"),
    (lambda held: held.producer.abort(), "it is CompleteAbort"),
    (lambda held: (held.producer.commit(), held.begin()), "it is Ongoing"),
    (lambda held: held.complete(2, None), "does not hold it any more"),
    (lambda held: held.complete(2, None, job="new", age_s=-5), "has completed a checkpoint since"),
    ids=["committed", "aborted", "another", "subsumed", "new job"],
)
def test_whatever_happens_before_the_execution_makes_it_stale(
    held: CheckpointedTransaction, change: Callable[[CheckpointedTransaction], object], words: str
) -> None:
    plan = held.plan()
    change(held)
    wait_for(lambda: not held.describe().state.startswith("Prepare"), "no end is on its way")
    seen = held.describe()
    row = execute_plan(plan)
    assert outcomes(row) == ["stale"], result_texts(row)
    assert words in result_texts(row)
    assert "nothing was asked for it" in result_texts(row)
    assert held.describe() == seen


@cases(
    ("verify", Action.State.FAILED, "nothing was asked"),
    ("EndTxn", Action.State.FAILED, "it is still open as it was seen: nothing was done"),
    ("answered", Action.State.DONE, "it is committed"),
)
def test_a_worker_that_dies_is_settled_by_what_is_there(
    held: CheckpointedTransaction, step: str, state: Action.State, words: str
) -> None:
    row = execute_until_killed(held.plan(), kill_at(step))
    wait_for(lambda: not held.describe().state.startswith("Prepare"), "no end is on its way")
    seen = held.describe()
    assert follow_up.settle_action(row, now_ms=loop.now_ms())
    row.refresh_from_db()
    assert row.state == state, result_texts(row)
    assert words in result_texts(row)
    assert held.describe() == seen, "it only reads"


def test_a_fence_of_it_is_refused_and_by_force_loses_its_records(held: CheckpointedTransaction) -> None:
    refused = make_plan(Act.FENCE, held.name, force=False)
    assert Why.CHECKPOINTED in refusal_reasons(refused)[0]
    assert f"commit_flink {held.name}" in refusal_texts(refused)
    row = execute_plan(make_plan(Act.FENCE, held.name, force=True))
    assert outcomes(row) == ["done"], result_texts(row)
    assert held.committed() == 0
    lost = held.plan()
    assert refusal_reasons(lost) == [[Why.ALREADY_ENDED]]


def test_a_savepoint_decides_only_by_force(held: CheckpointedTransaction) -> None:
    decided = held.describe()
    for path in held.folder.rglob("_metadata"):
        path.unlink()
    held.complete(1, decided, job="savepoints", kind="savepoint")
    assert refusal_reasons(held.plan()) == [[Why.SAVEPOINT]]
    assert refusal_reasons(held.plan(force=True)) == [[]]


def test_a_job_that_went_on_from_elsewhere_is_a_reason_not_to_commit(held: CheckpointedTransaction) -> None:
    held.complete(3, None, job="newer", age_s=-5)
    assert refusal_reasons(held.plan()) == [[Why.NEWER_JOB]]


def test_a_transaction_that_began_after_the_checkpoint_is_not_its_own(held: CheckpointedTransaction) -> None:
    held.complete(2, held.describe(), age_s=-5)
    assert refusal_reasons(held.plan()) == [[]]
    for path in held.folder.rglob("_metadata"):
        path.unlink()
    held.complete(3, held.describe(), age_s=3_600)
    assert refusal_reasons(held.plan()) == [[Why.BEGAN_LATER]]
    assert "the clocks of the brokers and of the store differ" in refusal_texts(held.plan())


def test_what_no_checkpoint_will_commit_is_fenced_and_nothing_decided_is_lost(
    held: CheckpointedTransaction,
) -> None:
    for number in (2, 3):
        held.complete(number, None)
    left = held.describe()
    hold = queries.holds_of(Cluster.objects.get().pk, [held.name], now_ms=loop.now_ms())[held.name]
    assert hold.has_left(held.name, left.started_ms)
    # Forced, since it is open for a moment alone.
    plan = make_plan(Act.FENCE, held.name, force=True)
    assert "a fence loses nothing that was decided" in " ".join(plan.warnings)
    row = execute_plan(plan)
    assert outcomes(row) == ["done"], result_texts(row)
    wait_for(lambda: held.describe().producer_epoch > left.producer_epoch, "its fence")
    assert held.committed() == 0


def test_an_id_without_a_checkpoint_is_fenced_as_any_other(held: CheckpointedTransaction) -> None:
    """Its shape is Flink's, and nothing else is a sign of it."""
    for path in held.folder.rglob("_metadata"):
        path.unlink()
    held.poll()
    assert refusal_reasons(held.plan()) == [[Why.NOT_CHECKPOINTED]]
    fence = make_plan(Act.FENCE, held.name, force=False)
    assert Why.CHECKPOINTED not in refusal_reasons(fence)[0]
    assert queries.job_count(CLUSTER) == 0
