"""What the sink asks of coordinators: describe, verify, commit, abort, and find what nobody will end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from fenceline.facts import TransactionState
from fenceline.kafka.reconcile import Described, NotDescribed, Obstacle
from fenceline.spark.records import SinkTransaction
from spark_pipeline.sink import names
from spark_pipeline.sink.errors import SinkError
from transaction_admin.api import Ended, Ending, Fencing, TransactionAdmin, grant_command

log = logging.getLogger(__name__)

#: How long coordinators may be away before a batch fails; a prepared one is finished at the next start.
PATIENCE_S = 60.0
_PAUSE_S = 0.1
#: A transaction must live this much longer before it is prepared: EndTxn has to get there in time.
_MARGIN_S, _MARGIN_OF_TIMEOUT = 1.0, 0.02

_INVALID_PRODUCER_EPOCH, _INVALID_TXN_STATE, _INVALID_PRODUCER_ID_MAPPING = 47, 48, 49
_FORBIDDEN, _PRODUCER_FENCED, _UNKNOWN_ID = 53, 90, 105
#: The transaction is not there any more as it was: ended by its timeout, or by whoever took over its id.
GONE = frozenset(
    (_INVALID_PRODUCER_EPOCH, _INVALID_TXN_STATE, _INVALID_PRODUCER_ID_MAPPING, _PRODUCER_FENCED, _UNKNOWN_ID)
)
_COMMITTED = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


class Bad(NamedTuple):
    """A transaction that cannot be prepared."""

    transactional_id: str
    reason: str


class MissingTransactions(NamedTuple):
    """Transactions of a prepared batch that are not there any more."""

    transactions: tuple[SinkTransaction, ...]
    why: str


def describe_ids(
    admin: TransactionAdmin, ids: Collection[str], patience_s: float = PATIENCE_S
) -> Mapping[str, Described | NotDescribed]:
    """Return what the coordinators report of ids; ask again, for a while, those that do not answer."""
    until = time.monotonic() + patience_s
    answers: dict[str, Described | NotDescribed] = {}
    left: Collection[str] = ids
    while left:
        answers.update(admin.describe_transactions(left, listed=True))
        left = [name for name in left if _unseen(answers[name])]
        if time.monotonic() > until:
            break
        if left:
            time.sleep(_PAUSE_S)
    return answers


class Transactions:
    """The sink's transactions on one cluster."""

    def __init__(self, admin: TransactionAdmin) -> None:
        self._admin = admin

    def verify(self, transactions: Sequence[SinkTransaction], open_s: float) -> list[Bad]:
        """Return those that are not open as their task left them, or not for long enough any more.

        `open_s` is how long the oldest of them can have been open, by our own clock: clocks of coordinators
        are not compared with ours.
        """
        answers = describe_ids(self._admin, [each.transactional_id for each in transactions])
        bad = []
        for each in transactions:
            reason = _unlike(each, answers[each.transactional_id]) or _too_old(each, open_s)
            if reason:
                bad.append(Bad(each.transactional_id, reason))
        return bad

    def commit(
        self, transactions: Sequence[SinkTransaction], on_first: Callable[[], None] | None = None
    ) -> MissingTransactions:
        """Commit transactions of a prepared batch; return those that are lost. To repeat it is safe.

        An observer sees the moment when some are committed and some are not: then the first goes alone.
        Raises `SinkError` where coordinators do not answer: the batch stays prepared.
        """
        some = len(transactions) > 1 and on_first is not None
        answers = dict(self._end(transactions[:1] if some else transactions, commit=True))
        if some and on_first is not None:
            on_first()
            answers.update(self._end(transactions[1:], commit=True))
        _refuse_unanswered(answers)
        gone = [each for each in transactions if answers[each.transactional_id].code in GONE]
        return self._lost(gone, answers)

    def abort(self, transactions: Collection[SinkTransaction]) -> None:
        """Abort transactions of a batch that is decided to be; what is gone already is well."""
        self._abort([_ending(each, commit=False) for each in transactions])

    def fence_leftovers(self, stem: str, which: Callable[[names.Parts], bool]) -> int:
        """Fence those that are open, are of the ledger of this stem and are chosen; return how many.

        Fenced, not only aborted: a task that still lives keeps its epoch through an abort by EndTxn, and its
        next send would open the transaction again (KIP-890).
        """
        parsed = {name: names.parse_id(name) for name in self._open()}
        found = [name for name, parts in parsed.items() if parts and parts.stem == stem and which(parts)]
        fencings = self._still_open(found)
        if fencings:
            log.warning("fencing %d transactions that nobody will end: %s", len(fencings), fencings)
        self._fence(fencings)
        return len(fencings)

    def _still_open(self, ids: Collection[str]) -> list[Fencing]:
        return [
            Fencing(name, described.timeout_ms)
            for name, described in describe_ids(self._admin, ids).items()
            if isinstance(described, Described) and described.state is TransactionState.ONGOING
        ]

    def _fence(self, fencings: Collection[Fencing]) -> None:
        """Fence, and fence again what was not answered and is open still: all of them are nobody's."""
        until = time.monotonic() + PATIENCE_S
        while fencings:
            answers = self._admin.fence_producers(fencings, timeout_s=PATIENCE_S)
            for name, ended in answers.items():
                if ended.code != 0:
                    log.warning("%s may stay open until its timeout: %s", name, ended.word)
            unanswered = [name for name, ended in answers.items() if ended.code is None]
            fencings = self._still_open(unanswered) if time.monotonic() < until else ()

    def _open(self) -> list[str]:
        until = time.monotonic() + PATIENCE_S / 2
        while True:
            listing = self._admin.list_transactions([TransactionState.ONGOING])
            if not listing.unseen:
                return list(listing.entries)
            if time.monotonic() > until:
                # They can only hold readers back: nobody can commit them.
                log.warning("open transactions may have been left: %s", "; ".join(map(str, listing.unseen)))
                return list(listing.entries)
            time.sleep(_PAUSE_S)

    def _end(self, transactions: Sequence[SinkTransaction], *, commit: bool) -> Mapping[str, Ended]:
        endings = [_ending(each, commit=commit) for each in transactions]
        return self._admin.end_transactions(endings, timeout_s=PATIENCE_S)

    def _abort(self, endings: Sequence[Ending]) -> None:
        if not endings:
            return
        for name, ended in self._admin.end_transactions(endings, timeout_s=PATIENCE_S).items():
            if (ended.code and ended.code not in GONE) or ended.code is None:
                log.warning("%s may stay open until its timeout: %s", name, ended.word)

    def _lost(self, gone: Sequence[SinkTransaction], answers: Mapping[str, Ended]) -> MissingTransactions:
        """Return which of these were not committed: by their coordinators, or by the answers."""
        described = describe_ids(self._admin, [each.transactional_id for each in gone])
        lost, reasons = [], set()
        for each in gone:
            found = described[each.transactional_id]
            if isinstance(found, Described):
                if _is_committed(each, found):
                    continue
                now = f"it is {found.state.value} with epoch {found.producer_epoch} now"
            elif found.obstacle is Obstacle.UNKNOWN:
                now = "its coordinator does not know its id any more"
            else:
                raise SinkError(f"{each.transactional_id}: {found.text}. Its batch stays prepared")
            lost.append(each)
            reasons.add(f"{answers[each.transactional_id].word}: {now}")
        return MissingTransactions(tuple(lost), "; ".join(sorted(reasons)))


def _unseen(described: Described | NotDescribed) -> bool:
    return isinstance(described, NotDescribed) and described.obstacle is Obstacle.UNSEEN


def _unlike(wanted: SinkTransaction, described: Described | NotDescribed) -> str:
    if isinstance(described, NotDescribed):
        return described.text
    if described.state is not TransactionState.ONGOING:
        return f"it is {described.state.value}, not open"
    if (described.producer_id, described.producer_epoch) != (wanted.producer_id, wanted.producer_epoch):
        return "another producer has its id"
    if described.started_ms != wanted.started_ms:
        return "it was ended and begun again"
    return ""


def _too_old(wanted: SinkTransaction, open_s: float) -> str:
    timeout_s = wanted.timeout_ms / 1000
    left_s = timeout_s - open_s
    if left_s > max(_MARGIN_S, _MARGIN_OF_TIMEOUT * timeout_s):
        return ""
    return f"after {open_s:.1f} s too little is left of its timeout of {timeout_s:g} s"


def _is_committed(wanted: SinkTransaction, described: Described) -> bool:
    # Transaction protocol 2 raises the epoch with each end (KIP-890).
    epochs = (wanted.producer_epoch, wanted.producer_epoch + 1)
    same = described.producer_id == wanted.producer_id and described.producer_epoch in epochs
    return same and described.state in _COMMITTED


def _ending(transaction: SinkTransaction, *, commit: bool) -> Ending:
    return Ending(
        transaction.transactional_id, transaction.producer_id, transaction.producer_epoch, commit=commit
    )


def _refuse_unanswered(answers: Mapping[str, Ended]) -> None:
    for name, ended in answers.items():
        if ended.code == 0 or ended.code in GONE:
            continue
        remedy = ""
        if ended.code == _FORBIDDEN:
            remedy = f": {grant_command('User:…', 'WRITE', f'--transactional-id {name}')}"
        raise SinkError(
            f"{name} could not be committed: {ended.word}{remedy}. Its batch stays prepared; start the query "
            "again before the transaction's timeout, and it is finished first"
        )
