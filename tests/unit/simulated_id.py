"""A random life of one transactional id on its coordinator: states, markers in partitions, and true ends.

It follows Kafka's rules for states and epochs (protocol versions 0 and 2), independently of
`fenceline.kafka.fold.marker_history`.
"""

import random
from dataclasses import dataclass, field

from fenceline.facts import TopicPartition, TopicPartitions, TransactionRecord, TransactionState
from fenceline.kafka.fold.marker_history import EndMarker

START_MS, LAST_EPOCH = 1_795_000_000_000, 32_766
_PREPARED = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}
_COMPLETE = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}


@dataclass(frozen=True)
class TrueEnd:
    """The decision on a transaction; `started_ms` is None for an abort of nothing."""

    started_ms: int | None
    ended_ms: int
    is_commit: bool


@dataclass
class SimulatedId:
    """An id on its coordinator: its states, each from an instant on, its markers and its true ends."""

    dice: random.Random
    version: int
    skew_ms: int
    now_ms: int = START_MS
    ends: list[TrueEnd] = field(default_factory=list)
    #: Each with the instant, by the coordinator's clock, at which it can be read.
    markers: list[tuple[int, EndMarker]] = field(default_factory=list)

    def __post_init__(self) -> None:
        epoch = self.dice.choice((3, LAST_EPOCH - 2))
        self.states = [
            TransactionRecord("pay", TransactionState.EMPTY, 7, epoch, 60_000, None, START_MS, None)
        ]
        #: In a life of long transactions alone none is missed, so that an end told twice is one too many.
        self.durations = self.dice.choice(((5, 40, 400, 1_200, 2_000), (2_000, 2_600, 4_000)))
        self.skews = [self.dice.randint(-self.skew_ms, self.skew_ms) for _ in range(3)]

    def live(self, until_ms: int) -> None:
        """Begin and end transactions until an instant."""
        while self.now_ms < until_ms:
            self.now_ms += self.dice.choice((1, 5, 300, 900, 2_500))
            self.dice.choices((self._transact, self._initialise, self._abort_nothing), (12, 2, 1))[0]()

    def state_at(self, at_ms: int) -> TransactionRecord:
        """Return what the coordinator reports at an instant."""
        return next(state for state in reversed(self.states) if state.updated_ms <= at_ms)

    def _write(self, **changes: object) -> None:
        self.states.append(self.states[-1]._replace(updated_ms=self.now_ms, **changes))  # type: ignore[arg-type]

    def _transact(self) -> None:
        if self.states[-1].producer_epoch > LAST_EPOCH:
            return self._initialise()
        where = tuple(sorted(self.dice.sample(range(3), self.dice.randint(1, 3))))
        held = (TopicPartitions("orders", where),)
        self._write(state=TransactionState.ONGOING, partitions=held, started_ms=self.now_ms)
        self.now_ms += self.dice.choice(self.durations)
        end = self.dice.choice(("commit", "commit", "abort", "timeout", "takeover"))
        self._end(end == "commit", where, by_client=end in ("commit", "abort"))
        if end == "takeover":
            self.now_ms += self.dice.choice((20, 100, 500))
            self._initialise()

    def _end(self, is_commit: bool, where: tuple[int, ...], *, by_client: bool) -> None:
        last = self.states[-1]
        epoch = last.producer_epoch + (self.version == 2 or not by_client)
        started_ms = last.started_ms if where else None
        self.ends.append(TrueEnd(started_ms, self.now_ms, is_commit))
        self._write(state=_PREPARED[is_commit], producer_epoch=epoch)
        for number in where:
            self.now_ms += self.dice.choice((1, 3, 30))
            at_ms = self.now_ms + self.skews[number]
            marker = EndMarker(
                TopicPartition("orders", number), len(self.markers), last.producer_id, epoch, is_commit, at_ms
            )
            self.markers.append((self.now_ms + self.dice.choice((0, 0, 0, 200)), marker))
        self.now_ms += 2
        new = {"producer_id": last.producer_id + 1, "producer_epoch": 0} if epoch > LAST_EPOCH else {}
        self._write(
            state=_COMPLETE[is_commit], partitions=(), **(new if self.version == 2 and by_client else {})
        )

    def _initialise(self) -> None:
        last = self.states[-1]
        new = {"producer_epoch": last.producer_epoch + 1}
        if last.producer_epoch >= LAST_EPOCH:
            new = {"producer_id": last.producer_id + 1, "producer_epoch": 0}
        self._write(state=TransactionState.EMPTY, partitions=None, started_ms=None, **new)

    def _abort_nothing(self) -> None:
        if self.version == 2 and self.states[-1].producer_epoch < LAST_EPOCH:
            self._write(partitions=(), started_ms=self.now_ms)
            self._end(False, (), by_client=True)
