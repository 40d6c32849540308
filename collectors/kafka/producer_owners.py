"""Whose producer ids are: asked of coordinators seldom, since it costs them a walk through all their ids."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from fenceline.kafka.partitions import ProducerOwners
from fenceline.kafka.reconcile import Described, NotDescribed, Obstacle
from transaction_admin.api import AdminUnavailable, TransactionAdmin
from transaction_admin.reads import ClusterReads

#: What nobody has is asked for again no more often than this, and a small share of the time.
_AGAIN_S, _AGAIN_SHARE = 1.0, 20
#: A verdict of hanging takes two answers.
_TWICE = 2


class ProducerOwnerLookup:
    """Remembers whose producer ids are: one is one id's for ever, until that goes on under another."""

    def __init__(self, reads: ClusterReads, admin: TransactionAdmin) -> None:
        self._reads, self._admin = reads, admin
        self._ids: dict[int, str] = {}
        #: Producer ids without an owner: how often that was the answer, and when to ask again (monotonic).
        self._nobodys: dict[int, tuple[int, float]] = {}
        #: Why coordinators could not be asked the last time; "" where they could.
        self.trouble = ""

    def find_owners(
        self,
        producer_ids: Collection[int],
        ours: Callable[[Collection[int]], Mapping[int, str]],
        *,
        may_hide: bool,
    ) -> ProducerOwners:
        """Return whose producer ids are, and what coordinators report now of their ids.

        `ours` returns the ids of our own rows that have producer ids: coordinators leave out those that we
        may not describe.
        """
        self.trouble = ""
        self._nobodys = {each: asked for each, asked in self._nobodys.items() if each in producer_ids}
        whole = self._find([each for each in producer_ids if each not in self._ids], ours)
        ids = {each: self._ids[each] for each in producer_ids if each in self._ids}
        descriptions = self._describe(set(ids.values()))
        for producer_id, name in ids.items():
            if _is_over(producer_id, descriptions.get(name)):
                del self._ids[producer_id]
        return ProducerOwners(ids, descriptions, whole, may_hide)

    def _find(
        self, producer_ids: Collection[int], ours: Callable[[Collection[int]], Mapping[int, str]]
    ) -> bool:
        """Look up the ids of producer ids; return whether all coordinators have answered."""
        begun = time.monotonic()
        due = [each for each in producer_ids if self._nobodys.get(each, (0, 0.0))[1] <= begun]
        if not due:
            return True
        try:
            found = dict(self._reads.transactional_ids(due))
        except AdminUnavailable as blind:
            self.trouble = str(blind)
            return False
        found |= ours([each for each in due if each not in found])
        self._ids |= found
        again = time.monotonic() + max(_AGAIN_S, _AGAIN_SHARE * (time.monotonic() - begun))
        for each in due:
            times = self._nobodys.pop(each, (0, 0.0))[0] + 1
            if each not in found:
                self._nobodys[each] = times, again if times >= _TWICE else 0.0
        return True

    def _describe(self, names: Collection[str]) -> Mapping[str, Described | NotDescribed]:
        if not names:
            return {}
        try:
            descriptions = self._admin.describe_transactions(names, listed=True)
        except AdminUnavailable as blind:
            self.trouble = str(blind)
            return {}
        for each in descriptions.values():
            if isinstance(each, NotDescribed) and each.obstacle is Obstacle.UNSEEN:
                self.trouble = each.text
        return descriptions


def _is_over(producer_id: int, described: Described | NotDescribed | None) -> bool:
    """Whether an id does not have a producer id any more: it is gone, or goes on under another one."""
    if isinstance(described, Described):
        return described.producer_id != producer_id
    return described is not None and described.obstacle is Obstacle.UNKNOWN
