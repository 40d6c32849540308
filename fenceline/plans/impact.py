"""The impact of an action: how many records, groups and queries are unblocked when transactions end.

All figures are of one moment: the log and the producers from the partition's leader, and the consumers at its
LSO from our collectors' last poll. Producers continue to write until the plan is executed, so every figure
about a log is a lower bound and is worded "at least".
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import TopicPartition
from fenceline.formatting import count_noun, is_are, list_names
from fenceline.kafka.partitions import ProducerState
from fenceline.plans.plan import Bound, Effect, HeldOffsets, PlanStep, Refusal, Seen, SubjectPlan

#: The topic of groups' commits: its records are no user's.
OFFSETS_TOPIC = "__consumer_offsets"
#: Records after an LSO are counted one by one up to here; beyond, only offsets are.
MOST_COUNTED = 10_000
#: Maximum partitions in a sentence.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class HeldLog:
    """One partition from its leader, and the consumers at its LSO."""

    where: TopicPartition
    #: None if it could not be read.
    lso: int | None = None
    high_watermark: int | None = None
    #: The producers with an open transaction, in the order of the log.
    opened: tuple[ProducerState, ...] = ()
    #: Headers of all batches from the LSO to the high watermark; None if they were not read.
    batches: tuple[RecordBatch, ...] | None = None
    #: Groups and streaming queries at the LSO, by name.
    groups: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()
    #: Why a part of it could not be read; "" if all could.
    unseen: str = ""

    @property
    def is_complete(self) -> bool:
        return self.lso is not None and not self.unseen

    @property
    def is_offsets(self) -> bool:
        """Whether it holds groups' commits."""
        return self.where.topic == OFFSETS_TOPIC

    def start_of(self, producer_ids: Collection[int]) -> int | None:
        """Return where the first open transaction of some producers begins, None without any."""
        return next(
            (opened.start_offset for opened in self.opened if opened.producer_id in producer_ids), None
        )


class Span(NamedTuple):
    """Offsets from `start` to before `end`."""

    start: int
    end: int


class Own(NamedTuple):
    """The records of ended transactions in a partition so far; offsets inclusive."""

    where: TopicPartition
    #: None if they were not counted.
    records: int | None
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Reach:
    """What the end of some transactions unblocks."""

    #: Partitions whose LSO moves, or may: topic, partition, LSO, high watermark, and the least new LSO, None
    #: if it cannot be read.
    held: tuple[HeldOffsets, ...]
    #: Waiting groups, then queries, by name.
    waiting: tuple[str, ...]
    #: records_released, offsets_released, groups_released and queries_released, as far as they apply.
    effects: tuple[Effect, ...]
    #: The transactions' own records.
    own: tuple[Own, ...]

    def plan(
        self,
        subject: str,
        title: str,
        seen: Seen,
        steps: Iterable[PlanStep] = (),
        effects: Iterable[Effect] = (),
        refusals: tuple[Refusal, ...] = (),
    ) -> SubjectPlan:
        """Return the plan of a subject with what waits for it."""
        lists = tuple(steps), tuple(effects), refusals
        return SubjectPlan(subject, title, seen, *lists, self.held, self.waiting)


def span_of(log: HeldLog, mine: AbstractSet[int], ended: AbstractSet[int] = frozenset()) -> Span | None:
    """Return the least span that becomes readable when transactions of `mine` end; None if the LSO stays.

    `mine` are producer ids; those in `ended` have ended before. The LSO stays if another open transaction
    begins first. It reaches at least the end of the span: later transactions begin after it.
    """
    still_open = [opened for opened in log.opened if opened.producer_id not in ended]
    if not still_open or still_open[0].producer_id not in mine or log.high_watermark is None:
        return None
    behind = next((opened.start_offset for opened in still_open if opened.producer_id not in mine), None)
    start = still_open[0].start_offset or 0
    return Span(start, max(start, log.high_watermark if behind is None else behind))


def released_in(log: HeldLog, span: Span) -> int | None:
    """Return the least number of others' records that become readable in a span; None if not read."""
    if log.batches is None:
        return None
    fates = zip(log.batches, _fates(log.batches), strict=True)
    return sum(
        batch.records for batch, fate in fates if fate == _COMMIT and span.start <= batch.first < span.end
    )


def own_in(log: HeldLog, mine: AbstractSet[int]) -> Own | None:
    """Return the records of open transactions of `mine` in a partition; None if none is open."""
    start = log.start_of(mine)
    if start is None:
        return None
    if log.batches is None:
        return Own(log.where, None, start, max(start, (log.high_watermark or start) - 1))
    fates = zip(log.batches, _fates(log.batches), strict=True)
    written = [batch for batch, fate in fates if fate == "" and batch.producer_id in mine]
    if not written:
        return Own(log.where, 0, start, start)
    return Own(log.where, sum(batch.records for batch in written), written[0].first, written[-1].last)


_COMMIT, _MARKER = "commit", "marker"


def _fates(batches: Sequence[RecordBatch]) -> Sequence[str]:
    """Return the fate of each batch's transaction: commit, abort, "" while it is open, or marker."""
    fates = [_COMMIT] * len(batches)
    still_open: dict[int, list[int]] = defaultdict(list)
    for number, batch in enumerate(batches):
        if not batch.transactional:
            continue
        if batch.marker:
            fates[number] = _MARKER
            for opened in still_open.pop(batch.producer_id, ()):
                fates[opened] = batch.marker
        else:
            fates[number] = ""
            still_open[batch.producer_id].append(number)
    return fates


def compute_reach(
    logs: Iterable[HeldLog], mine: AbstractSet[int], ended: AbstractSet[int] = frozenset()
) -> Reach:
    """Return what is unblocked when transactions of `mine` end; those of `ended` end before."""
    partitions = list(logs)
    moved = [(log, span) for log in partitions if (span := span_of(log, mine, ended))]
    users = [(log, span) for log, span in moved if not log.is_offsets]
    groups = _once(name for log, _ in users for name in log.groups)
    queries = _once(name for log, _ in users for name in log.queries)
    stays = [log for log in partitions if _stays(log, mine, ended)]
    effects = [*_records(users), *_stay(stays), *_unseen(partitions), *_groups(groups), *_queries(queries)]
    return Reach(
        tuple(_held(log, span_of(log, mine, ended)) for log in partitions if _may_move(log, mine, ended)),
        (*groups, *queries),
        tuple(effects),
        tuple(own for log in partitions if not log.is_offsets and (own := own_in(log, mine))),
    )


def own_effects(name: str, own: Sequence[Own], end: str) -> Iterator[Effect]:
    """Yield the effect on the records that transactions wrote: `At least 300 records it wrote are END: …`.

    The number is None if no partition was counted.
    """
    if not own:
        return
    counted = [held for held in own if held.records is not None]
    others = [held for held in own if held.records is None]
    number = sum(held.records or 0 for held in counted)
    parts = []
    if counted:
        ranges = [f"{held.where} from offset {held.first:,} to {held.last:,}" for held in counted]
        records = f"At least {count_noun(number, 'record')} it wrote {is_are(number)} {end}"
        parts.append(f"{records}: {list_names(ranges, _NAMED)}.")
    if others:
        where = list_names([f"{held.where} from offset {held.first:,} on" for held in others], _NAMED)
        parts.append(f"Records that were not counted are {end}: {where}.")
    yield Effect(name, number if counted else None, " ".join(parts), Bound.AT_LEAST)


def _may_move(log: HeldLog, mine: AbstractSet[int], ended: AbstractSet[int]) -> bool:
    return not log.is_offsets and (span_of(log, mine, ended) is not None or not log.is_complete)


def _held(log: HeldLog, span: Span | None) -> HeldOffsets:
    at_least = span.end if span is not None and log.is_complete else None
    return HeldOffsets(*log.where, log.lso, log.high_watermark, at_least)


def _stays(log: HeldLog, mine: AbstractSet[int], ended: AbstractSet[int]) -> bool:
    """Whether an earlier open transaction of another producer keeps the partition's LSO from moving."""
    is_open = log.is_complete and not log.is_offsets and log.start_of(mine) is not None
    return is_open and span_of(log, mine, ended) is None


def _records(moved: Sequence[tuple[HeldLog, Span]]) -> Iterator[Effect]:
    counts = [(log, span, released_in(log, span)) for log, span in moved]
    if counted := [(log, number) for log, _, number in counts if number is not None]:
        yield _released(_names(log for log, _ in counted), sum(number for _, number in counted))
    if others := [(log, span) for log, span, number in counts if number is None]:
        yield _offsets(_names(log for log, _ in others), sum(span.end - span.start for _, span in others))


def _names(logs: Iterable[HeldLog]) -> str:
    return list_names([str(log.where) for log in logs], _NAMED)


def _released(where: str, number: int) -> Effect:
    if not number:
        words = f"The LSO of {where} moves on; no record of another producer was behind it when checked."
        return Effect("records_released", 0, words, Bound.AT_LEAST)
    verb = "becomes" if number == 1 else "become"
    words = f"At least {count_noun(number, 'record')} behind the LSO of {where} {verb} readable."
    return Effect("records_released", number, words, Bound.AT_LEAST)


def _offsets(where: str, number: int) -> Effect:
    words = (
        f"The LSO of {where} moves on by at least {count_noun(number, 'offset')}: committed records of other "
        "producers there become readable. They are too many to be counted here."
    )
    return Effect("offsets_released", number, words, Bound.AT_LEAST)


def _stay(logs: Sequence[HeldLog]) -> Iterator[Effect]:
    if logs:
        words = f"The LSO of {_names(logs)} stays: another transaction is open before it there."
        yield Effect("lso_stays", len(logs), words)


def _unseen(logs: Sequence[HeldLog]) -> Iterator[Effect]:
    blind = [log for log in logs if not log.is_complete]
    if blind:
        reason = blind[0].unseen or "no leader answered"
        words = f"What becomes readable in {_names(blind)} cannot be seen: {reason}."
        yield Effect("unseen", len(blind), words)


def _groups(names: Sequence[str]) -> Iterator[Effect]:
    if names:
        groups = f"{count_noun(len(names), 'group')} {is_are(len(names))}"
        words = f"{groups} blocked there now and can read on: {list_names(names)}."
        yield Effect("groups_released", len(names), words)


def _queries(names: Sequence[str]) -> Iterator[Effect]:
    if names:
        noun = "1 streaming query is" if len(names) == 1 else f"{len(names):,} streaming queries are"
        verb = "it reads" if len(names) == 1 else "they read"
        words = f"{noun} blocked there now and can read on if {verb} read_committed: {list_names(names)}."
        yield Effect("queries_released", len(names), words)


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
