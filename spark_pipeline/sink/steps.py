"""The steps of a batch, in their order, as an observer gets them."""

from __future__ import annotations

from collections.abc import Callable

from fenceline.compat import StrEnum


class Step(StrEnum):
    """How far a batch is. What happens to it after a crash depends on one of them alone: PREPARED."""

    #: The sink is opened: what drivers before have left is ended. Once in each run of the query.
    OPENED = "opened"
    #: Its decisions are read; no task has run.
    BEFORE_WRITE = "before_write"
    #: Every task has flushed its records, and the driver has the transactions.
    WRITTEN = "written"
    #: Their coordinators report them open, as their tasks left them.
    VERIFIED = "verified"
    #: The decision to commit is durable: whatever happens, the batch will be committed.
    PREPARED = "prepared"
    #: The first of several transactions is committed.
    ENDING = "ending"
    #: All of them are.
    ENDED = "ended"
    #: The ledger has it: the batch is skipped if Spark runs it again.
    DONE = "done"


#: Is called with a step and the batch's id.
Observer = Callable[[Step, int], None]


def load_observer(named_one: Observer | str | None) -> Observer | None:
    """Return an observer that is given, or named as `package.module:function`."""
    if not isinstance(named_one, str):
        return named_one
    from importlib import import_module

    module, _, name = named_one.partition(":")
    found: Callable[[Step, int], None] = getattr(import_module(module), name)
    return found
