"""One cluster behind a proxy that takes things away: the product's collectors read it, its rules judge.

Its transactions run at the real broker. What must be unknown follows from what is taken away alone
(`Blindness`), never from what the product reports.
"""

import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from django.utils import timezone

from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.evaluation.snapshot import SnapshotReader
from dashboard.groups import store as group_store
from dashboard.models import Collector, FindingRecord, GapRecord, PinRecord, Transaction
from dashboard.partitions import store as partition_store
from dashboard.runtime import collector_store, leases, loop
from dashboard.tasks import polls, tails
from dashboard.tasks.slice import poll_repeatedly
from dashboard.transactions import reconcile_store
from fenceline.facts import OPEN_STATES
from fenceline.findings import Sense
from fenceline.limits import Limits
from tests.brokers import create_topics
from tests.kafka.driven import only_cluster, read_slice, take_lease
from tests.kafka.group_commits import commit_offsets
from tests.kafka.producers import LibrdkafkaProducer, open_in
from tests.kafka.proxy.restrictions import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    LOG_PARTITIONS,
    OFFSET_FETCH,
    Restrictions,
    coordinator_of,
)
from tests.kafka.proxy.server import KafkaProxy
from tests.turns import take_turns
from transaction_admin.api import CONSUMER_OFFSETS, TRANSACTION_STATE

#: Everything is old enough for its rule at once, and polled whenever the test polls.
LIMITS = Limits(
    open_too_long_s=0, lso_pinned_s=0, group_stalled_s=0, group_blocked_s=0, offsets_unstable_s=0,
    reconcile_every_s=0.001, groups_every_s=0.001, partitions_every_s=0.001, poller_behind_s=120,
    collector_behind_s=120,
)  # fmt: skip
_AT_ONCE_S = 0.01


@dataclass(frozen=True, slots=True)
class Blindness:
    """What nobody can see behind these restrictions."""

    restrictions: Restrictions

    def _topic(self, name: str) -> bool:
        taken = self.restrictions.absent | self.restrictions.undescribed | self.restrictions.unread
        return name in taken or any(topic == name for topic, _ in self.restrictions.leaderless)

    def _request(self, key: int) -> bool:
        return key in self.restrictions.refused or key in self.restrictions.unknown

    @property
    def log(self) -> bool:
        """Whether `__transaction_state` cannot be read whole."""
        return self._topic(TRANSACTION_STATE)

    @property
    def offsets_log(self) -> bool:
        """Whether `__consumer_offsets` cannot be read whole."""
        return self._topic(CONSUMER_OFFSETS)

    @property
    def lists(self) -> bool:
        """Whether the coordinators' lists are missing or leave something out."""
        is_shown = not self.restrictions.topic_error(TRANSACTION_STATE)
        parts = self.restrictions.coordinators_away or (
            is_shown and any(topic == TRANSACTION_STATE for topic, _ in self.restrictions.leaderless)
        )
        return self._request(LIST_TRANSACTIONS) or self.restrictions.ids_denied or bool(parts)

    @property
    def is_silent_on_groups(self) -> bool:
        """Whether nothing tells that there are groups."""
        return self.restrictions.groups_denied and CONSUMER_OFFSETS in self.restrictions.absent

    def is_silent_on_ids(self, topic: str, numbers: Iterable[int]) -> bool:
        """Whether nothing tells that there are transactions in these partitions."""
        is_hidden = self.restrictions.ids_denied and TRANSACTION_STATE in self.restrictions.absent
        is_denied = topic in self.restrictions.undescribed
        return is_hidden and (is_denied or {(topic, n) for n in numbers} <= self.restrictions.leaderless)

    def partition(self, topic: str, number: int) -> bool:
        """Whether it cannot be seen what holds a partition's LSO back."""
        is_denied = topic in self.restrictions.undescribed or self._request(DESCRIBE_PRODUCERS)
        return is_denied or (topic, number) in self.restrictions.leaderless

    def group(self, name: str) -> bool:
        """Whether neither its coordinator nor the log tells what a group has committed."""
        away = coordinator_of(name) in self.restrictions.coordinators_away
        denied = self.restrictions.groups_denied or self._request(OFFSET_FETCH)
        return self.offsets_log and (away or denied)


def random_restrictions(dice: random.Random, topic: str) -> Restrictions:
    """Return a random combination of what can be taken away."""

    def chosen(share: float = 0.25) -> bool:
        return dice.random() < share

    log, offsets_log = (
        dice.choice(["absent", "undescribed", "unread", ""]) if chosen(0.6) else "" for _ in range(2)
    )
    lost = {TRANSACTION_STATE: log, CONSUMER_OFFSETS: offsets_log, topic: "undescribed" * chosen(0.1)}
    requests = {DESCRIBE_PRODUCERS: 29, DESCRIBE_TRANSACTIONS: 53, LIST_TRANSACTIONS: 31, OFFSET_FETCH: 30}
    taken = {key: dice.choice(["refused", "unknown"]) for key in requests if chosen()}
    places = [(topic, 0), (topic, 1)]
    places += [(name, dice.randrange(LOG_PARTITIONS)) for name in (TRANSACTION_STATE, CONSUMER_OFFSETS)]
    return Restrictions(
        **{
            how: frozenset(name for name, it in lost.items() if it == how)
            for how in ("absent", "undescribed", "unread")
        },
        leaderless=frozenset(place for place in places if chosen(0.15)),
        refused={key: requests[key] for key, how in taken.items() if how == "refused"},
        unknown=frozenset(key for key, how in taken.items() if how == "unknown"),
        ids_denied=chosen(),
        groups_denied=chosen(),
        coordinators_away=frozenset({dice.choice([1, 2])} if chosen() else ()),
    )


class BlindedCluster:
    """The stage: a topic, a transaction that stays open, one that comes and goes, a group that waits."""

    def __init__(self, bootstrap: str, proxy: KafkaProxy) -> None:
        self.name = self.topic = self.group = self.held = f"blind-{random.getrandbits(40):x}"
        self.other = f"{self.name}-other"
        self._bootstrap, self._proxy = bootstrap, proxy
        create_topics(bootstrap, self.topic)
        self._holder = open_in(bootstrap, self.held, self.topic, 0)
        self._other = LibrdkafkaProducer(bootstrap, self.other, {"transaction.timeout.ms": "900000"})
        self._other.init()
        commit_offsets(bootstrap, self.group, self.topic, p0=0)
        #: Ids with an open transaction, by the partition that each has written to; and since when.
        self.opened = {self.held: 0}
        self._began = timezone.now()
        self._properties = {"bootstrap.servers": proxy.bootstrap}
        collector_store.sync_clusters([self.name])
        self._works = [
            (take_lease(self.name, tails.tail_name(0)), partial(read_slice, tailed=tails.tailed)),
            (take_lease(self.name, tails.offsets_name(0)), partial(read_slice, tailed=tails.tailed_offsets)),
            (take_lease(self.name, reconcile_store.NAME), self._reconcile),
            (take_lease(self.name, partition_store.NAME), self._partitions),
            (take_lease(self.name, group_store.NAME), self._groups),
        ]
        self._judge = take_lease(self.name, evaluate_rules.NAME)
        self._reader = SnapshotReader(self.name)
        #: Whether the log was ever read: then lists never replace it.
        self.was_read = False
        #: Whether the group was ever seen: nobody tells of one that is hidden from the start.
        self.knew_group = False
        #: Whether brokers ever let us describe the topic.
        self.knew_topic = False

    def close(self) -> None:
        """End what is open and close the connections."""
        self.restart()
        self._holder.abort()
        if self.other in self.opened:
            self._other.abort()

    def restart(self) -> None:
        """Forget all that the workers keep, as their restart does."""
        for topic in (tails.tailed, tails.tailed_offsets):
            tails._cool(topic._topic, self._works[0][0])
        polls.reconcilers.discard(self.name)
        polls.disconnect(self.name)
        polls.group_collectors.discard(self.name)

    def live(self, dice: random.Random) -> None:
        """Begin or end the other transaction."""
        if self.other in self.opened:
            (self._other.commit if dice.random() < 0.5 else self._other.abort)()
            del self.opened[self.other]
        else:
            self._began = timezone.now()
            self._other.begin()
            self._other.send(self.topic, 1)
            self._other.flush()
            self.opened[self.other] = 1

    def restrict(self, restrictions: Restrictions) -> None:
        """Take these things away from now on."""
        self._proxy.restrict(restrictions)

    def poll(self, times: int = 1) -> None:
        """Let every collector work once, then the evaluator."""
        for _ in range(times):
            with only_cluster(self.name, self._properties, limits=LIMITS):
                for lease, work in self._works:
                    work(lease)
                evaluate_rules.evaluate_cluster(self._judge, self._reader, now_ms=loop.now_ms())

    def _reconcile(self, lease: leases.Lease) -> None:
        def poll() -> loop.Turns:
            reconciler = polls.reconcilers[self.name]
            ours = reconcile_store.ReconciledRows(lease, [tails.tail_name(0)])
            for full in (True, False):
                reconciler._full_at = 0 if full else time.monotonic() + 60
                polled = reconciler.poll(loop.now_ms(), ours)
                reconcile_store.save_reconciliation(lease, polled, now_ms=loop.now_ms())
            yield 0.0

        take_turns(poll_repeatedly(lease, poll, polls.reconcilers.discard), _AT_ONCE_S)

    def _partitions(self, lease: leases.Lease) -> None:
        def poll() -> loop.Turns:
            ours = partition_store.PartitionRows(lease, [tails.tail_name(0)], vouched=False)
            watcher = polls._watcher(lease, ours)
            watcher._full_at = 0
            polls._poll(lease, watcher, ours)
            yield 0.0

        take_turns(poll_repeatedly(lease, poll, polls.disconnect), _AT_ONCE_S)

    def _groups(self, lease: leases.Lease) -> None:
        def poll() -> loop.Turns:
            rows = group_store.GroupRows(lease, loop.now_ms())
            polled = polls.group_collectors[self.name].poll(loop.now_ms(), rows, every_s=0)
            group_store.save_groups(lease, polled, rows, now_ms=loop.now_ms())
            yield 0.0

        take_turns(poll_repeatedly(lease, poll, polls.group_collectors.discard), _AT_ONCE_S)

    def collector(self, name: str) -> Collector:
        """Return a collector's row."""
        return Collector.objects.get(cluster__name=self.name, name=name)

    def gaps(self, source: str) -> set[str]:
        """Return the scopes of a collector's open gaps."""
        rows = GapRecord.objects.filter(cluster__name=self.name, source=source, until_ms=None)
        return set(rows.values_list("scope", flat=True))

    def findings(self) -> Mapping[tuple[str, str], FindingRecord]:
        """Return our open findings by rule and subject."""
        mine = (self.held, self.other, f"{self.topic}-0", f"{self.topic}-1")
        rows = FindingRecord.objects.filter(cluster__name=self.name, closed_at=None)
        return {(row.rule, row.subject): row for row in rows if row.subject.partition(":")[2] in mine}

    def closed_early(self) -> set[tuple[str, str]]:
        """Return findings that were closed, and have no other, since the cause that still lasts began."""
        still = {f"transaction:{name}" for name in self.opened} | {f"group:{self.group}"}
        still |= {f"partition:{self.topic}-{number}" for number in self.opened.values()}
        rows = FindingRecord.objects.filter(cluster__name=self.name, closed_at__gt=self._began)
        closed = set(rows.filter(subject__in=still).values_list("rule", "subject"))
        return closed - self.findings().keys()

    def open_rows(self) -> set[str]:
        """Return those of our ids whose rows are open."""
        rows = Transaction.objects.filter(
            cluster__name=self.name, transactional_id__startswith=self.name,
            state__in=[state.value for state in OPEN_STATES],
        )  # fmt: skip
        return set(rows.values_list("transactional_id", flat=True))

    def covers(self, sense: Sense, *things: str) -> bool:
        """Whether the rules take what they need to know of things for seen."""
        with only_cluster(self.name, self._properties, limits=LIMITS):
            snapshot = self._reader.read(now_ms=loop.now_ms(), limits=LIMITS)
        return snapshot.visibility(now_ms=loop.now_ms(), limits=LIMITS).covers({sense}, *things)

    def hanging(self) -> set[str]:
        """Return the ids that are taken for hanging."""
        rows = PinRecord.objects.filter(cluster__name=self.name, topic=self.topic, verdict="hanging")
        return set(rows.values_list("transactional_id", flat=True))
