"""Find the owners of producer ids by asking coordinators rarely: each search covers all of their ids."""

import time
from collections.abc import Callable, Collection, Mapping

from fenceline.kafka.partitions import ProducerOwners
from fenceline.kafka.reconcile import Described, NotDescribed, Obstacle
from transaction_admin.api import AdminUnavailable
from transaction_admin.kafka_python import TransactionAdmin
from transaction_admin.kafka_reads import ClusterReads

#: Pauses before asking again about ids without an owner, and the share of time for that.
_AGAIN_S, _AGAIN_SHARE = 1.0, 20
#: A verdict of hanging needs two answers.
_TWICE = 2


class ProducerOwnerLookup:
    """Remembers the owners of producer ids: an owner is permanent until its id gets another producer id."""

    def __init__(self, reads: ClusterReads, admin: TransactionAdmin) -> None:
        self._reads, self._admin = reads, admin
        self._ids: dict[int, str] = {}
        #: Producer ids without an owner: the number of such answers, and the instant of the next question
        #: (monotonic).
        self._nobodys: dict[int, tuple[int, float]] = {}
        #: Why coordinators could not be asked the last time; "" if they could.
        self.trouble = ""

    def find_owners(
        self,
        producer_ids: Collection[int],
        ours: Callable[[Collection[int]], Mapping[int, str]],
        *,
        may_hide: bool,
    ) -> ProducerOwners:
        """Return the owners of producer ids, and the coordinators' present reports of their ids.

        `ours` returns the ids of our own rows that have producer ids: coordinators omit ids that we may not
        describe.
        """
        self.trouble = ""
        self._nobodys = {
            producer_id: asked for producer_id, asked in self._nobodys.items() if producer_id in producer_ids
        }
        is_whole = self._find(
            [producer_id for producer_id in producer_ids if producer_id not in self._ids], ours
        )
        ids = {
            producer_id: self._ids[producer_id] for producer_id in producer_ids if producer_id in self._ids
        }
        descriptions = self._describe(set(ids.values()))
        for producer_id, name in ids.items():
            if _is_over(producer_id, descriptions.get(name)):
                del self._ids[producer_id]
        return ProducerOwners(ids, descriptions, is_whole, may_hide)

    def _find(
        self, producer_ids: Collection[int], ours: Callable[[Collection[int]], Mapping[int, str]]
    ) -> bool:
        """Look up the owners of producer ids; return whether all coordinators have answered."""
        begun = time.monotonic()
        due = [
            producer_id
            for producer_id in producer_ids
            if self._nobodys.get(producer_id, (0, 0.0))[1] <= begun
        ]
        if not due:
            return True
        try:
            owners = dict(self._reads.transactional_ids(due))
        except AdminUnavailable as blind:
            self.trouble = str(blind)
            return False
        owners |= ours([producer_id for producer_id in due if producer_id not in owners])
        self._ids |= owners
        retry_s = time.monotonic() + max(_AGAIN_S, _AGAIN_SHARE * (time.monotonic() - begun))
        for producer_id in due:
            times = self._nobodys.pop(producer_id, (0, 0.0))[0] + 1
            if producer_id not in owners:
                self._nobodys[producer_id] = times, retry_s if times >= _TWICE else 0.0
        return True

    def _describe(self, names: Collection[str]) -> Mapping[str, Described | NotDescribed]:
        if not names:
            return {}
        try:
            descriptions = self._admin.describe_transactions(names, listed=True)
        except AdminUnavailable as blind:
            self.trouble = str(blind)
            return {}
        for description in descriptions.values():
            if isinstance(description, NotDescribed) and description.obstacle is Obstacle.UNSEEN:
                self.trouble = description.text
        return descriptions


def _is_over(producer_id: int, described: Described | NotDescribed | None) -> bool:
    """Whether an id no longer has a producer id: the id is gone, or has a newer one."""
    if isinstance(described, Described):
        return described.producer_id != producer_id
    return described is not None and described.obstacle is Obstacle.UNKNOWN
