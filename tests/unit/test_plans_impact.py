"""Proves what the end of a transaction unblocks, in numbers, and that what a plan calls a bound is one,
whatever producers write between the plan and its execution."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hypothesis import event, given
from hypothesis import strategies as st

from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import TopicPartition
from fenceline.kafka.partitions import ProducerState
from fenceline.plans.impact import (
    HeldLog,
    Own,
    Reach,
    Span,
    compute_reach,
    own_effects,
    own_in,
    released_in,
    span_of,
)
from fenceline.plans.plan import Bound
from tests.cases import cases
from tests.unit.factories import MINE, OTHER, TOPIC, blocked_log, data_batch, marker_batch, open_producer

M = frozenset({MINE})
COMMITTED = (data_batch(11, 2, OTHER), marker_batch(13, OTHER))
WHERE = TopicPartition(TOPIC, 0)


@cases(
    # 1. The only one: to the end.
    (blocked_log(), M, (), Span(10, 15)),
    # 2. Another one is open behind it: up to there.
    (blocked_log(opened=(open_producer(10), open_producer(13, OTHER))), M, (), Span(10, 13)),
    # 3. Another one is open before it: the LSO stays.
    (blocked_log(opened=(open_producer(10, OTHER), open_producer(13))), M, (), None),
    # 4. … unless that one is ended before.
    (blocked_log(opened=(open_producer(10, OTHER), open_producer(13))), M, {OTHER}, Span(13, 15)),
    # 5. Both are ended together.
    (blocked_log(opened=(open_producer(10, OTHER), open_producer(13))), M | {OTHER}, (), Span(10, 15)),
    # 6. Nothing of it is open there.
    (blocked_log(opened=()), M, (), None),
    (blocked_log(opened=(open_producer(10, OTHER),)), M, (), None),
    # 7. The end of the log could not be seen.
    (blocked_log(lso=None, high_watermark=None), M, (), None),
    # 8. Told at different moments: never less than nothing.
    (blocked_log(high_watermark=9), M, (), Span(10, 10)),
)
def test_the_offsets_that_readers_get(
    told: HeldLog, mine: frozenset[int], ended: set[int], expected: Span | None
) -> None:
    assert span_of(told, mine, frozenset(ended)) == expected


@cases(
    # 1. Its own records are aborted, others' are read.
    ((data_batch(10, 2), data_batch(12, 3, -1, transactional=False)), 3),
    # 2. Committed ones behind it, aborted ones, and markers, which are no records.
    ((data_batch(10), *COMMITTED, data_batch(14, 4, 6), marker_batch(18, 6, "abort")), 2),
    # 3. One producer, committed and then aborted and then open.
    ((*COMMITTED, data_batch(14, 5, OTHER), marker_batch(19, OTHER, "abort")), 2),
    ((*COMMITTED, data_batch(14, 5, OTHER)), 2),
    # 4. Behind the span, where it is read only for what its transaction came to.
    ((data_batch(10), data_batch(12, 2, OTHER), data_batch(100, 2, OTHER), marker_batch(102, OTHER)), 2),
    # 5. Not read at all.
    (None, None),
    ((), 0),
)
def test_records_that_become_readable(batches: tuple[RecordBatch, ...] | None, expected: int | None) -> None:
    assert released_in(blocked_log(batches=batches), Span(10, 50)) == expected


def test_the_records_of_a_transaction_are_counted() -> None:
    assert own_in(blocked_log(), M) == Own(WHERE, 2, 10, 11)
    # Bounds where nothing was read, and nothing where nothing of it is open.
    assert own_in(blocked_log(batches=None), M) == Own(WHERE, None, 10, 14)
    assert own_in(blocked_log(opened=()), M) is None
    # Records of its transaction before that one, which has ended, are not its.
    before = (data_batch(10), marker_batch(11, MINE), data_batch(12, 4), data_batch(20, 1))
    assert own_in(blocked_log(opened=(open_producer(12),), batches=before), M) == Own(WHERE, 5, 12, 20)
    # Deleted records leave the offset at which it began.
    assert own_in(blocked_log(batches=()), M) == Own(WHERE, 0, 10, 10)


def test_texts_give_lower_bounds_and_name_what_was_not_counted() -> None:
    # Its producer may go on writing until it is ended, so a count is a lower bound.
    expected = (2, "At least 2 records it wrote are aborted: payments-0 from offset 1,000 to 1,001.")
    assert told([Own(WHERE, 2, 1_000, 1_001)]) == expected
    assert told([Own(WHERE, None, 10, 14), Own(TopicPartition(TOPIC, 1), 1, 3, 3)]) == (
        1,
        "At least 1 record it wrote is aborted: payments-1 from offset 3 to 3. "
        "Records that were not counted are aborted: payments-0 from offset 10 on.",
    )
    assert told([Own(WHERE, None, 10, 14)])[0] is None
    assert not list(own_effects("records_lost", [], "aborted"))


def told(own: Sequence[Own]) -> tuple[int | None, str]:
    (effect,) = own_effects("records_lost", own, "aborted")
    return effect.amount, effect.words


def effects_of(*logs: HeldLog, ended: Sequence[int] = ()) -> dict[str, tuple[int | None, str]]:
    found = compute_reach(logs, M, frozenset(ended)).effects
    return {each.name: (each.amount, each.words) for each in found}


def test_effects_in_numbers_and_names() -> None:
    held = blocked_log(groups=("billing",), queries=("orders_enrich",))
    more = blocked_log(1, batches=None, groups=("billing", "audit"))
    found = compute_reach([held, more], M)
    expected = ["records_released", "offsets_released", "groups_released", "queries_released"]
    assert [each.name for each in found.effects] == expected
    assert [each.amount for each in found.effects] == [3, 5, 2, 1]
    assert [each.bound for each in found.effects] == ["at_least", "at_least", "", ""]
    assert found.effects[0].words == "At least 3 records behind the LSO of payments-0 become readable."
    assert found.effects[1].words.startswith("The LSO of payments-1 moves on by at least 5 offsets: ")
    assert "billing and audit" in found.effects[2].words
    assert found.held == ((TOPIC, 0, 10, 15, 15), (TOPIC, 1, 10, 15, 15))
    assert found.waiting == ("billing", "audit", "orders_enrich")
    assert [each.records for each in found.own] == [2, None]


def test_partitions_that_stay_blocked_or_are_unavailable_are_listed() -> None:
    behind = blocked_log(opened=(open_producer(10, OTHER), open_producer(13)), groups=("billing",))
    found = effects_of(behind)
    assert found["lso_stays"][0] == 1
    assert "another transaction is open before it" in found["lso_stays"][1]
    assert "groups_released" not in found
    assert set(effects_of(behind, ended=[OTHER])) == {"records_released", "groups_released"}
    blind = blocked_log(
        lso=None, high_watermark=None, opened=(), batches=None, unseen="no READ on this topic"
    )
    assert effects_of(blind) == {
        "unseen": (1, "What becomes readable in payments-0 cannot be seen: no READ on this topic.")
    }
    assert compute_reach([blind], M).held == ((TOPIC, 0, None, None, None),)
    # Its end is known, and who writes there is not.
    half = blocked_log(opened=(), batches=None, unseen="no READ on this topic")
    assert set(effects_of(half)) == {"unseen"}
    assert compute_reach([half], M).held == ((TOPIC, 0, 10, 15, None),)


def test_a_transaction_without_later_records_unblocks_none_and_offsets_of_groups_are_none() -> None:
    words = "The LSO of payments-0 moves on; no record of another producer was behind it when checked."
    found = effects_of(blocked_log(high_watermark=12, batches=(data_batch(10, 2),)))
    assert found == {"records_released": (0, words)}
    reach = compute_reach([blocked_log(12, "__consumer_offsets", groups=("billing",))], M)
    assert (reach.effects, reach.held, reach.waiting, reach.own) == ((), (), (), ())


BATCHES = st.lists(
    st.tuples(st.integers(1, 4), st.integers(1, 5), st.sampled_from(["", "", "commit", "abort", "plain"]))
)


@given(BATCHES, st.lists(st.integers(1, 4), unique=True))
def test_transactions_ended_one_by_one_unblock_as_much_as_all_at_once(
    rows: list[tuple[int, int, str]], order: list[int]
) -> None:
    """Whatever lies in a log, and in whatever order its open transactions end."""
    batches: list[RecordBatch] = []
    begun: dict[int, int] = {}
    at = 0
    for producer_id, records, kind in rows:
        if kind in ("commit", "abort"):
            batches.append(marker_batch(at, producer_id, kind))
            begun.pop(producer_id, None)
        else:
            plain = kind == "plain"
            batches.append(data_batch(at, records, -1 if plain else producer_id, transactional=not plain))
            if not plain:
                begun.setdefault(producer_id, at)
        at = batches[-1].last + 1
    producers: tuple[ProducerState, ...] = tuple(
        open_producer(start, producer_id)
        for producer_id, start in sorted(begun.items(), key=lambda item: item[1])
    )
    lso = min(begun.values(), default=at)
    whole = HeldLog(WHERE, lso, at, producers, tuple(each for each in batches if each.first >= lso))
    ended: set[int] = set()
    total = 0
    by_start = [each.producer_id for each in producers if each.producer_id in order]
    for producer_id in by_start:
        for each in compute_reach([whole], frozenset({producer_id}), frozenset(ended)).effects:
            if each.name == "records_released":
                total += each.amount or 0
        ended.add(producer_id)
    together = compute_reach([whole], frozenset(ended)).effects
    assert total == sum(each.amount or 0 for each in together if each.name == "records_released")


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


def test_the_measured_case_is_a_lower_bound_and_every_figure_about_a_log_is_called_one() -> None:
    """The LSO was promised to be at most 3 and became 4: the abort marker itself takes an offset."""
    partition = Partition()
    partition.write([(MINE, 3, "")])
    plan = compute_reach([partition.checked(counted=True)], M)
    partition.complete(MINE, "abort")
    assert partition.lso == 4
    assert [held[4] for held in plan.held] == [3]
    # It moves to where the next open transaction begins: 13, although the log ends at 15.
    found = compute_reach([blocked_log(opened=(open_producer(10), open_producer(13, OTHER)))], M)
    assert found.held == ((TOPIC, 0, 10, 15, 13),)
    for each in compute_reach([blocked_log(), blocked_log(1, batches=None)], M).effects:
        if each.name in ("records_released", "offsets_released"):
            assert each.bound is Bound.AT_LEAST
            assert "at least" in each.words.lower()
