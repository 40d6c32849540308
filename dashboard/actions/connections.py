"""What an act works with: connections to one cluster, its queries' ledgers, and a word before each write."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

from django.conf import settings

from dashboard.actions import inspect
from dashboard.runtime import loop
from fenceline.kafka.reconcile import Described, NotDescribed
from spark_pipeline.sink.ledger import LedgerFolder, open_ledger
from transaction_admin.api import TransactionAdmin
from transaction_admin.reads import ClusterReads


class NoRoot(Exception):
    """A checkpoint lies under no root that is configured."""


@dataclass
class ClusterConnections:
    """Connections to one cluster, opened when something is first asked.

    Then it raises `AdminUnavailable`, `CannotTranslate` and `inspect.UnknownCluster` where there are none.
    """

    cluster: str
    #: Is called before each write, with the request's name; it raises where nobody may write any more.
    before_write: Callable[[str], None] = field(default=lambda request: None)
    #: The last request that was sent, or the file that was written, for the subject in hand; "" before any.
    asked: str = ""
    _opened: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def inspector(self) -> inspect.ClusterInspector:
        """The connections with which a plan is checked and executed."""
        return self._opened.enter_context(inspect.connect_cluster(self.cluster, loop.now_ms()))

    @property
    def admin(self) -> TransactionAdmin:
        """The coordinators' side."""
        return self.inspector.admin

    @property
    def reads(self) -> ClusterReads:
        """The partitions' side."""
        return self.inspector.reads

    def describe_id(self, transactional_id: str) -> Described | NotDescribed:
        """Return the coordinator's description of an id that was observed before."""
        return self.admin.describe_transactions([transactional_id], listed=True)[transactional_id]

    def open_ledger(self, root: str, checkpoint: str) -> LedgerFolder:
        """Open the ledger of a checkpoint, by its URL, with the options of its root.

        Raises `NoRoot` for one that is configured no more, `SinkError` for a store that nobody can open.
        """
        for each in settings.FENCELINE.checkpoints:
            if (each.root, each.cluster) == (root, self.cluster):
                return open_ledger(checkpoint, each.options)
        raise NoRoot(f"[[checkpoints]] names no root {root} of cluster {self.cluster} any more")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()
