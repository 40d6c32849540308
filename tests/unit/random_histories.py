"""Random histories of one id, as the coordinator writes them: records, and the events that made them.

Written from docs/design/kafka.md §1.5, Kafka's own rules for states and epochs, independently of how
`fenceline.kafka.transitions` reads them.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from fenceline.facts import Tombstone, TopicPartitions, TransactionRecord, TransactionState, TransitionKind

START_MS = 1_795_000_000_000
SOME = (TopicPartitions("orders", (0, 1)),)
ADMIN_MS = 30_000
#: What a client waits between two tries: Java's, librdkafka's.
RETRIES_MS = ((80, 125), (495, 900))


@dataclass
class Event:
    """Something that really happened, and where: the index of the record that shows it first."""

    kind: TransitionKind
    index: int


@dataclass
class RandomHistory:
    """One id. `step` adds a random event and returns its records; `events` grows."""

    name: str
    dice: random.Random
    #: A client of protocol 2 on a cluster of version 2; otherwise `broker` says what the cluster writes.
    client: int = field(init=False)
    broker: int = field(init=False)
    events: list[Event] = field(default_factory=list)
    written: list[TransactionRecord | Tombstone] = field(default_factory=list)
    last: TransactionRecord | None = None

    def __post_init__(self) -> None:
        self.broker = self.dice.choice((0, 2))
        self.client = self.dice.choice((0, 2)) if self.broker else 0
        self.now_ms = START_MS + self.dice.randrange(1000)
        self.ids = self.dice.randrange(1, 10**6)
        #: Some lives come into sight when their epochs are nearly used up.
        self.old = self.dice.random() < 0.3
        #: Whether a producer lives that may begin: one that was fenced may not.
        self.owned = True

    def step(self) -> list[TransactionRecord | Tombstone]:
        """Add one random event and return its records."""
        before = len(self.written)
        if self.last is None:
            self.baseline() if self.old else self.init()
        else:
            self.dice.choice(self.choices())()
        return self.written[before:]

    def choices(self) -> list[Callable[[], None]]:
        """What may come next, each as often as it should."""
        if self.dice.random() < 0.02:
            return [self.expiry]
        if not self.owned:
            return [self.reinit, self.reinit, self.idle_fence]
        often = [self.commit] * 12 + [self.client_abort] * 4
        seldom = [
            self.reinit, self.timeout, self.takeover, self.admin_fence, self.idle_fence, self.self_recovery,
            self.old_end, self.reinit_like_an_admin,
        ]  # fmt: skip
        return often + seldom + ([self.empty_abort] if self.client == 2 else [])

    def add_event(self, kind: TransitionKind) -> None:
        self.events.append(Event(kind, len(self.written)))

    def wait(self, low: int, high: int) -> None:
        self.now_ms += self.dice.randint(low, high)

    def write(self, state: TransactionState, **changes: object) -> TransactionRecord:
        fields: dict[str, object] = {"state": state, "updated_ms": self.now_ms, "value_version": 1}
        assert self.last is not None
        self.last = self.last._replace(**(fields | changes))
        self.written.append(self.last)
        return self.last

    def baseline(self) -> None:
        """The first record that is still available of an old id."""
        self.old = False
        self.add_event(TransitionKind.BASELINE)
        epoch = self.dice.randint(32_740, 32_762)
        self.last = TransactionRecord(
            self.name,
            TransactionState.COMPLETE_COMMIT,
            self.ids,
            epoch,
            60_000,
            (),
            self.now_ms,
            self.now_ms - 9,
            self.client,
        )
        self.written.append(self.last)

    def init(self) -> None:
        """The first record of a new id, or of one that had expired."""
        self.wait(1_000, 5_000)
        self.owned = True
        self.ids += 1
        self.add_event(TransitionKind.INIT)
        timeout = self.dice.choice((45_000, 60_000))
        self.last = TransactionRecord(
            self.name, TransactionState.EMPTY, self.ids, 0, timeout, None, self.now_ms, None, self.client
        )
        self.written.append(self.last)

    def begin(self) -> None:
        assert self.last is not None
        self.wait(1, 2_000)
        self.add_event(TransitionKind.BEGIN)
        self.write(
            TransactionState.ONGOING, partitions=SOME, started_ms=self.now_ms, client_version=self.client
        )
        for _ in range(self.dice.choice((0, 0, 1, 2))):
            self.wait(1, 500)
            self.add_event(TransitionKind.EXTEND)
            self.write(TransactionState.ONGOING)

    def end(self, prepared: TransactionState, version: int) -> None:
        """A client's own end: protocol 2 raises the epoch, older ones leave no tag."""
        assert self.last is not None
        epoch = self.last.producer_epoch + (1 if version == 2 else 0)
        self.write(prepared, producer_epoch=epoch, client_version=version)
        self.complete()

    def brokers_end(self) -> None:
        """The coordinator's own abort: it raises the epoch, and writes its own version."""
        assert self.last is not None
        epoch = self.last.producer_epoch + 1
        self.write(TransactionState.PREPARE_ABORT, producer_epoch=epoch, client_version=self.broker)
        self.complete()

    def complete(self) -> None:
        assert self.last is not None
        self.wait(0, 7)
        commits = self.last.state is TransactionState.PREPARE_COMMIT
        state = TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT
        if self.last.producer_epoch == 32767 and self.last.client_version == 2 and not self.fencing:
            self.ids += 1
            self.add_event(TransitionKind.ROTATION)
            self.write(state, partitions=(), producer_id=self.ids, producer_epoch=0)
        else:
            self.write(state, partitions=())

    fencing = False

    def raised(self) -> dict[str, object]:
        """What an initialisation makes of the epoch: one more, or a new producer id."""
        assert self.last is not None
        if self.last.producer_epoch < 32766:
            return {"producer_epoch": self.last.producer_epoch + 1}
        self.ids += 1
        self.add_event(TransitionKind.ROTATION)
        return {"producer_id": self.ids, "producer_epoch": 0}

    def empty(self, **changes: object) -> None:
        self.write(TransactionState.EMPTY, partitions=None, started_ms=None, **changes)

    def commit(self) -> None:
        self.begin()
        self.wait(1, 900)
        self.add_event(TransitionKind.COMMIT)
        self.end(TransactionState.PREPARE_COMMIT, self.client)

    def old_end(self) -> None:
        """A transaction that another process ends by an old EndTxn (recovery, also of the sink)."""
        self.begin()
        self.wait(1, 900)
        commits = self.dice.random() < 0.5
        self.add_event(TransitionKind.COMMIT if commits else TransitionKind.CLIENT_ABORT)
        self.end(TransactionState.PREPARE_COMMIT if commits else TransactionState.PREPARE_ABORT, 0)

    def client_abort(self) -> None:
        self.begin()
        self.wait(1, 900)
        self.add_event(TransitionKind.CLIENT_ABORT)
        self.end(TransactionState.PREPARE_ABORT, self.client)

    def empty_abort(self) -> None:
        assert self.last is not None
        self.wait(1, 900)
        self.add_event(TransitionKind.EMPTY_ABORT)
        self.write(
            TransactionState.PREPARE_ABORT, partitions=(), producer_epoch=self.last.producer_epoch + 1,
            started_ms=self.now_ms, client_version=2,
        )  # fmt: skip
        self.complete()

    def reinit(self) -> None:
        """Another producer initialises the idle id: at once, as pooled ids do, or after a restart."""
        self.wait(*self.dice.choice(((1, 60), (90, 700), (2_000, 9_000), (12_000, 90_000))))
        raised = self.raised()
        if "producer_id" not in raised:
            self.add_event(TransitionKind.REINIT)
        self.owned = True
        self.empty(timeout_ms=self.dice.choice((45_000, 60_000)), **raised)

    def reinit_like_an_admin(self) -> None:
        """A producer with the same timeout as an Admin: it begins a transaction next."""
        self.wait(12_000, 90_000)
        raised = self.raised()
        if "producer_id" not in raised:
            self.add_event(TransitionKind.REINIT)
        self.empty(timeout_ms=ADMIN_MS, **raised)
        self.commit()

    def open_and_fenced(self, kind: TransitionKind, wait: tuple[int, int]) -> None:
        assert self.last is not None
        if self.last.producer_epoch >= 32765:
            return
        self.begin()
        self.wait(*wait)
        self.add_event(kind)
        self.fencing = True
        self.brokers_end()
        self.fencing = False

    def timeout(self) -> None:
        assert self.last is not None
        self.open_and_fenced(TransitionKind.TIMEOUT, (self.last.timeout_ms, self.last.timeout_ms + 10_000))
        self.owned = self.events[-1].kind is not TransitionKind.TIMEOUT

    def takeover(self) -> None:
        self.open_and_fenced(TransitionKind.TAKEOVER, (1, 900))
        if self.events[-1].kind is not TransitionKind.TAKEOVER:
            return
        if self.client == 0 and self.dice.random() < 0.2:
            # It never asks again. Under protocol 2 that looks like the client's own abort.
            self.wait(10_001, 20_000)
            self.owned = False
        else:
            self.wait(*self.dice.choice(RETRIES_MS))
            self.empty(timeout_ms=self.dice.choice((45_000, 60_000)), **self.raised())

    def admin_fence(self) -> None:
        self.open_and_fenced(TransitionKind.ADMIN_FENCE, (1, 900))
        if self.events[-1].kind is TransitionKind.ADMIN_FENCE:
            self.wait(*RETRIES_MS[0])
            self.empty(timeout_ms=ADMIN_MS, **self.raised())
            self.owned = False

    def idle_fence(self) -> None:
        self.wait(12_000, 90_000)
        raised = self.raised()
        if "producer_id" not in raised:
            self.add_event(TransitionKind.ADMIN_FENCE)
        self.empty(timeout_ms=ADMIN_MS, **raised)
        self.owned = False

    def self_recovery(self) -> None:
        """A client that lost its way initialises with its own epoch, while open (KIP-360)."""
        self.open_and_fenced(TransitionKind.SELF_RECOVERY, (1, 900))
        if self.events[-1].kind is TransitionKind.SELF_RECOVERY:
            self.wait(1, 900)
            self.empty()

    def expiry(self) -> None:
        assert self.last is not None
        self.wait(1_000, 90_000)
        self.add_event(TransitionKind.EXPIRY)
        self.written.append(Tombstone(self.name, self.now_ms))
        self.last = None
