"""The lease of a worker that executes an action, with a token.

A row is begun once, and its worker writes results into the row with the token. A worker that was paused past
its lease can no longer write, neither to the row nor to Kafka, once another worker has settled the row.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import DatabaseError, connection
from django.db.models import Q
from django.db.models.functions import Now

from dashboard.actions import store as action_store
from dashboard.models import Action
from dashboard.runtime import loop
from dashboard.runtime.write_transactions import WriteTransaction
from dashboard.transactions import attributions
from dashboard.transactions.attributions import WrittenRecord

#: The validity of a lease without an extension.
LIVES = timedelta(seconds=15)
_EVERY_S = 1.0
_EXECUTING = Q(state=Action.State.EXECUTING)


class ActionLeaseLost(Exception):
    """This worker no longer holds the row: it must do and write nothing more."""


def begin_action(number: int, token: str, *, now_ms: int) -> Action | None:
    """Begin an action; return None if it was begun or settled, or has another token."""
    row = action_store.find_action(number)
    unbegun = _EXECUTING & Q(lease_token=token, started_ms=None, lease_until__gt=Now())
    if (
        row is None
        or not token
        or not action_store.update_action(row, unbegun, started_ms=now_ms, lease_until=Now() + LIVES)
    ):
        return None
    row.refresh_from_db()
    return row


def prolong_lease(row: Action) -> None:
    """Extend the lease; raises `ActionLeaseLost` if another worker has it or it has expired."""
    live = Action.objects.filter(_EXECUTING, pk=row.pk, lease_token=row.lease_token, lease_until__gt=Now())
    if not live.update(lease_until=Now() + LIVES):
        raise ActionLeaseLost(f"action {row.pk} was settled by somebody else")


def write_results(
    row: Action, results: Sequence[dict[str, Any]], records: Sequence[WrittenRecord] = ()
) -> None:
    """Write the results so far; raises `ActionLeaseLost`.

    `records` are the records that coordinators wrote for the last subject's requests. The transitions and
    counters derived from them are saved in the same transaction.
    """
    live = _EXECUTING & Q(lease_token=row.lease_token, lease_until__gt=Now())
    also = partial(_attribute, row, records) if records else None
    if not action_store.update_action(row, live, also=also, results=list(results), lease_until=Now() + LIVES):
        raise ActionLeaseLost(f"action {row.pk} was settled by somebody else")


def _attribute(row: Action, records: Sequence[WrittenRecord], write: WriteTransaction) -> None:
    attributions.save_attributions(row, records, rev=write.next_rev(), now_ms=loop.now_ms())
    write.notify_after_commit("transitions")


def take_over(row: Action, token: str) -> bool:
    """Take a row whose lease has expired; return whether it had."""
    dead = _EXECUTING & Q(lease_token=row.lease_token, lease_until__lte=Now())
    taken = action_store.update_action(row, dead, lease_token=token, lease_until=Now() + LIVES)
    row.refresh_from_db()
    return taken


def end_action(row: Action, state: Action.State, results: Sequence[dict[str, Any]], **fields: Any) -> None:
    """End an action; raises `ActionLeaseLost`."""
    held = _EXECUTING & Q(lease_token=row.lease_token)
    if not action_store.update_action(
        row, held, state=state, results=list(results), lease_until=None, **fields
    ):
        raise ActionLeaseLost(f"action {row.pk} was settled by somebody else")


@contextmanager
def lease_renewal(row: Action) -> Iterator[None]:
    """Extend a lease every second inside the context, on a thread with its own connection."""
    over = threading.Event()
    keeper = threading.Thread(target=_keep, args=(row, over), name=f"action-{row.pk}", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()


def _keep(row: Action, over: threading.Event) -> None:
    try:
        while not over.wait(_EVERY_S):
            try:
                prolong_lease(row)
            except DatabaseError:
                # The execution notices at its next step; until then the lease is still valid.
                connection.close()
    except ActionLeaseLost:
        return
    finally:
        connection.close()
