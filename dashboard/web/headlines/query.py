"""The page of a streaming query in a sentence: a loss, a failure or a block, else its batch."""

from collections.abc import Sequence

from dashboard.labels.query import SINK_MEANS, chain_label
from dashboard.models import Query
from dashboard.streaming.lag import PartitionLag, QueryLag
from dashboard.web.headlines.detail import DetailHeadline, behind_words
from fenceline.formatting import list_names
from fenceline.kafka.groups import Waiting
from fenceline.spark.batch_chain import ChainLink, first_broken_link
from fenceline.spark.drivers import Driver, DriverStatus
from fenceline.text.sentences import Age, Sentence

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
    batch = _batch(links, batch_id)
    worst = _worst(row, driver, prepared, batch if first_broken_link(links) else "")
    sentence = worst or _blocked(parts, lag) or _progress(row, driver, batch, lag)
    after = f"{batch}." if worst and batch and sentence != (f"{batch}.",) else ""
    return DetailHeadline(
        sentence, tuple(_explanations(row, after, restart="" if prepared else row.restart_words))
    )


def _worst(row: Query, driver: Driver, prepared: str, broken: str) -> Sentence:
    if prepared:
        return (prepared,)
    if row.error:
        return ("Its checkpoint cannot be read.",)
    if broken:
        return (f"{broken}.",)
    if driver.failed:
        when: Sentence = () if driver.ended_ms is None else (" ", Age(driver.ended_ms), " ago")
        return ("It failed", *when, f"{_reason(row)}.")
    if driver.silent_since_ms is not None:
        return ("Its driver has sent no heartbeat for ", Age(driver.silent_since_ms), ".")
    return ()


def _reason(row: Query) -> str:
    first = row.exception.strip().partition("\n")[0].rstrip(".")
    return f": {first}" if first else ""


def _blocked(parts: Sequence[PartitionLag], lag: QueryLag) -> Sentence:
    stuck = [part for part in parts if part.waiting_state == Waiting.PROBABLY and part.seen is not None]
    if not stuck:
        return ()
    where = list_names([f"{part.topic}-{part.partition}" for part in stuck], _NAMED)
    since_ms = min(_blocked_ms(part) for part in stuck)
    names = [pin.transactional_id or f"producer {pin.producer_id}" for pin in lag.blockers]
    by = f" by {list_names(names, _NAMED)}" if names else ""
    return (f"It has likely been blocked at {where} for ", Age(since_ms), by, _behind(lag))


def _blocked_ms(part: PartitionLag) -> int:
    """Return the time since which a query is at a blocked LSO: the later of the block and its arrival."""
    pinned_ms = part.seen.pinned_ms if part.seen else None
    return max(pinned_ms or 0, part.reached_ms or 0)


def _progress(row: Query, driver: Driver, batch: str, lag: QueryLag) -> Sentence:
    if driver.status is DriverStatus.ENDED and driver.ended_ms is not None:
        rest = f"; {batch[:1].lower()}{batch[1:]}" if batch else ""
        return ("It was stopped ", Age(driver.ended_ms), f" ago{rest}", _behind(lag))
    return (batch or "No batch of it is known", _behind(lag))


def _batch(links: Sequence[ChainLink], batch_id: int | None) -> str:
    """Return the state of a batch without a full stop; "" without a batch."""
    if batch_id is None:
        return ""
    look = chain_label(links)
    if look.tone == "unknown":
        return f"The progress of batch {batch_id:,} is unknown"
    return f"Batch {batch_id:,} is {look.words}"


def _behind(lag: QueryLag) -> str:
    words = behind_words(lag.lag_hw, at_least=lag.partial)
    return f"; it is {words}." if words else "."


def _explanations(row: Query, batch: str, *, restart: str) -> Sequence[str]:
    """Return the sentences after the first one; `batch` is its batch's state, "" if the first one has it.

    `restart` is the effect of a restart, "" if the first sentence has it.
    """
    words = [
        f"{row.error} Data below is outdated." if row.error else "",
        batch,
        f"On restart: {restart}." if restart else "",
        SINK_MEANS.get(row.sink, ""),
    ]
    return [f"{sentence} " for sentence in words if sentence]
