"""Resources of an action: connections to one cluster, its queries' ledgers, and a check before each write."""

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
from transaction_admin.kafka_python import TransactionAdmin
from transaction_admin.kafka_reads import ClusterReads


class NoRoot(Exception):
    """A checkpoint is below no configured root."""


@dataclass
class ClusterConnections:
    """Connections to one cluster, opened at their first use.

    Opening raises `AdminUnavailable`, `CannotTranslate` or `inspect.UnknownCluster`.
    """

    cluster: str
    #: Called before each write with the request's name; raises if the lease is lost.
    before_write: Callable[[str], None] = field(default=lambda request: None)
    #: The last request sent, or file written, for the current subject; "" before the first.
    asked: str = ""
    _opened: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def inspector(self) -> inspect.ClusterInspector:
        """The connections with which a plan is checked and executed."""
        return self._opened.enter_context(inspect.connect_cluster(self.cluster, loop.now_ms()))

    @property
    def admin(self) -> TransactionAdmin:
        """The client that asks coordinators."""
        return self.inspector.admin

    @property
    def reads(self) -> ClusterReads:
        """The client that asks partition leaders."""
        return self.inspector.reads

    def describe_id(self, transactional_id: str) -> Described | NotDescribed:
        """Return the coordinator's description of a known id."""
        return self.admin.describe_transactions([transactional_id], listed=True)[transactional_id]

    def open_ledger(self, root: str, checkpoint: str) -> LedgerFolder:
        """Open the ledger of a checkpoint by its URL, with the options of its root.

        Raises `NoRoot` for an unconfigured root, `SinkError` for a store that cannot be opened.
        """
        for root_config in settings.FENCELINE.checkpoints:
            if (root_config.root, root_config.cluster) == (root, self.cluster):
                return open_ledger(checkpoint, root_config.options)
        raise NoRoot(f"[[checkpoints]] names no root {root} of cluster {self.cluster} any more")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()
