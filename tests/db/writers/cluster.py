"""Writers of groups, partitions and what a whole cluster has: collectors, engines, retention, starts."""

from dashboard.engines import store as engines_store
from dashboard.groups import commit_store
from dashboard.groups import store as group_store
from dashboard.models import (
    AuditEntry,
    Cluster,
    Collector,
    CommitRecord,
    ConnectorRecord,
    CoordinatorMoveRecord,
    FindingRecord,
    GapRecord,
    Group,
    GroupOffset,
    PartitionRecord,
    Recovery,
    ReplicaLook,
    Tally,
)  # fmt: skip
from dashboard.partitions import store as partition_store
from dashboard.runtime import collector_store, leases, retention
from dashboard.transactions import coordinators
from fenceline.decode.tail_batch import TailBatch
from fenceline.engines.status import ConnectorStatus, EngineAnswer
from fenceline.facts import PositionMove, RawRecord, TopicPartition
from fenceline.kafka.coordinator import CoordinatorMove, ObservedCoordinators
from fenceline.kafka.partitions import ProducerState
from fenceline.limits import Retention
from tests.db import factories
from tests.db.conftest import NOW_MS
from tests.db.test_save_groups import groups_poll, key, observed_group, value
from tests.db.test_save_partitions import known_partition, lso_blocker, observed
from tests.db.writers.writer import FEW, Writer, lease
from tests.factories import record_table

KEEP = Retention(transitions_d=30, minutes_d=30, hours_d=60, closed_d=30, batches_d=30)


_DAY_MS = 86_400_000


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
        look = TailBatch(record_table({self.shard: records}), moves, seen_through_ms=self.now_ms)
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
        rows = [
            known_partition(TopicPartition("orders", each), number + 5)._replace(
                lso=number, seen_ms=self.now_ms, pinned_ms=None
            )
            for each in range(FEW)
        ]
        ended = [("orders", 0, number - 1, 4, 5)] if number else []
        gaps = {f"orders-{number % FEW}": "cannot be seen"}
        pins = (lso_blocker(producer_id=number),)
        look = observed(*rows, at_ms=self.now_ms, pins=pins, ended=ended, gaps=gaps)
        partition_store.save_partitions(self.lease, look, now_ms=self.now_ms)

    def lost(self) -> object:
        return PartitionRecord.objects.filter(lso=self.number - 1).count() - FEW


class Replicas(Writer):
    """What a page asks replicas for."""

    def write(self, number: int) -> None:
        said = {1: [ProducerState(number, 4, 5, NOW_MS, None, 5)], 2: "no answer"}
        where = TopicPartition("orders", 0)
        partition_store.save_replicas("prod", where, said, leader=1, ids={}, now_ms=self.now_ms)

    def lost(self) -> object:
        return ReplicaLook.objects.filter(seen_ms=NOW_MS + (self.number - 1) * 1_000).count() - 2


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
        factories.prune_all(self.lease, KEEP, NOW_MS)

    def lost(self) -> object:
        old = FindingRecord.objects.filter(subject="old").count()
        old += AuditEntry.objects.filter(subject_name="old").count()
        return old + Recovery.objects.filter(transactional_id="old").count()


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


class Coordinators(Writer):
    """The collector of coordinators: a move at each poll."""

    def __init__(self) -> None:
        super().__init__()
        self.lease = lease(coordinators.NAME)

    def write(self, number: int) -> None:
        move = CoordinatorMove(self.now_ms - 500, self.now_ms, number, number + 1, (3,), 1)
        seen = ObservedCoordinators(
            self.now_ms, {3: number + 1}, {3: (1, 2)}, (move,), {3: 900}, {}, "", 1, 1.0
        )
        coordinators.save_coordinators(self.lease, seen, now_ms=self.now_ms)

    def lost(self) -> object:
        return CoordinatorMoveRecord.objects.count() != self.number


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
