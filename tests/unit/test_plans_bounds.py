"""Proves that what a plan calls a bound is one: whatever producers write between the plan and its execution,
the LSO moves at least as far, and at least as many records become readable or are aborted, as promised."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hypothesis import event, given
from hypothesis import strategies as st

from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import TopicPartition
from fenceline.kafka.partitions import ProducerState
from fenceline.plans.impact import HeldLog, Reach, compute_reach, own_effects
from fenceline.plans.plan import Bound
from tests.unit.factories import MINE, OTHER, TOPIC, blocked_log, data_batch, marker_batch, open_producer

#: One write: who, how many records, and "" for data in a transaction, "plain" for data outside of one, or how
#: the writer ends its transaction.
Write = tuple[int, int, str]
PRODUCERS = (MINE, 1, 2, 3)
KINDS = ("", "", "", "plain", "commit", "abort")
WRITES = st.lists(
    st.tuples(st.sampled_from(PRODUCERS), st.integers(1, 5), st.sampled_from(KINDS)), max_size=25
)


@dataclass
class Partition:
    """A partition as its leader keeps it: batches, and where each open transaction begins."""

    batches: list[RecordBatch] = field(default_factory=list)
    begun: dict[int, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0

    @property
    def lso(self) -> int:
        return min(self.begun.values(), default=self.end)

    def write(self, writes: Iterable[Write]) -> None:
        for producer_id, records, kind in writes:
            if kind in ("commit", "abort"):
                self.complete(producer_id, kind)
            elif kind == "plain":
                self.batches.append(data_batch(self.end, records, -1, transactional=False))
            else:
                self.begun.setdefault(producer_id, self.end)
                self.batches.append(data_batch(self.end, records, producer_id))

    def complete(self, producer_id: int, kind: str) -> None:
        if self.begun.pop(producer_id, None) is not None:
            self.batches.append(marker_batch(self.end, producer_id, kind))

    def checked(self, *, counted: bool) -> HeldLog:
        """What a plan reads of it: the high watermark first, then the open producers."""
        producers: Sequence[ProducerState] = [
            open_producer(start, each) for each, start in sorted(self.begun.items(), key=lambda item: item[1])
        ]
        behind = tuple(each for each in self.batches if each.first >= self.lso)
        where = TopicPartition(TOPIC, 0)
        return HeldLog(where, self.lso, self.end, tuple(producers), behind if counted else None)

    def readable(self, start: int, end: int) -> int:
        """Records between two offsets that a read_committed consumer gets."""
        return sum(
            each.records
            for n, each in enumerate(self.batches)
            if not each.marker and start <= each.first < end and self._committed(n)
        )

    def _committed(self, number: int) -> bool:
        batch = self.batches[number]
        if not batch.transactional:
            return True
        later = (each for each in self.batches[number:] if each.producer_id == batch.producer_id)
        return next((each.marker for each in later if each.marker), "") == "commit"


def amounts(found: Reach) -> dict[str, int]:
    return {each.name: each.amount for each in found.effects if each.amount is not None}


@given(WRITES, WRITES, st.booleans(), st.sets(st.sampled_from(PRODUCERS[1:]), max_size=2))
def test_execution_gives_at_least_what_the_plan_promised(
    before: list[Write], meanwhile: list[Write], counted: bool, others: set[int]
) -> None:
    """Other producers write, commit, abort and begin; those that are ended too only continue writing."""
    partition = Partition()
    partition.write([*before, (MINE, 2, "")])
    seen = partition.checked(counted=counted)
    mine = frozenset({MINE, *(each for each in others if each in partition.begun)})
    plan = compute_reach([seen], mine)
    partition.write(each for each in meanwhile if each[0] not in mine or each[2] not in ("commit", "abort"))
    lost = sum(
        each.records
        for each in partition.batches
        if each.transactional and each.first >= partition.begun.get(each.producer_id, partition.end)
        and each.producer_id in mine
    )  # fmt: skip
    for producer_id in sorted(mine):
        partition.complete(producer_id, "abort")

    promised = amounts(plan)
    moved = [held for held in plan.held if held[4] is not None]
    event("moves" if moved else "stays")
    for _, _, lso, _, at_least in moved:
        assert lso is not None
        assert at_least is not None
        assert at_least <= partition.lso
        assert promised.get("offsets_released", 0) <= partition.lso - lso
        assert promised.get("records_released", 0) <= partition.readable(lso, partition.lso)
    (effect,) = own_effects("records_lost", plan.own, "aborted")
    assert (effect.amount or 0) <= lost
    assert counted == (effect.amount is not None)
    assert effect.words.startswith("At least " if counted else "Records that were not counted are aborted: ")


def test_the_measured_case_is_a_lower_bound() -> None:
    """The LSO was promised to be at most 3 and became 4: the abort marker itself takes an offset."""
    partition = Partition()
    partition.write([(MINE, 3, "")])
    plan = compute_reach([partition.checked(counted=True)], frozenset({MINE}))
    partition.complete(MINE, "abort")
    assert partition.lso == 4
    assert [held[4] for held in plan.held] == [3]


def test_another_open_transaction_bounds_the_lso_not_the_end_of_the_log() -> None:
    """The LSO moves to where the next open transaction begins: 13, although the log ends at 15."""
    found = compute_reach(
        [blocked_log(opened=(open_producer(10), open_producer(13, OTHER)))], frozenset({MINE})
    )
    assert found.held == ((TOPIC, 0, 10, 15, 13),)


def test_every_figure_about_a_log_is_called_a_bound() -> None:
    found = compute_reach([blocked_log(), blocked_log(1, batches=None)], frozenset({MINE}))
    for each in found.effects:
        if each.name in ("records_released", "offsets_released"):
            assert each.bound is Bound.AT_LEAST
            assert "at least" in each.words.lower()
