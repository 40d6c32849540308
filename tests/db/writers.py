"""Every writer of the dashboard, each writing one thing more at a call, and what must be there afterwards.

For tests that let them run against each other: they write for one cluster, and where they can for the same
queries, ids and channels. Their rows are counted at the end, so that a row that was lost is found.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.contrib.auth.signals import user_login_failed
from django.db.models import Q
from django.test import RequestFactory

from collectors.kafka.partitions import ObservedPartitions
from dashboard.actions import lease as action_lease
from dashboard.actions import store as rows
from dashboard.alerts import channels, deliver, delivery_queue, silences
from dashboard.alerts import evaluate as evaluate_alerts
from dashboard.alerts.senders import SendOutcome
from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.groups import commit_store
from dashboard.groups import store as group_store
from dashboard.history import audit_store
from dashboard.history.audits import AuditStatus
from dashboard.history.report_types import ReportTrouble
from dashboard.incidents import operators
from dashboard.models import (
    Action,
    Alert,
    AuditEntry,
    AuditViolationRecord,
    Batch,
    Channel,
    Cluster,
    Collector,
    CommitRecord,
    ConnectorRecord,
    Delivery,
    FindingRecord,
    GapRecord,
    Group,
    GroupOffset,
    Incident,
    PartitionRecord,
    Query,
    Recovery,
    ReplicaLook,
    Silence,
    Tally,
    Token,
    Transaction,
    TransitionRecord,
)  # fmt: skip
from dashboard.partitions import replica_store
from dashboard.partitions import store as partition_store
from dashboard.recoveries import store as recovery_store
from dashboard.runtime import (
    collector_store,
    leases,  # fmt: skip
    retention,  # fmt: skip
)
from dashboard.runtime.leases import Lease
from dashboard.streaming import checkpoint_store, engines_store, progress_store
from dashboard.system.access import ROLES, Actor
from dashboard.transactions import reconcile_store, store
from fenceline.collecting import EngineAnswer
from fenceline.connect.connectors import ConnectorStatus
from fenceline.decode import ingest_payload
from fenceline.facts import (
    Finding,
    PositionMove,
    RawRecord,
    Severity,
    TailBatch,
    TopicPartition,
    TopicPartitions,
    TransactionRecord,
    TransactionState,
)
from fenceline.kafka.partitions import (
    KnownPartition,
    PartitionPlace,
    PartitionVerdict,
    Pin,
    ProducerState,
    VerdictReason,
)
from fenceline.kafka.reconcile import Correction, Reconciliation
from fenceline.limits import Retention
from fenceline.plans.plan import Act, Plan, SubjectPlan
from tests.audit_manifests import audit_manifest
from tests.db import factories, listener_posts
from tests.db.conftest import NOW_MS
from tests.db.test_save_commits import key, value
from tests.db.test_save_groups import groups_poll, observed_group
from tests.factories import tail_batch

#: Queries, groups and partitions that are written again and again.
FEW = 4
KEEP = Retention(transitions_d=30, minutes_d=30, hours_d=60, closed_d=30, batches_d=30)
_DAY_MS = 86_400_000
_EPOCHS = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_ABORT,
    TransactionState.EMPTY,
)


def lease(name: str) -> Lease:
    """Take a lease that must be free."""
    taken = leases.acquire("prod", name, holder="test", now_ms=NOW_MS, ttl=leases.TTL * 1_000)
    assert taken is not None, f"the lease of {name} is not free"
    return taken


@dataclass
class Writer(ABC):
    """Writes once when called; `number` says how often it has."""

    number: int = field(default=0, init=False)

    def __call__(self) -> None:
        self.write(self.number)
        self.number += 1

    @abstractmethod
    def write(self, number: int) -> None:
        """Write what comes next."""

    def lost(self) -> object:
        """Return what is missing of all that was written; something false where nothing is."""
        return None

    @property
    def now_ms(self) -> int:
        """Return a clock that advances with each write."""
        return NOW_MS + self.number * 1_000


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


class Groups(Writer):
    """The collector of groups."""

    def __init__(self) -> None:
        super().__init__()
        self.lease = lease(group_store.NAME)

    def write(self, number: int) -> None:
        some = {f"g-{each}": observed_group(offset=number) for each in range(FEW) if (number + each) % 3}
        look = groups_poll(some, self.now_ms, gaps={"broker:2": f"no answer: {number}"})
        group_store.save_groups(
            self.lease, look, group_store.GroupRows(self.lease, self.now_ms), now_ms=self.now_ms
        )
        self.wanted = sorted(some)

    def lost(self) -> object:
        there = sorted(Group.objects.values_list("group_id", flat=True))
        offsets = GroupOffset.objects.filter(offset=self.number - 1).count()
        return there != self.wanted or offsets != len(self.wanted)


class Commits(Writer):
    """A shard of the tail of `__consumer_offsets`."""

    def __init__(self, shard: int) -> None:
        super().__init__()
        self.lease, self.shard, self.next = lease(f"{commit_store.NAME}-{shard}"), shard, 0

    def write(self, number: int) -> None:
        keys = {key(b"c-%d-%d" % (self.shard, each)): value(number, self.now_ms) for each in range(FEW)}
        end = self.next + 10
        records = {name: [RawRecord(each, end - 1, self.now_ms)] for name, each in keys.items()}
        moves = (PositionMove(self.shard, self.next or None, end, end),)
        look = TailBatch({self.shard: records}, moves, len(keys), seen_through_ms=self.now_ms)
        commit_store.save_commits(self.lease, look, topic_id="topic-1", rate=1.0, held={}, now_ms=self.now_ms)
        self.next = end

    def lost(self) -> object:
        newest = CommitRecord.objects.filter(group_id__startswith=f"c-{self.shard}-", offset=self.number - 1)
        return newest.count() - FEW


class Partitions(Writer):
    """The collector of partitions: a few partitions and a transaction that is open in one."""

    def __init__(self) -> None:
        super().__init__()
        self.lease = lease(partition_store.NAME)

    def write(self, number: int) -> None:
        place = PartitionPlace("topic-1", 1, 5, (1, 2))
        known = {
            TopicPartition("orders", each): KnownPartition(
                "orders", each, place, 0, number, number + 5, self.now_ms, None, PartitionVerdict.CLEAR, ""
            )
            for each in range(FEW)
        }
        pin = Pin(
            "orders",
            0,
            number,
            4,
            5,
            11,
            NOW_MS,
            None,
            NOW_MS,
            "gateway",
            PartitionVerdict.OPEN,
            VerdictReason.OWNED,
        )
        ended = [("orders", 0, number - 1, 4, 5)] if number else []
        gaps = {f"orders-{number % FEW}": "cannot be seen"}
        look = ObservedPartitions(self.now_ms, full=True, rows=known, pins=(pin,), ended=ended, gaps=gaps)
        partition_store.save_partitions(self.lease, look, now_ms=self.now_ms)

    def lost(self) -> object:
        return PartitionRecord.objects.filter(lso=self.number - 1).count() - FEW


class Replicas(Writer):
    """What a page asks replicas for."""

    def write(self, number: int) -> None:
        said = {1: [ProducerState(number, 4, 5, NOW_MS, None, 5)], 2: "no answer"}
        where = TopicPartition("orders", 0)
        replica_store.save_replicas("prod", where, said, leader=1, ids={}, now_ms=self.now_ms)

    def lost(self) -> object:
        return ReplicaLook.objects.filter(seen_ms=NOW_MS + (self.number - 1) * 1_000).count() - 2


class Evaluations(Writer):
    """The evaluation: one finding is new each time, one stays, the others close."""

    def __init__(self) -> None:
        super().__init__()
        self.lease = lease(evaluate_rules.NAME)

    def write(self, number: int) -> None:
        found = [
            Finding("coordinator_overdue", "prod", subject, Severity.WARNING, NOW_MS, f"s {number}", "e", "n")
            for subject in ("query:stays", f"query:{number}", f"query:{number - 1}")
        ]
        evaluate_rules.save_findings(self.lease, found, sees=lambda row: True, now_ms=self.now_ms)

    def lost(self) -> object:
        return FindingRecord.objects.filter(subject__startswith="query:").count() - self.number - 2


class Operators(Writer):
    """Operators who write notes to one incident, which the evaluation closes."""

    def __init__(self) -> None:
        super().__init__()
        of = Cluster.objects.get(name="prod")
        self.incident = Incident.objects.create(
            cluster=of, rule="hanging", subject="partition:a-0", severity="info", opened_ms=NOW_MS
        )

    def write(self, number: int) -> None:
        operators.add_incident_note(self.incident.pk, f"note {number}", by="ada", now_ms=self.now_ms)

    def lost(self) -> object:
        return self.incident.events.filter(kind="note").count() - self.number


class Alerts(Writer):
    """What turns findings into alerts and messages."""

    def __init__(self) -> None:
        super().__init__()
        self.lease = lease(evaluate_alerts.NAME)
        for name in ("pager", "chat"):
            Channel.objects.create(
                name=name,
                kind="webhook",
                url="https://x",
                group_wait_s=0,
                group_interval_s=1,
                created_by="ada",
            )

    def write(self, number: int) -> None:
        evaluate_alerts.evaluate_alerts(self.lease, now_ms=self.now_ms)

    def lost(self) -> object:
        self()
        stays = FindingRecord.objects.get(subject="query:stays")
        return stays.pk not in Alert.objects.values_list("finding", flat=True)


class Deliveries(Writer):
    """What sends messages, and what came of each; every third one is not taken."""

    def write(self, number: int) -> None:
        limits = settings.FENCELINE.alerts
        for pk in list(delivery_queue.due_deliveries().values_list("pk", flat=True)[:3]):
            claim = delivery_queue.claim(pk, 1.0)
            if claim is not None:
                taken = number % 3 != 0
                delivery_queue.finish_delivery(
                    claim, SendOutcome(taken, error="" if taken else "500", retry=not taken), limits
                )
        done = Delivery.objects.filter(state="delivered", channel__name="pager", channel__enabled=True)
        for row in done.order_by("-pk")[: number % 5 == 0]:
            deliver.send_again(row)


class Channels(Writer):
    """An operator who adds channels, changes them, and deletes one with its messages."""

    def write(self, number: int) -> None:
        draft = channels.ChannelDraft(f"hook-{number}", "webhook", "https://93.184.216.34/x")
        row = channels.add(draft, by="ada")
        channels.disable(row, by="ada")
        channels.enable(row)
        for old in Channel.objects.filter(name=f"hook-{number - 1}"):
            channels.delete(old)
        channels.enable(Channel.objects.filter(name__in=["pager", "chat"]).order_by("?")[0])

    def lost(self) -> object:
        return Channel.objects.filter(name__startswith="hook-").count() - 1


class Silences(Writer):
    """An operator who makes silences and ends them, and makes tokens."""

    def write(self, number: int) -> None:
        draft = silences.SilenceDraft(
            lambda: [("alertname", "=", "nothing")],
            "deploy",
            lambda: self.now_ms,
            lambda: self.now_ms + 60_000,
        )
        silences.end_silence(
            silences.create_silence(draft, by="ada", now_ms=self.now_ms), by="ada", now_ms=self.now_ms + 1
        )
        Token.objects.create(name=f"t-{number}", role="viewer", digest=secrets.token_hex(32))

    def lost(self) -> object:
        return Silence.objects.count() - self.number, Token.objects.count() - self.number


class SignIns(Writer):
    """Failed sign-ins of one name: one row with a count."""

    def write(self, number: int) -> None:
        request = RequestFactory().post("/login/")
        user_login_failed.send(__name__, credentials={"username": "nobody"}, request=request)

    def lost(self) -> object:
        rows = AuditEntry.objects.filter(event="sign_in.failed", at__gt="2021-01-01T00:00Z")
        return sum(rows.values_list("count", flat=True)) - self.number


class Actions(Writer):
    """Plans that are kept, executed and ended."""

    def write(self, number: int) -> None:
        actor = Actor("ada", "page", ROLES[Token.Role.ADMIN])
        name = f"tail-0-{number}"
        about = {"transactional_id": name, "producer_id": 7, "producer_epoch": 3, "started_ms": NOW_MS}
        plan = Plan(Act.FENCE, "prod", NOW_MS, name, (SubjectPlan(f"transaction:{name}", name, about),))
        row = rows.save_plan(plan, actor)
        until = leases.Now() + action_lease.LIVES
        state = Action.State.EXECUTING
        assert rows.update_action(row, Q(state="planned"), state=state, lease_token="t", lease_until=until)
        begun = action_lease.begin_action(row.pk, "t", now_ms=self.now_ms)
        assert begun is not None
        action_lease.prolong(begun)
        action_lease.end_action(begun, Action.State.DONE, [], ended_ms=self.now_ms)

    def lost(self) -> object:
        return Action.objects.filter(state="done").count() - self.number


class Recoveries(Writer):
    """What follows aborted transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.lease = lease(recovery_store.NAME)

    def write(self, number: int) -> None:
        recovery_store.update_recoveries(self.lease, limit_ms=60_000, now_ms=self.now_ms)
        for row in recovery_store.waiting_for_a_search(self.lease)[:3]:
            recovery_store.save_lost(self.lease, row, ())


class Prune(Writer):
    """Retention: old rows are added, and deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.lease = lease(retention.NAME)

    def write(self, number: int) -> None:
        old_ms = NOW_MS - 90 * _DAY_MS + number
        prod = Cluster.objects.get(name="prod")
        for span in (60, 3_600):
            Tally.objects.create(
                cluster=prod, application=f"old-{number}", span_s=span, start_ms=old_ms, shard=0, counts="{}"
            )
        GapRecord.objects.create(cluster=prod, source="s", scope="s", since_ms=0, until_ms=old_ms, reason="r")
        FindingRecord.objects.create(
            cluster=prod, rule="r", subject="old", fingerprint=f"old {number}".encode(), severity="info",
            since_ms=0, seen_at="2020-01-01T00:00Z", closed_at="2020-01-01T00:00Z",
        )  # fmt: skip
        AuditEntry.objects.create(event="sign_in.failed", via="page", subject_name="old")
        AuditEntry.objects.filter(subject_name="old").update(at="2020-01-01T00:00Z")
        Recovery.objects.create(
            cluster=prod, key=b"old", transactional_id="old", application="old", cause="timeout",
            confidence="certain", producer_id=1, producer_epoch=1, topic_id="t", log_partition=99,
            log_offset=number, opened_ms=old_ms, closed_ms=old_ms, outcome="resumed", rev=1,
        )  # fmt: skip
        while retention.prune(self.lease, KEEP, now_ms=NOW_MS):
            pass

    def lost(self) -> object:
        old = FindingRecord.objects.filter(subject="old").count()
        old += AuditEntry.objects.filter(subject_name="old").count()
        return old + Recovery.objects.filter(transactional_id="old").count()


class Audits(Writer):
    """The collector of audits: two pipelines in turn, the other one of which cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.lease = lease(audit_store.NAME)

    def write(self, number: int) -> None:
        names = [f"p-{(number + each) % 2}" for each in range(2)]
        unreadable = ReportTrouble("The audits cannot be read", f"no answer: {number}.", "Wait.")
        found = {names[0]: audit_manifest(names[0], missing=number + 1), names[1]: unreadable}
        audit_store.save_audits(self.lease, AuditStatus(found, at_ms=self.now_ms), now_ms=self.now_ms)

    def lost(self) -> object:
        there = AuditViolationRecord.objects.values_list("missing", flat=True)
        return sorted(there) != [each for each in (self.number - 1, self.number) if each > 0]


class Engines(Writer):
    """The collector of REST APIs: two connectors in turn, and an API that does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.lease = lease(engines_store.NAME)

    def write(self, number: int) -> None:
        named = [
            ConnectorStatus(f"c-{number + each}", "source", "C", "RUNNING", "w:1", ()) for each in (0, 1)
        ]
        answer = EngineAnswer("http://w:1", "4.2.0", connectors=named)
        gaps = {"api:http://w:2": (NOW_MS, f"no answer: {number}")}
        engines_store.save_engines(self.lease, [answer], {}, gaps=gaps, now_ms=self.now_ms)

    def lost(self) -> object:
        there = ConnectorRecord.objects.values_list("name", flat=True)
        return sorted(there) != sorted([f"c-{self.number - 1}", f"c-{self.number}"])


class Trouble(Writer):
    """A collector whose cluster is unavailable, each time for another reason."""

    def __init__(self) -> None:
        super().__init__()
        self.lease = lease("owners")

    def write(self, number: int) -> None:
        collector_store.save_trouble(self.lease, f"no answer: {number}", now_ms=self.now_ms)

    def lost(self) -> object:
        return Collector.objects.get(name="owners").error != f"no answer: {self.number - 1}"


class Starts(Writer):
    """A process that starts: it writes the clusters and takes a lease."""

    def write(self, number: int) -> None:
        collector_store.sync_clusters(["prod"])
        taken = lease("starting")
        leases.renew(taken, behind=0)
        leases.release(taken)


#: Every writer; a cluster `prod` is there.
WRITERS: tuple[Callable[[], Writer], ...] = (
    lambda: Tail(0), lambda: Tail(1), Corrections, Checkpoints, Progress, Groups, lambda: Commits(0),
    lambda: Commits(1), Partitions, Replicas, Evaluations, Operators, Alerts, Deliveries, Channels, Silences,
    SignIns, Actions, Recoveries, Audits, Engines, Prune, Trouble, Starts,
)  # fmt: skip


def name_of(writer: Writer) -> str:
    """Return the name of a writer in a test."""
    shard = getattr(writer, "partition", getattr(writer, "shard", None))
    return type(writer).__name__ + ("" if shard is None else f"-{shard}")


def row_counts() -> dict[str, Any]:
    """Return how many rows there are of each table that must not lose any."""
    tables = (Transaction, TransitionRecord, Batch, Query, Alert, FindingRecord, Action, CommitRecord)
    return {table.__name__: table.objects.count() for table in tables}
