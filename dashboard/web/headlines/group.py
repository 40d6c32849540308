"""The page of a consumer group in a sentence: the place where it is blocked, else its status."""

from collections.abc import Sequence

from dashboard.labels.status import STATUS_LABELS
from dashboard.models import Group, GroupOffset
from dashboard.web.headlines.detail import DetailHeadline, behind_words
from fenceline.formatting import count_noun
from fenceline.kafka.group_observation import GroupBlocker
from fenceline.kafka.groups import GroupStatus, Waiting, note_of
from fenceline.text.sentences import Age, Sentence

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
    sentence, explanation = _found(row, stuck, blockers)
    incomplete = f"Its data is incomplete: {row.error.rstrip('.')}. " if row.error else ""
    return DetailHeadline(sentence, tuple(filter(None, (incomplete, *explanation))))


def _found(row: Group, stuck: Sequence[GroupOffset], blockers: Sequence[GroupBlocker]) -> DetailHeadline:
    if row.blocked:
        sentence = _blocked(row, [offset for offset in stuck if offset.waiting == Waiting.PROBABLY], blockers)
        members = " It has no members." if row.members == 0 else ""
        return DetailHeadline(sentence, (f"{_AT_LSO}{members}",))
    if row.unstable:
        where = _where([str(offset) for offset in stuck if offset.unstable], row.unstable)
        certain = all(blocker.certain for blocker in blockers)
        whose = _by(blockers, " in " if certain else ", possibly in ")
        return DetailHeadline(
            (f"Its transactional commit for {where} is pending{whose}", *_behind(row)), (_PENDING,)
        )
    if any(offset.waiting == Waiting.READS_PAST for offset in stuck):
        return DetailHeadline(("It reads uncommitted", *_behind(row)), (_PAST,))
    if row.error:
        return DetailHeadline(("Not all of it could be read.",))
    if note := note_of(row.kind, row.partitions):
        return DetailHeadline((f"{note}.",))
    return DetailHeadline(_status(row))


def _blocked(row: Group, waiting: Sequence[GroupOffset], blockers: Sequence[GroupBlocker]) -> Sentence:
    where = _where([str(offset) for offset in waiting], row.blocked)
    instants = [offset.waiting_ms for offset in waiting if offset.waiting_ms is not None]
    blocked_by = (_by(blockers, " by "), *_behind(row))
    if not instants:
        return (f"It is likely blocked at {where}", *blocked_by)
    return (f"It has likely been blocked at {where} for ", Age(min(instants)), *blocked_by)


def _where(names: Sequence[str], number: int) -> str:
    """Return the only partition by name, several by number: the page lists them."""
    return names[0] if len(names) == number == 1 else count_noun(number, "partition")


def _by(blockers: Sequence[GroupBlocker], preposition: str) -> str:
    names = [blocker.transactional_id or f"producer {blocker.producer_id}" for blocker in blockers]
    if len(names) > 1:
        return f"{preposition}{count_noun(len(names), 'transaction')}"
    return f"{preposition}{names[0]}" if names else ""


def _behind(row: Group) -> Sentence:
    words = behind_words(row.lag_hw)
    return (f"; it is {words}." if words else ".",)


def _status(row: Group) -> Sentence:
    if row.status == GroupStatus.OK:
        words = behind_words(row.lag_hw)
        return (f"It is healthy and {words}." if words else "It is healthy.",)
    means = STATUS_LABELS[row.status].means
    if row.status == GroupStatus.UNKNOWN:
        means = "there is not enough data for a status"
    return (f"{means[:1].upper()}{means[1:]}", *_behind(row))
