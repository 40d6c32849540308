"""The steps of a batch in their order, for an observer."""

from __future__ import annotations

from collections.abc import Callable

from fenceline.compat import StrEnum


class Step(StrEnum):
    """The progress of a batch. Only PREPARED decides what happens to it after a crash."""

    #: The sink is open: transactions of earlier drivers are ended. Once per run of the query.
    OPENED = "opened"
    #: The batch's decisions are read; no task has run.
    BEFORE_WRITE = "before_write"
    #: Every task has flushed its records, and the driver knows the transactions.
    WRITTEN = "written"
    #: Coordinators report the transactions open, as their tasks left them.
    VERIFIED = "verified"
    #: The decision to commit is durable: the batch will be committed in any case.
    PREPARED = "prepared"
    #: The first of several transactions is committed.
    ENDING = "ending"
    #: All transactions are committed.
    ENDED = "ended"
    #: The ledger records the outcome: if Spark repeats the batch, the sink skips it.
    DONE = "done"


#: Called with a step and the batch's id.
Observer = Callable[[Step, int], None]


def load_observer(named_one: Observer | str | None) -> Observer | None:
    """Return a given observer, or import one named as `package.module:function`."""
    if not isinstance(named_one, str):
        return named_one
    from importlib import import_module

    module, _, name = named_one.partition(":")
    found: Callable[[Step, int], None] = getattr(import_module(module), name)
    return found
