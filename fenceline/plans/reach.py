"""How far an act reaches: which records, groups and queries the end of some transactions lets go, in numbers.

All of it is of one moment: what a partition's leader told of its log and its producers, and who stood at its
LSO when our collectors looked last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from fenceline.batches import Batch
from fenceline.facts import TopicPartition
from fenceline.partitions import ProducerState
from fenceline.plans.plan import Effect
from fenceline.words import count, some

#: Where coordinators of groups keep commits: what is written there is no user's record.
OFFSETS_TOPIC = "__consumer_offsets"
#: Records behind an LSO are counted one by one up to here; beyond, the bound is told.
MOST_COUNTED = 10_000
#: How many partitions a sentence names.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class HeldLog:
    """One partition as its leader told of it, and who stood at its LSO."""

    where: TopicPartition
    #: None where it could not be seen.
    lso: int | None = None
    high_watermark: int | None = None
    #: The producers with an open transaction, the first in the log first.
    opened: tuple[ProducerState, ...] = ()
    #: Headers of all batches from the LSO to the high watermark; None where they were not read.
    batches: tuple[Batch, ...] | None = None
    #: Groups that stand at the LSO, and streaming queries by name.
    groups: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()
    #: Why a part of it could not be seen; "" where all could.
    unseen: str = ""

    @property
    def is_seen(self) -> bool:
        """Whether it was seen whole."""
        return self.lso is not None and not self.unseen

    @property
    def is_offsets(self) -> bool:
        """Whether groups' commits are kept in it."""
        return self.where.topic == OFFSETS_TOPIC

    def start_of(self, producer_ids: Collection[int]) -> int | None:
        """Return where the first open transaction of some producers begins, None where none is open."""
        return next((each.start_offset for each in self.opened if each.producer_id in producer_ids), None)


class Span(NamedTuple):
    """Offsets from `start` up to before `end`."""

    start: int
    end: int


class Own(NamedTuple):
    """What transactions that are ended had written in a partition; offsets inclusive."""

    where: TopicPartition
    #: None where only the bounds are known.
    records: int | None
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Reach:
    """What the end of some transactions lets go."""

    #: Partitions whose LSO moves: topic, partition, LSO, high watermark.
    held: tuple[tuple[str, int, int | None, int | None], ...]
    #: Groups, then queries, that stand there, by name.
    waiting: tuple[str, ...]
    #: records_released, groups_released and queries_released, as far as there are any.
    effects: tuple[Effect, ...]
    #: What the transactions had written themselves.
    own: tuple[Own, ...]


def span_of(log: HeldLog, mine: AbstractSet[int], ended: AbstractSet[int] = frozenset()) -> Span | None:
    """Return the offsets that readers get when the transactions of `mine` end, None where the LSO stays.

    `mine` are producer ids; those in `ended` have ended before. It stays where another transaction that is
    open begins before all of them.
    """
    left = [each for each in log.opened if each.producer_id not in ended]
    if not left or left[0].producer_id not in mine or log.high_watermark is None:
        return None
    behind = next((each.start_offset for each in left if each.producer_id not in mine), None)
    start = left[0].start_offset or 0
    return Span(start, max(start, log.high_watermark if behind is None else behind))


def released_in(log: HeldLog, span: Span) -> int | None:
    """Return how many records of others become readable in a span, None where they were not read."""
    if log.batches is None:
        return None
    told = zip(log.batches, _fates(log.batches), strict=True)
    return sum(
        batch.records for batch, fate in told if fate == _COMMIT and span.start <= batch.first < span.end
    )


def own_in(log: HeldLog, mine: AbstractSet[int]) -> Own | None:
    """Return what open transactions of `mine` have written in a partition; bounds where it was not read."""
    start = log.start_of(mine)
    if start is None:
        return None
    if log.batches is None:
        return Own(log.where, None, start, max(start, (log.high_watermark or start) - 1))
    told = zip(log.batches, _fates(log.batches), strict=True)
    written = [batch for batch, fate in told if fate == "" and batch.producer_id in mine]
    if not written:
        return Own(log.where, 0, start, start)
    return Own(log.where, sum(batch.records for batch in written), written[0].first, written[-1].last)


_COMMIT, _MARKER = "commit", "marker"


def _fates(batches: Sequence[Batch]) -> Sequence[str]:
    """Return of each batch what its transaction came to: commit, abort, "" while it is open, or marker."""
    fates = [_COMMIT] * len(batches)
    still_open: dict[int, list[int]] = defaultdict(list)
    for number, batch in enumerate(batches):
        if not batch.transactional:
            continue
        if batch.marker:
            fates[number] = _MARKER
            for each in still_open.pop(batch.producer_id, ()):
                fates[each] = batch.marker
        else:
            fates[number] = ""
            still_open[batch.producer_id].append(number)
    return fates


def reach(logs: Iterable[HeldLog], mine: AbstractSet[int], ended: AbstractSet[int] = frozenset()) -> Reach:
    """Return how far the end of the transactions of `mine` reaches; those of `ended` have ended before."""
    found = list(logs)
    moved = [(log, span) for log in found if (span := span_of(log, mine, ended))]
    users = [(log, span) for log, span in moved if not log.is_offsets]
    groups = _once(name for log, _ in users for name in log.groups)
    queries = _once(name for log, _ in users for name in log.queries)
    stays = [log for log in found if _stays(log, mine, ended)]
    effects = [*_records(users), *_stay(stays), *_unseen(found), *_groups(groups), *_queries(queries)]
    held = [log for log in found if span_of(log, mine, ended) or not log.is_seen]
    return Reach(
        tuple((*log.where, log.lso, log.high_watermark) for log in held if not log.is_offsets),
        (*groups, *queries),
        tuple(effects),
        tuple(own for log in found if not log.is_offsets and (own := own_in(log, mine))),
    )


def own_words(own: Sequence[Own]) -> tuple[int, str]:
    """Return how many records some transactions have written, and where: `300 records: payments-0 …`.

    "at most" where one of them is a bound.
    """
    bound = "at most " if any(each.records is None for each in own) else ""
    number = sum(_at_most(each) for each in own)
    return number, f"{bound}{count(number, 'record')}: {some([_range(each) for each in own], _NAMED)}"


def _at_most(own: Own) -> int:
    return own.last - own.first + 1 if own.records is None else own.records


def _range(own: Own) -> str:
    return f"{own.where} from offset {own.first:,} to {own.last:,}"


def _stays(log: HeldLog, mine: AbstractSet[int], ended: AbstractSet[int]) -> bool:
    """Whether the LSO of a partition stays, since another transaction is open before all of `mine`."""
    is_open = log.is_seen and not log.is_offsets and log.start_of(mine) is not None
    return is_open and span_of(log, mine, ended) is None


def _records(moved: Sequence[tuple[HeldLog, Span]]) -> Iterator[Effect]:
    if not moved:
        return
    counted = [released_in(log, span) for log, span in moved]
    sums = [span.end - span.start if n is None else n for n, (_, span) in zip(counted, moved, strict=True)]
    where = some([str(log.where) for log, _ in moved], _NAMED)
    if any(sums):
        bound = "At most " if None in counted else ""
        verb = "becomes" if sum(sums) == 1 else "become"
        words = f"{bound}{count(sum(sums), 'record')} behind the LSO of {where} {verb} readable."
    else:
        words = f"The LSO of {where} moves on; no record of anybody else waits behind it."
    yield Effect("records_released", sum(sums), words)


def _stay(logs: Sequence[HeldLog]) -> Iterator[Effect]:
    if logs:
        names = some([str(log.where) for log in logs], _NAMED)
        words = f"The LSO of {names} stays: another transaction is open before it there."
        yield Effect("lso_stays", len(logs), words)


def _unseen(logs: Sequence[HeldLog]) -> Iterator[Effect]:
    blind = [log for log in logs if not log.is_seen]
    if blind:
        names = some([str(log.where) for log in blind], _NAMED)
        words = f"What becomes readable in {names} cannot be seen: {blind[0].unseen or 'no leader told'}."
        yield Effect("unseen", len(blind), words)


def _groups(names: Sequence[str]) -> Iterator[Effect]:
    if names:
        verb = "stands there and reads" if len(names) == 1 else "stand there and read"
        words = f"{count(len(names), 'group')} that {verb} on: {some(names)}."
        yield Effect("groups_released", len(names), words)


def _queries(names: Sequence[str]) -> Iterator[Effect]:
    if names:
        noun = "1 streaming query stands" if len(names) == 1 else f"{len(names):,} streaming queries stand"
        verb = "reads on if it reads" if len(names) == 1 else "read on if they read"
        words = f"{noun} there and {verb} read_committed: {some(names)}."
        yield Effect("queries_released", len(names), words)


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
