"""Every short history of one transactional id: coordinator, two producers, Admin, recovery tool.

The coordinator follows Kafka 4.2 (`TransactionCoordinator`, `TransactionMetadata`; KIP-360, KIP-890) and
is independent of `fenceline.kafka.transitions`. Different histories may leave the same records, which is
their purpose.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from fenceline.facts import TopicPartitions, TransactionRecord, TransactionState, TransitionKind

START_MS = 1_795_000_000_000
SOME = (TopicPartitions("orders", (0,)),)
TIMEOUT_MS, ADMIN_MS = 60_000, 30_000
LAST_EPOCH = 32_766
#: What a broker takes to write the markers of an abort.
MARKERS_MS = 3
#: What passes before a step: a fast retry, a restart, and until the open transaction is past its timeout.
SOON_MS, LATER_MS, LATE = 22, 12_000, -1
#: The first epoch of most histories, and of those in which the open transaction is at the last one.
EPOCHS = (3, LAST_EPOCH)


class Identity(NamedTuple):
    """What a producer sends as its own."""

    producer_id: int
    epoch: int


class Step(NamedTuple):
    """An action, and its delay after the step before."""

    action: str
    after_ms: int


@dataclass
class Coordinator:
    """One id in version 2 or 0 of `transaction.version`; `records` are its log, `true` what each record is.

    `true` has the correct kinds of each record: () for one that only completes another.
    """

    version: int
    last: TransactionRecord
    #: Whether its records have the last producer epoch (KAFKA-20357).
    names_epochs: bool = False
    now_ms: int = START_MS
    last_epoch: int = -1
    records: list[TransactionRecord] = field(default_factory=list)
    true: list[tuple[TransitionKind, ...]] = field(default_factory=list)

    def write(self, *kinds: TransitionKind, **changes: object) -> None:
        """Append a record and what it is."""
        if self.names_epochs:
            changes["last_producer_epoch"] = None if self.last_epoch < 0 else self.last_epoch
        self.last = self.last._replace(updated_ms=self.now_ms, **changes)  # type: ignore[arg-type]
        self.records.append(self.last)
        self.true.append(kinds)

    @property
    def identity(self) -> Identity:
        """The identity that may write."""
        return Identity(self.last.producer_id, self.last.producer_epoch)

    def add(self, own: Identity, version: int) -> bool:
        """Add a partition; return whether the coordinator accepted it."""
        if own != self.identity or own.epoch > LAST_EPOCH:
            return False
        begins = self.last.state is not TransactionState.ONGOING
        started = self.now_ms if begins else self.last.started_ms
        kind = TransitionKind.BEGIN if begins else TransitionKind.EXTEND
        fields = {"state": TransactionState.ONGOING, "partitions": SOME, "started_ms": started}
        self.write(kind, client_version=version, **fields)
        return True

    def end(self, own: Identity, version: int, *, commit: bool, fails_over: bool = False) -> Identity | None:
        """EndTxn; return the identity to continue with, None where it is refused."""
        if own.producer_id != self.last.producer_id:
            return None
        aborted = self.last.state is TransactionState.COMPLETE_ABORT and self.last.client_version == 2
        if aborted and not commit and own.epoch == self.last.producer_epoch - 1:
            # A retry by what the coordinator knows: nothing is written, and the answer has its epoch.
            return self.identity if version == 2 else own
        if own.epoch != self.last.producer_epoch:
            return None
        if self.last.state is not TransactionState.ONGOING:
            return self._end_nothing(version) if version == 2 and not commit else None
        self.last_epoch = own.epoch if version == 2 else self.last_epoch
        state, kind = (
            (TransactionState.PREPARE_COMMIT, TransitionKind.COMMIT)
            if commit
            else (TransactionState.PREPARE_ABORT, TransitionKind.CLIENT_ABORT)
        )
        epoch = own.epoch + (1 if version == 2 else 0)
        self.write(kind, state=state, producer_epoch=epoch, client_version=version)
        self._complete(renewed=epoch > LAST_EPOCH and version == 2 and not fails_over)
        return self.identity

    def _end_nothing(self, version: int) -> Identity | None:
        epoch = self.last.producer_epoch + 1
        if epoch > LAST_EPOCH or self.version == 0:
            return None
        self.last_epoch = self.last.producer_epoch
        fields = {"state": TransactionState.PREPARE_ABORT, "partitions": (), "started_ms": self.now_ms}
        self.write(TransitionKind.EMPTY_ABORT, producer_epoch=epoch, client_version=version, **fields)
        self._complete()
        return self.identity

    def _complete(self, *, renewed: bool = False) -> None:
        self.now_ms += MARKERS_MS
        commits = self.last.state is TransactionState.PREPARE_COMMIT
        state = TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT
        if renewed:
            new = self.last.producer_id + 1
            self.write(TransitionKind.ROTATION, state=state, partitions=(), producer_id=new, producer_epoch=0)
        else:
            self.write(state=state, partitions=())

    def _fence(self, kind: TransitionKind) -> None:
        """The coordinator's own abort: it raises the epoch in every version of the client's protocol."""
        epoch = self.last.producer_epoch
        self.last_epoch = epoch if self.version == 2 else -1
        self.write(
            kind, state=TransactionState.PREPARE_ABORT, producer_epoch=epoch + 1, client_version=self.version
        )
        self._complete()

    def scan(self) -> bool:
        """Abort what is past its timeout."""
        started = self.last.started_ms
        if (
            self.last.state is not TransactionState.ONGOING
            or started is None
            or self.now_ms <= started + TIMEOUT_MS
        ):
            return False
        self._fence(TransitionKind.TIMEOUT)
        return True

    def init(
        self, own: Identity | None, timeout_ms: int, kind: TransitionKind, *, completes: bool = False
    ) -> Identity | None:
        """InitProducerId; return the new identity, None while the caller has to retry or is refused.

        `kind` is what its abort of an open transaction is; `completes` whether it is the retry after that.
        """
        if own is not None and own.producer_id != self.last.producer_id:
            return None
        if self.last.state is TransactionState.ONGOING:
            if own is None or own.epoch == self.last.producer_epoch:
                self._fence(kind)
            return None
        before = self.last.producer_epoch
        if before >= LAST_EPOCH and (own is None or own.epoch == before):
            new = {"producer_id": self.last.producer_id + 1, "producer_epoch": 0}
            self.last_epoch = -1 if own is None else before
        elif own is None or own.epoch == before:
            new = {"producer_epoch": before + 1}
            self.last_epoch = -1 if own is None else before
        elif own.epoch == self.last_epoch:
            new = {}
        else:
            return None
        # What raises its own epoch recovers, even by the retry after an abort that its first request caused.
        part = completes and not (own and new)
        kinds = [] if part else list(_idle_kinds(own, kind, before, new))
        kinds += [TransitionKind.ROTATION] if "producer_id" in new else []
        fields = {
            "state": TransactionState.EMPTY,
            "partitions": None,
            "started_ms": None,
            "timeout_ms": timeout_ms,
        }
        self.write(*kinds, **fields, **new)
        return self.identity


def _idle_kinds(
    own: Identity | None, kind: TransitionKind, before: int, new: dict[str, int]
) -> Iterator[TransitionKind]:
    """What an initialisation is that found nothing open: who raises the epoch re-initialises it, too."""
    if own is None or new:
        yield TransitionKind.REINIT
    if kind is TransitionKind.ADMIN_FENCE:
        yield kind
    if own is not None:
        yield TransitionKind.SELF_RECOVERY


@dataclass
class History:
    """The parties around one id. `owner` has a transaction open when the story begins."""

    coordinator: Coordinator
    version: int
    owner: Identity
    rival: Identity | None = None
    #: Who has ended the open transaction by a first InitProducerId and has not sent the second one; and how
    #: many records there were. Whoever comes after another record finds an idle id like everybody else.
    waiting: tuple[str, int] = ("", 0)

    def after(self, step: Step) -> Self | None:
        """Return the story with one step more, None where that changes nothing."""
        it = self.coordinator
        longer = replace(self, coordinator=replace(it, records=it.records.copy(), true=it.true.copy()))
        return longer if longer.play(step) else None

    def play(self, step: Step) -> bool:
        """Play one step; return whether it changed anything."""
        started = self.coordinator.last.started_ms
        if step.after_ms != LATE:
            self.coordinator.now_ms += step.after_ms
        elif self.coordinator.last.state is TransactionState.ONGOING and started is not None:
            self.coordinator.now_ms = max(self.coordinator.now_ms, started + TIMEOUT_MS) + 500
        else:
            return False
        before = len(self.coordinator.records), self.owner, self.rival
        getattr(self, step.action)()
        return before != (len(self.coordinator.records), self.owner, self.rival)

    def owner_commits(self) -> None:
        """EndTxn."""
        self.owner = self.coordinator.end(self.owner, self.version, commit=True) or self.owner

    def owner_aborts(self) -> None:
        """EndTxn."""
        self.owner = self.coordinator.end(self.owner, self.version, commit=False) or self.owner

    def owner_aborts_in_a_failover(self) -> None:
        """EndTxn, and a coordinator that did not write the next producer id moves before it is complete."""
        if self.owner.epoch == LAST_EPOCH:
            found = self.coordinator.end(self.owner, self.version, commit=False, fails_over=True)
            self.owner = found or self.owner

    def owner_continues(self) -> None:
        """Add a partition, or begin."""
        self.coordinator.add(self.owner, self.version)

    def owner_recovers(self) -> None:
        """InitProducerId with its own identity (KIP-360)."""
        self._init("owner", self.owner, TIMEOUT_MS, TransitionKind.SELF_RECOVERY)

    def rival_inits(self) -> None:
        """InitProducerId without an identity: another producer, or the owner's next process."""
        self._init("rival", None, TIMEOUT_MS, TransitionKind.TAKEOVER)

    def rival_with_30_s_inits(self) -> None:
        """The same by a producer with the same timeout as an Admin."""
        self._init("rival", None, ADMIN_MS, TransitionKind.TAKEOVER)

    def rival_continues(self) -> None:
        """Begin."""
        if self.rival is not None:
            self.coordinator.add(self.rival, self.version)

    def admin_fences(self) -> None:
        """Admin.fenceProducers."""
        self._init("admin", None, ADMIN_MS, TransitionKind.ADMIN_FENCE)

    def admin_with_its_own_timeout_fences(self) -> None:
        """The same with `timeoutMs`."""
        self._init("admin", None, TIMEOUT_MS, TransitionKind.ADMIN_FENCE)

    def tool_aborts(self) -> None:
        """EndTxn by another process under the identity of whoever has the id, in the old version."""
        self.coordinator.end(self.coordinator.identity, 0, commit=False)

    def tool_aborts_in_version_2(self) -> None:
        """The same in the new version."""
        if self.coordinator.version == 2:
            self.coordinator.end(self.coordinator.identity, 2, commit=False)

    def scan_runs(self) -> None:
        """The coordinator's scan for timeouts."""
        self.coordinator.scan()

    def _init(self, who: str, own: Identity | None, timeout_ms: int, kind: TransitionKind) -> None:
        was_open, before = (
            self.coordinator.last.state is TransactionState.ONGOING,
            len(self.coordinator.records),
        )
        given = self.coordinator.init(own, timeout_ms, kind, completes=self.waiting == (who, before))
        if was_open and self.coordinator.last.state is not TransactionState.ONGOING:
            self.waiting = who, len(self.coordinator.records)
        if given is not None:
            if who == "owner":
                self.owner = given
            elif who == "rival":
                self.rival = given


ACTIONS = (
    "owner_commits", "owner_aborts", "owner_aborts_in_a_failover", "owner_continues", "owner_recovers",
    "rival_inits", "rival_with_30_s_inits", "rival_continues", "admin_fences",
    "admin_with_its_own_timeout_fences", "tool_aborts", "tool_aborts_in_version_2", "scan_runs",
)  # fmt: skip
STEPS = tuple(Step(action, after_ms) for action in ACTIONS for after_ms in (SOON_MS, LATER_MS, LATE))


def begun_history(cluster: int, client: int, epoch: int, *, names_epochs: bool = False) -> History:
    """Return a story of no step: the owner has begun a transaction."""
    idle = TransactionRecord(
        "a-1", TransactionState.COMPLETE_COMMIT, 7, epoch, TIMEOUT_MS, (), START_MS, START_MS - 9, client
    )
    coordinator = Coordinator(cluster, idle, names_epochs)
    coordinator.write(TransitionKind.BASELINE, state=TransactionState.COMPLETE_COMMIT)
    coordinator.now_ms += 1_000
    story = History(coordinator, client, coordinator.identity)
    story.owner_continues()
    return story


def histories(
    story: History, most: int, plot: tuple[Step, ...] = ()
) -> Iterator[tuple[tuple[Step, ...], History]]:
    """Yield a story with every series of up to so many steps more, but for steps that change nothing."""
    for step in STEPS if most else ():
        longer = story.after(step)
        if longer is not None:
            yield (*plot, step), longer
            yield from histories(longer, most - 1, (*plot, step))
