"""The starts of pages of a partition, a group and a query: a sentence of fact, and its explanation."""

from collections.abc import Sequence
from typing import NamedTuple

from dashboard.labels.query import SINK_MEANS, chain_label
from dashboard.labels.status import STATUS_LABELS
from dashboard.models import Group, GroupOffset, PartitionRecord, PinRecord, Query
from dashboard.partitions.queries import unstable_offsets
from dashboard.streaming.lag import PartitionLag, QueryLag
from fenceline.formatting import count_noun, list_names, upper_first
from fenceline.kafka.group_observation import GroupBlocker
from fenceline.kafka.groups import GroupStatus, Waiting, note_of
from fenceline.spark.batch_chain import ChainLink, first_broken_link
from fenceline.spark.drivers import Driver, DriverStatus
from fenceline.text import Age, Sentence


class DetailHeadline(NamedTuple):
    """One sentence of fact, and the sentences that explain it."""

    sentence: Sentence
    explanation: Sentence = ()


#: A blocked group or query, and the records that it is behind; None if unknown.
BlockedConsumer = tuple[str, int | None]


def blocked_words(consumers: Sequence[BlockedConsumer]) -> str:
    """Return the blocked consumers, the last one by name: `billing is 1,465 records behind`."""
    if not consumers:
        return "no known consumer is blocked"
    name, behind = max(consumers, key=lambda consumer: consumer[1] or 0)
    words = f"{name} is {behind_words(behind) or 'blocked'}"
    if others := len(consumers) - 1:
        verb = "is" if others == 1 else "are"
        words += f", and {count_noun(others, 'more consumer')} {verb} blocked"
    return words


def behind_words(number: int | None, *, at_least: bool = False) -> str:
    """Return `1,465 records behind`; "" for none and for an unknown number."""
    return f"{'at least ' if at_least else ''}{count_noun(number, 'record')} behind" if number else ""


def partition_headline(
    row: PartitionRecord, pins: Sequence[PinRecord], consumers: Sequence[BlockedConsumer]
) -> DetailHeadline:
    """Return the current state of a partition in words; `consumers` are blocked there by some of `pins`."""
    if row.error:
        changed: Sentence = ("Data below last changed ", Age(row.seen_ms), " ago.") if row.seen_ms else ()
        return DetailHeadline((f"It is unavailable: {row.error.rstrip('.')}.",), changed)
    unstable = unstable_offsets(row)
    if row.pinned_ms is not None:
        sentence = (*_stuck(row, row.pinned_ms, pins), f"; {blocked_words(consumers)}.")
        records = "the records" if unstable is None else f"up to {count_noun(unstable, 'record')}"
        return DetailHeadline(
            sentence, (f"read_committed consumers cannot read past it: {records} behind it are uncommitted.",)
        )
    if row.lso is None:
        return DetailHeadline(("Its offsets are not known yet.",))
    if unstable:
        return DetailHeadline(("Its LSO advances.",), ("Open transactions are within their limits.",))
    readable = "read_committed consumers can read up to its high watermark."
    return DetailHeadline(("No transaction blocks it.",), (readable,))


def _stuck(row: PartitionRecord, since_ms: int, pins: Sequence[PinRecord]) -> Sentence:
    blocker = next((pin for pin in pins if pin.start_offset == row.lso), None)
    if blocker is None:
        return (f"Its LSO has been stuck at {row.lso:,} for ", Age(since_ms))
    name = blocker.transactional_id or f"A transaction of producer {blocker.producer_id}"
    return (f"{name} has blocked it at offset {row.lso:,} for ", Age(since_ms))


_AT_LSO = (
    "It has consumed everything up to the last stable offset. Kafka does not report its isolation level: "
    "a read_committed consumer gets no more records until that transaction ends."
)
#: KIP-447: a joining member asks for stable offsets.
_PENDING = "Until that transaction ends, a member that fetches its position gets UNSTABLE_OFFSET_COMMIT."
_PAST = (
    "It committed past a blocked LSO, which only a read_uncommitted consumer can do: "
    "it receives aborted records."
)


def group_headline(
    row: Group, stuck: Sequence[GroupOffset], blockers: Sequence[GroupBlocker]
) -> DetailHeadline:
    """Return the current state of a group in words. `stuck` are its offsets at a blocked LSO, past one, or
    pending (`groups.queries.blocked_offsets`), and `blockers` the transactions that they wait for.
    """
    sentence, explanation = _group_sentences(row, stuck, blockers)
    incomplete = f"Its data is incomplete: {row.error.rstrip('.')}. " if row.error else ""
    return DetailHeadline(sentence, tuple(filter(None, (incomplete, *explanation))))


def _group_sentences(
    row: Group, stuck: Sequence[GroupOffset], blockers: Sequence[GroupBlocker]
) -> DetailHeadline:
    if row.blocked:
        sentence = _group_blocked(
            row, [offset for offset in stuck if offset.waiting == Waiting.PROBABLY], blockers
        )
        members = " It has no members." if row.members == 0 else ""
        return DetailHeadline(sentence, (f"{_AT_LSO}{members}",))
    if row.unstable:
        where = _one_or_number([str(offset) for offset in stuck if offset.unstable], row.unstable)
        certain = all(blocker.certain for blocker in blockers)
        whose = _by_blockers(blockers, " in " if certain else ", possibly in ")
        return DetailHeadline(
            (f"Its transactional commit for {where} is pending{whose}", *_group_behind(row)), (_PENDING,)
        )
    if any(offset.waiting == Waiting.READS_PAST for offset in stuck):
        return DetailHeadline(("It reads uncommitted", *_group_behind(row)), (_PAST,))
    if row.error:
        return DetailHeadline(("Not all of it could be read.",))
    if note := note_of(row.kind, row.partitions):
        return DetailHeadline((f"{note}.",))
    return DetailHeadline(_status(row))


def _group_blocked(row: Group, waiting: Sequence[GroupOffset], blockers: Sequence[GroupBlocker]) -> Sentence:
    where = _one_or_number([str(offset) for offset in waiting], row.blocked)
    instants = [offset.waiting_ms for offset in waiting if offset.waiting_ms is not None]
    blocked_by = (_by_blockers(blockers, " by "), *_group_behind(row))
    if not instants:
        return (f"It is likely blocked at {where}", *blocked_by)
    return (f"It has likely been blocked at {where} for ", Age(min(instants)), *blocked_by)


def _one_or_number(names: Sequence[str], number: int) -> str:
    """Return the only partition by name, several by number: the page lists them."""
    return names[0] if len(names) == number == 1 else count_noun(number, "partition")


def _by_blockers(blockers: Sequence[GroupBlocker], preposition: str) -> str:
    names = [blocker.transactional_id or f"producer {blocker.producer_id}" for blocker in blockers]
    if len(names) > 1:
        return f"{preposition}{count_noun(len(names), 'transaction')}"
    return f"{preposition}{names[0]}" if names else ""


def _group_behind(row: Group) -> Sentence:
    words = behind_words(row.lag_hw)
    return (f"; it is {words}." if words else ".",)


def _status(row: Group) -> Sentence:
    if row.status == GroupStatus.OK:
        words = behind_words(row.lag_hw)
        return (f"It is healthy and {words}." if words else "It is healthy.",)
    means = STATUS_LABELS[row.status].means
    if row.status == GroupStatus.UNKNOWN:
        means = "there is not enough data for a status"
    return (upper_first(means), *_group_behind(row))


_NAMED = 2


def query_headline(
    row: Query,
    driver: Driver,
    *,
    prepared: str,
    links: Sequence[ChainLink],
    batch_id: int | None,
    parts: Sequence[PartitionLag],
    lag: QueryLag,
) -> DetailHeadline:
    """Return the current state of a query in words.

    `prepared` is the sentence about a prepared, uncommitted batch, "" without one; `links` are the steps of
    batch `batch_id`, and `parts` the partitions that the query reads.
    """
    batch = _batch_state(links, batch_id)
    worst = _query_trouble(row, driver, prepared, batch if first_broken_link(links) else "")
    sentence = worst or _query_blocked(parts, lag) or _progress(driver, batch, lag)
    explanation = (
        f"{row.error} Data below is outdated." if row.error else "",
        f"{batch}." if worst and batch and sentence != (f"{batch}.",) else "",
        # The sentence about a prepared batch has the effect of a restart.
        f"On restart: {row.restart_words}." if row.restart_words and not prepared else "",
        SINK_MEANS.get(row.sink, ""),
    )
    return DetailHeadline(sentence, tuple(f"{words} " for words in explanation if words))


def _query_trouble(row: Query, driver: Driver, prepared: str, broken: str) -> Sentence:
    if prepared:
        return (prepared,)
    if row.error:
        return ("Its checkpoint cannot be read.",)
    if broken:
        return (f"{broken}.",)
    if driver.failed:
        when: Sentence = () if driver.ended_ms is None else (" ", Age(driver.ended_ms), " ago")
        first = row.exception.strip().partition("\n")[0].rstrip(".")
        return ("It failed", *when, f": {first}." if first else ".")
    if driver.silent_since_ms is not None:
        return ("Its driver has sent no heartbeat for ", Age(driver.silent_since_ms), ".")
    return ()


def _query_blocked(parts: Sequence[PartitionLag], lag: QueryLag) -> Sentence:
    stuck = [part for part in parts if part.waiting_state == Waiting.PROBABLY and part.seen is not None]
    if not stuck:
        return ()
    where = list_names([f"{part.topic}-{part.partition}" for part in stuck], _NAMED)
    since_ms = min(_blocked_ms(part) for part in stuck)
    names = [pin.transactional_id or f"producer {pin.producer_id}" for pin in lag.blockers]
    by = f" by {list_names(names, _NAMED)}" if names else ""
    return (f"It has likely been blocked at {where} for ", Age(since_ms), by, _query_behind(lag))


def _blocked_ms(part: PartitionLag) -> int:
    """Return the time since which a query is at a blocked LSO: the later of the block and its arrival."""
    pinned_ms = part.seen.pinned_ms if part.seen else None
    return max(pinned_ms or 0, part.reached_ms or 0)


def _progress(driver: Driver, batch: str, lag: QueryLag) -> Sentence:
    if driver.status is DriverStatus.ENDED and driver.ended_ms is not None:
        rest = f"; {batch[:1].lower()}{batch[1:]}" if batch else ""
        return ("It was stopped ", Age(driver.ended_ms), f" ago{rest}", _query_behind(lag))
    return (batch or "No batch of it is known", _query_behind(lag))


def _batch_state(links: Sequence[ChainLink], batch_id: int | None) -> str:
    """Return the state of a batch without a full stop; "" without a batch."""
    if batch_id is None:
        return ""
    look = chain_label(links)
    if look.tone == "unknown":
        return f"The progress of batch {batch_id:,} is unknown"
    return f"Batch {batch_id:,} is {look.words}"


def _query_behind(lag: QueryLag) -> str:
    words = behind_words(lag.lag_hw, at_least=lag.partial)
    return f"; it is {words}." if words else "."
