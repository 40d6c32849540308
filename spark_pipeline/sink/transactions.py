"""The sink's requests to coordinators: describe, verify, commit, abort, and fence leftover transactions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from fenceline.facts import COMMITTED_STATES, TransactionState
from fenceline.kafka.reconcile import Described, NotDescribed, Obstacle
from fenceline.spark.records import SinkTransaction
from spark_pipeline.sink import names
from spark_pipeline.sink.errors import SinkError
from spark_pipeline.sink.patience import PATIENCE_S, Outage, ask_patiently
from transaction_admin.api import Ended, Ending, Fencing, grant_command
from transaction_admin.kafka_python import TransactionAdmin

log = logging.getLogger(__name__)

#: Seconds of repeating a fencing before the sink checks that it still owns the ledger.
_FENCING_S = 2.0
#: Remaining time that a transaction needs to be prepared: EndTxn must arrive before its timeout.
_MARGIN_S, _MARGIN_OF_TIMEOUT = 1.0, 0.02

_INVALID_PRODUCER_EPOCH, _INVALID_TXN_STATE, _INVALID_PRODUCER_ID_MAPPING = 47, 48, 49
_CONCURRENT_TRANSACTIONS = 51
_FORBIDDEN, _PRODUCER_FENCED, _UNKNOWN_ID = 53, 90, 105
#: Errors of a transaction that its timeout, or a new owner of its id, has ended.
GONE = frozenset(
    (_INVALID_PRODUCER_EPOCH, _INVALID_TXN_STATE, _INVALID_PRODUCER_ID_MAPPING, _PRODUCER_FENCED, _UNKNOWN_ID)
)


class DriverLease(NamedTuple):
    """A driver's lease: the producer id and epoch from initialising the ledger's lease id."""

    producer_id: int
    producer_epoch: int


def describe_ids(
    admin: TransactionAdmin, ids: Collection[str], patience_s: float = PATIENCE_S
) -> Mapping[str, Described | NotDescribed]:
    """Return the coordinators' descriptions of ids; for a while, ask silent coordinators again."""
    outage = Outage(patience_s)
    answers: dict[str, Described | NotDescribed] = {}
    waiting = list(ids)
    while waiting:
        ask = partial(admin.describe_transactions, waiting, listed=True)
        answers.update(ask_patiently(ask, patience_s))
        waiting = [name for name in waiting if _unseen(answers[name])]
        if outage.is_over:
            break
        if waiting:
            outage.wait(f"{waiting[0]}: {answers[waiting[0]]}")
    return answers


class Transactions:
    """The sink's transactions on one cluster, whose brokers may be unreachable for `patience_s`."""

    def __init__(self, admin: TransactionAdmin, patience_s: float = PATIENCE_S) -> None:
        self._admin, self._patience_s = admin, patience_s

    def take_lease(self, stem: str, timeout_ms: int) -> DriverLease:
        """Initialise a ledger's lease anew: tasks of earlier drivers then detect the takeover."""
        name = names.lease_id(stem)
        # On a cluster without any transaction, the look-up creates `__transaction_state`.
        self._describe([name])
        outage = Outage(self._patience_s)
        while True:
            fencings = [Fencing(name, timeout_ms)]
            answer = self._admin.fence_producers(fencings, timeout_s=self._patience_s)[name]
            if answer.producer_id is not None and answer.producer_epoch is not None:
                return DriverLease(answer.producer_id, answer.producer_epoch)
            if answer.code is not None or outage.is_over:
                raise SinkError(f"{name} could not be initialised: {answer.word}{_remedy(name, answer)}")
            outage.wait(answer.word)

    def verify(self, transactions: Sequence[SinkTransaction], open_s: float) -> dict[str, str]:
        """Return the ids, with a reason, that changed since their task left them, or whose timeout is near.

        `open_s` is the maximum age of the oldest transaction by our own clock: coordinators' clocks are not
        compared with ours.
        """
        answers = self._describe([transaction.transactional_id for transaction in transactions])
        bad = {}
        for transaction in transactions:
            reason = _unlike(transaction, answers[transaction.transactional_id]) or _too_old(
                transaction, open_s
            )
            if reason:
                bad[transaction.transactional_id] = reason
        return bad

    def commit(
        self, transactions: Sequence[SinkTransaction], on_first: Callable[[], None] | None = None
    ) -> tuple[tuple[SinkTransaction, ...], str]:
        """Commit a prepared batch's transactions; return those that had ended, and why. Repeating it is safe.

        With `on_first`, the first transaction is committed alone, and `on_first` is called before the others.
        Raises `SinkError` if coordinators do not answer: the batch stays prepared.
        """
        is_partial = len(transactions) > 1 and on_first is not None
        answers = dict(self._end(transactions[:1] if is_partial else transactions, commit=True))
        if is_partial and on_first is not None:
            on_first()
            answers.update(self._end(transactions[1:], commit=True))
        _refuse_unanswered(answers)
        gone = [
            transaction for transaction in transactions if answers[transaction.transactional_id].code in GONE
        ]
        return self._lost(gone, answers)

    def abort(self, transactions: Collection[SinkTransaction]) -> None:
        """Abort transactions of a batch with a decision to abort; ended transactions are no error."""
        if not transactions:
            return
        for name, ended in self._end(transactions, commit=False).items():
            if (ended.code and ended.code not in GONE) or ended.code is None:
                log.warning("%s may stay open until its timeout: %s", name, ended.word)

    def fence_leftovers(
        self, stem: str, which: Callable[[names.Parts], bool], is_newest: Callable[[], bool]
    ) -> list[str]:
        """Fence the open transactions of this stem's ledger that `which` selects; return their ids.

        It calls `is_newest` after describing them. A later driver opens transactions only after its claim:
        either the claim is found, or the described transactions are not that driver's.

        They are fenced, not only aborted: a living task keeps its epoch through an abort by EndTxn, and its
        next send would open the transaction again (KIP-890).
        """
        parsed = {name: names.parse_id(name) for name in self._open()}
        ids = [name for name, parts in parsed.items() if parts and parts.stem == stem and which(parts)]
        fencings = self._still_open(ids)
        if not fencings or not is_newest():
            return []
        self._fence(fencings, is_newest)
        return [fencing.transactional_id for fencing in fencings]

    def _describe(self, ids: Collection[str]) -> Mapping[str, Described | NotDescribed]:
        return describe_ids(self._admin, ids, self._patience_s)

    def _still_open(self, ids: Collection[str]) -> list[Fencing]:
        return [
            Fencing(name, described.timeout_ms, described.producer_id, described.producer_epoch)
            for name, described in self._describe(ids).items()
            if isinstance(described, Described) and described.state is TransactionState.ONGOING
        ]

    def _fence(self, fencings: Collection[Fencing], is_newest: Callable[[], bool]) -> None:
        """Fence ids; repeat it for unanswered ids that are still open: no driver owns them."""
        outage = Outage(self._patience_s)
        while fencings:
            answers = self._admin.fence_producers(fencings, timeout_s=_FENCING_S)
            for name, ended in answers.items():
                if ended.code not in (None, 0, *GONE):
                    log.warning("%s may stay open until its timeout: %s", name, ended.word)
            unsure = [
                name for name, ended in answers.items() if ended.code in (None, _CONCURRENT_TRANSACTIONS)
            ]
            if not unsure or outage.is_over:
                return
            outage.wait(answers[unsure[0]].word)
            fencings = self._still_open(unsure)
            if not is_newest():
                return

    def _open(self) -> list[str]:
        outage = Outage(self._patience_s)
        ask = partial(self._admin.list_transactions, [TransactionState.ONGOING])
        while True:
            listing = ask_patiently(ask, self._patience_s)
            if not listing.unseen:
                return list(listing.entries)
            unseen = "; ".join(map(str, listing.unseen))
            if outage.is_over:
                # These transactions only block readers: no process can commit them.
                log.warning("open transactions may have been left: %s", unseen)
                return list(listing.entries)
            outage.wait(unseen)

    def _end(self, transactions: Collection[SinkTransaction], *, commit: bool) -> Mapping[str, Ended]:
        endings = [
            Ending(
                transaction.transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                commit=commit,
            )
            for transaction in transactions
        ]
        return self._admin.end_transactions(endings, timeout_s=self._patience_s)

    def _lost(
        self, gone: Sequence[SinkTransaction], answers: Mapping[str, Ended]
    ) -> tuple[tuple[SinkTransaction, ...], str]:
        """Return the uncommitted transactions, by coordinators' descriptions or by the answers."""
        described = self._describe([transaction.transactional_id for transaction in gone])
        lost, reasons = [], set()
        for transaction in gone:
            state = described[transaction.transactional_id]
            if isinstance(state, Described):
                if _is_committed(transaction, state):
                    continue
                now = f"it is {state.state.value} with epoch {state.producer_epoch} now"
            elif state.obstacle is Obstacle.UNKNOWN:
                now = "its coordinator does not know its id any more"
            else:
                raise SinkError(f"{transaction.transactional_id}: {state.text}. Its batch stays prepared")
            lost.append(transaction)
            reasons.add(f"{answers[transaction.transactional_id].word}: {now}")
        return tuple(lost), "; ".join(sorted(reasons))


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
    return same and described.state in COMMITTED_STATES


def _refuse_unanswered(answers: Mapping[str, Ended]) -> None:
    for name, ended in answers.items():
        if ended.code == 0 or ended.code in GONE:
            continue
        raise SinkError(
            f"{name} could not be committed: {ended.word}{_remedy(name, ended)}. Its batch stays prepared; "
            "start the query again before the transaction's timeout, and it is finished first"
        )


def _remedy(name: str, ended: Ended) -> str:
    if ended.code != _FORBIDDEN:
        return ""
    return f": {grant_command('User:…', 'WRITE', f'--transactional-id {name}')}"
