"""Writers of transactions and batches: tails, corrections, checkpoints, listeners, actions, recoveries."""

from django.db.models import Q

from dashboard.actions import store as rows
from dashboard.history import audits
from dashboard.history.audits import AuditStatus
from dashboard.history.job_outputs import ReportTrouble
from dashboard.models import Action, AuditViolationRecord, Batch, Token, Transaction
from dashboard.recoveries import store as recovery_store
from dashboard.runtime import collector_store, leases
from dashboard.streaming import checkpoint_store, progress_store
from dashboard.system.access import ROLES, Actor
from dashboard.transactions import reconcile_store, store
from fenceline.decode import ingest_payload
from fenceline.facts import TopicPartitions, TransactionRecord, TransactionState
from fenceline.kafka.reconcile import Correction, Reconciliation
from fenceline.plans.plan import Act, Plan, SubjectPlan
from tests.audit_manifests import audit_manifest
from tests.db import factories, listener_posts
from tests.db.conftest import NOW_MS
from tests.db.writers.writer import FEW, Writer, lease
from tests.factories import tail_batch

_EPOCHS = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_ABORT,
    TransactionState.EMPTY,
)


class Tail(Writer):
    """A shard of the tail: each batch has an id that was taken over, and one that all batches have."""

    def __init__(self, shard: int) -> None:
        super().__init__()
        self.lease, self.partition, self.next = lease(f"transaction_state-{shard}"), shard, 0

    def write(self, number: int) -> None:
        name, at_ms = f"tail-{self.partition}-{number}", self.now_ms
        records = [
            _record(name, state, 4 + (place > 1) + (place > 3), at_ms + place * 10, at_ms)
            for place, state in enumerate(_EPOCHS)
        ]
        records.append(_record(f"again-{self.partition}", TransactionState.ONGOING, 1, at_ms, at_ms))
        end = self.next + len(records)
        look = tail_batch(
            self.partition, *records, previous=self.next or None, end=end, seen_through_ms=at_ms
        )
        store.save_batch(self.lease, look, topic_id="topic-1", rate=1.0, now_ms=at_ms)
        self.next = end

    def lost(self) -> object:
        there = Transaction.objects.filter(transactional_id__startswith=f"tail-{self.partition}-").count()
        moved = collector_store.saved_positions("prod")[1].get(self.partition, 0)
        return there - self.number, moved - self.next


def _record(name: str, state: TransactionState, epoch: int, at_ms: int, started_ms: int) -> TransactionRecord:
    is_open = state not in (TransactionState.EMPTY, TransactionState.COMPLETE_ABORT)
    partitions = (TopicPartitions("orders", (0,)),) if is_open else ()
    return TransactionRecord(
        name, state, 7, epoch, 60_000, partitions, at_ms, started_ms if is_open else None
    )


class Corrections(Writer):
    """The reconciler: an id that only a coordinator's list has."""

    def __init__(self) -> None:
        super().__init__()
        self.lease = lease(reconcile_store.NAME)

    def write(self, number: int) -> None:
        new = Correction(
            _record(f"list-{number}", TransactionState.ONGOING, 1, self.now_ms, self.now_ms), None
        )
        found = Reconciliation(self.now_ms, True, False, corrections=[new], seen_through_ms=self.now_ms)
        reconcile_store.save_reconciliation(self.lease, found, now_ms=self.now_ms)

    def lost(self) -> object:
        return Transaction.objects.filter(transactional_id__startswith="list-").count() - self.number


class Checkpoints(Writer):
    """The collector of checkpoints: a batch of each of a few queries, one of which is gone at times."""

    def __init__(self) -> None:
        super().__init__()
        self.lease = lease(checkpoint_store.NAME)

    def write(self, number: int) -> None:
        looks = [
            factories.checkpoint_look(number + 1, number, path=_path(each), query_id=_query_id(each))
            for each in range(FEW)
        ]
        blind = f"checkpoint:{_path(number % FEW)}"
        gaps = {blind: (self.now_ms, f"cannot be read: {number}")}
        checkpoint_store.save_checkpoints(self.lease, looks, (), gaps=gaps, now_ms=self.now_ms)

    def lost(self) -> object:
        return Batch.objects.exclude(planned_ms=None).count() - FEW * (self.number + 1)


def _path(each: int) -> str:
    return f"file:///checkpoints/{each}"


def _run_id(each: int) -> str:
    return f"{each}aaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"


def _query_id(each: int) -> str:
    return f"{each}1111111-1111-1111-1111-111111111111"


class Progress(Writer):
    """A listener: a finished batch of each of the same queries, in the other order."""

    def write(self, number: int) -> None:
        events = [
            listener_posts.batch_event(number, self.now_ms, query=_query_id(each), run=_run_id(each))
            for each in reversed(range(FEW))
        ]
        post = ingest_payload.decode_post(listener_posts.listener_post(*events, sent_ms=self.now_ms))
        assert post.refused == ()
        progress_store.save_progress(post, now_ms=self.now_ms)

    def lost(self) -> object:
        return Batch.objects.exclude(run_id="").count() - FEW * self.number


class Actions(Writer):
    """Plans that are kept, executed and ended."""

    def write(self, number: int) -> None:
        actor = Actor("ada", "page", ROLES[Token.Role.ADMIN])
        name = f"tail-0-{number}"
        about = {"transactional_id": name, "producer_id": 7, "producer_epoch": 3, "started_ms": NOW_MS}
        plan = Plan(Act.FENCE, "prod", NOW_MS, name, (SubjectPlan(f"transaction:{name}", name, about),))
        row = rows.save_plan(plan, actor)
        until = leases.Now() + rows.LIVES
        state = Action.State.EXECUTING
        assert rows.update_action(row, Q(state="planned"), state=state, lease_token="t", lease_until=until)
        begun = rows.begin_action(row.pk, "t", now_ms=self.now_ms)
        assert begun is not None
        rows.prolong_lease(begun)
        rows.end_action(begun, Action.State.DONE, [], ended_ms=self.now_ms)

    def lost(self) -> object:
        return Action.objects.filter(state="done").count() - self.number


class Recoveries(Writer):
    """What follows aborted transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.lease = lease(recovery_store.NAME)

    def write(self, number: int) -> None:
        recovery_store.update_recoveries(self.lease, limit_ms=60_000, now_ms=self.now_ms)
        for row in recovery_store.waiting_for_a_search(self.lease.cluster_id)[:3]:
            recovery_store.save_lost(self.lease, {row: ()})


class Audits(Writer):
    """The collector of audits: two pipelines in turn, the other one of which cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.lease = lease(audits.NAME)

    def write(self, number: int) -> None:
        names = [f"p-{(number + each) % 2}" for each in range(2)]
        unreadable = ReportTrouble("The audits cannot be read", f"no answer: {number}.", "Wait.")
        found = {names[0]: audit_manifest(names[0], missing=number + 1), names[1]: unreadable}
        audits.save_audits(self.lease, AuditStatus(found, at_ms=self.now_ms), now_ms=self.now_ms)

    def lost(self) -> object:
        there = AuditViolationRecord.objects.values_list("missing", flat=True)
        return sorted(there) != [each for each in (self.number - 1, self.number) if each > 0]
