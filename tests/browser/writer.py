"""Writes to the database of the server under test and rings its doorbell; one JSON command per line on stdin.

A process of its own: the tests' own Django looks at another database.
"""

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import django

django.setup()

from django.contrib.auth.models import Group, User  # noqa: E402
from django.db import connection, transaction  # noqa: E402
from django.db.models import F  # noqa: E402
from django.utils.timezone import now  # noqa: E402

from dashboard.actions import store as action_store  # noqa: E402
from dashboard.models import (  # noqa: E402
    Action,
    AuditEntry,
    Channel,
    Cluster,
    Collector,
    GapRecord,
    Query,
    Silence,
    Transaction,
)
from dashboard.runtime import notify  # noqa: E402
from dashboard.system import access  # noqa: E402
from fenceline.facts import TransactionState  # noqa: E402
from tests.web import factories, scenarios, series  # noqa: E402

#: Far enough ahead that no page grows stale during a test; the server's clock is the tests'.
_AHEAD_MS = 600_000
#: After so long, tables that nobody has changed are filled anew, too: what is in them grows older.
_FRESH_S = 20


def user(name: str, password: str, role: str = "") -> None:
    """Make an admin, or somebody with a role."""
    if not role:
        User.objects.create_superuser(name, password=password)
        return
    access.ensure_roles()
    made = User.objects.create_user(name, password=password)
    made.groups.set([Group.objects.get(name=role)])


def without_role(name: str) -> None:
    """Take the role of a user, as an admin does."""
    User.objects.get(username=name).groups.clear()


def reset(kind: str, ids: int = 300) -> None:
    """Fill the tables anew: "none", "new", "calm", "watched", "busy", "held", "queries", "acting",
    "flow", "large flow", "incidents", "crowd", "alerts" or "blind"."""
    _clear()
    if kind == "none":
        return
    prod = factories.cluster()
    if kind == "calm":
        factories.tail_collectors(prod)
        factories.transaction(prod, "only", TransactionState.COMPLETE_COMMIT, partitions={})
    if kind == "busy":
        scenarios.busy_transactions(prod, ids)
        scenarios.day_of_history(prod)
        factories.tail_collectors(factories.cluster("staging"))
        for raw in (*factories.HOSTILE_IDS, factories.LONG_ID):
            factories.transaction(prod, raw)
    if kind == "held":
        scenarios.busy_transactions(prod, 40)
        scenarios.day_of_history(prod)
        scenarios.busy_partitions(prod)
        for raw in (*factories.HOSTILE_IDS, factories.LONG_ID):
            factories.group_offset(factories.group(prod, raw))
            factories.recovery(prod, raw)
    _alerts(prod, kind)
    if kind in _FILLED:
        _FILLED[kind](prod)
    if kind == "watched":
        factories.tail_collectors(prod)
        factories.collectors(prod, "partitions", "groups", "recoveries", "checkpoints", "actions")
    if kind == "blind":
        factories.collector(prod, seen_through_ms=factories.now_ms() - 95_000, error="connection refused")
        factories.gap(prod)
    else:
        seen(_AHEAD_MS)


def _clear() -> None:
    for each in (Cluster, Channel, Silence, AuditEntry):
        each.objects.all().delete()


def _alerts(prod: Cluster, kind: str) -> None:
    if kind in ("alerts", "watched"):
        factories.collectors(prod, "alerts")
    if kind == "alerts":
        scenarios.busy_transactions(prod, 20)
        scenarios.busy_alerts(prod)


def _queries(prod: Cluster) -> None:
    scenarios.busy_transactions(prod, 20)
    scenarios.busy_partitions(prod)
    scenarios.busy_queries(prod)
    scenarios.busy_flink_jobs(prod)


def _acting(prod: Cluster) -> None:
    """Let there be something to act on, and actions in every state."""
    scenarios.busy_transactions(prod, 40)
    scenarios.day_of_history(prod)
    scenarios.busy_partitions(prod)
    scenarios.busy_queries(prod)
    scenarios.busy_actions(prod)
    scenarios.busy_audit_log()


_FILLED = {
    "queries": _queries,
    "acting": _acting,
    "flow": scenarios.busy_flow,
    "large flow": scenarios.large_flow,
    "incidents": scenarios.open_incidents,
    "crowd": scenarios.thirty_incidents,
}


def hour() -> None:
    """Add figures of an hour, for charts over time: they take as long as all else."""
    series.hour(Cluster.objects.get(name="prod"))


def seen(ahead_ms: int) -> None:
    """Let every collector have seen through `ahead_ms` from now, and ring."""
    Collector.objects.update(seen_through_ms=factories.now_ms() + ahead_ms)
    ring("collectors")


def change(name: str, state: str, *, silent: bool = False) -> None:
    """Give a transaction another state, as a flush does."""
    Cluster.objects.filter(name="prod").update(rev=F("rev") + 1)
    rev = Cluster.objects.get(name="prod").rev
    moved = Transaction.objects.filter(transactional_id=name)
    for row in moved:
        factories.state_count(row.cluster, row.state, -1)
        factories.state_count(row.cluster, state, 1)
    moved.update(state=state, rev=rev, updated_ms=factories.now_ms())
    if not silent:
        _ring("transactions", rev, [name])


def add(name: str) -> None:
    """Let a new transactional id appear."""
    Cluster.objects.filter(name="prod").update(rev=F("rev") + 1)
    prod = Cluster.objects.get(name="prod")
    factories.transaction(prod, name, rev=prod.rev)
    _ring("transactions", prod.rev, [name])


def fence(name: str) -> None:
    """Let another producer take an id over; what was saved rings by itself."""
    factories.takeover_history(Cluster.objects.get(name="prod"), name.encode())


def pin(topic: str, kind: str = "partitions") -> None:
    """Let a transaction hold a partition of a topic back, and ring."""
    Cluster.objects.filter(name="prod").update(rev=F("rev") + 1)
    prod = Cluster.objects.get(name="prod")
    factories.lso_blocker(prod, topic)
    _ring(kind, prod.rev)


def commit_batch(name: str, number: int) -> None:
    """Let a query finish another batch, and ring."""
    Cluster.objects.filter(name="prod").update(rev=F("rev") + 1)
    prod = Cluster.objects.get(name="prod")
    row = Query.objects.get(name=name)
    factories.batch(row, number, started_ms=factories.now_ms())
    Query.objects.filter(pk=row.pk).update(planned=number, finished=number, rev=prod.rev)
    _ring("queries", prod.rev, [row.ident])


def plan(name: str) -> None:
    """Let somebody plan to fence an id; what is kept rings by itself."""
    factories.planned_action(factories.plan(factories.fence_subject(name)))


def expire() -> None:
    """Let the time of every plan be over, without a ring."""
    Action.objects.update(expires_ms=factories.now_ms() - 1)


def act(state: str, **fields: object) -> None:
    """Let the newest action come to another state, as a worker does."""
    row = Action.objects.select_related("cluster").order_by("-pk")[0]
    told = {"executed_by": "ada", "reason": "ticket 4411", "confirmed_at": now()} | fields
    if state == "done":
        at_ms = factories.now_ms()
        subject = row.subjects.split("\n")[0]
        told |= {"results": [factories.action_result(subject, "done", at_ms)], "ended_ms": at_ms}
    action_store.update_action(row, state=state, **told)


def follow() -> None:
    """Let what came of the newest action be seen."""
    row = Action.objects.select_related("cluster").order_by("-pk")[0]
    action_store.update_action(row, follow_up=factories.action_follow_up(factories.now_ms()))


def find(name: str) -> None:
    """Let a finding appear."""
    Cluster.objects.filter(name="prod").update(rev=F("rev") + 1)
    prod = Cluster.objects.get(name="prod")
    factories.finding(prod, f"transaction:{name}", "critical")
    _ring("findings", prod.rev)


def fire(name: str) -> None:
    """Let an alert fire, and ring."""
    Cluster.objects.filter(name="prod").update(rev=F("rev") + 1)
    prod = Cluster.objects.get(name="prod")
    factories.alert(prod, f"transaction:{name}", rev=prod.rev)
    _ring("alerts", prod.rev)


def lose() -> None:
    """Let the cluster go dark."""
    Cluster.objects.filter(name="prod").update(rev=F("rev") + 1)
    factories.gap(Cluster.objects.get(name="prod"))
    ring("collectors")


def recover() -> None:
    """Let sight come back."""
    GapRecord.objects.update(until_ms=factories.now_ms())
    Cluster.objects.filter(name="prod").update(rev=F("rev") + 1)
    ring("collectors")


def ring(kind: str) -> None:
    """Ring for prod."""
    _ring(kind, 1)


def _ring(kind: str, rev: int, ids: Sequence[str] = ()) -> None:
    """Ring for prod once what was changed is committed."""
    transaction.on_commit(lambda: notify.notify_change("prod", kind, rev, ids))


def data_version() -> int:
    """Return a number that others change by what they commit; what this process commits leaves it."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA data_version")
        return int(cursor.fetchone()[0])


class Filled:
    """Tables as a reset has left them; until somebody changes them, the same reset has nothing to do."""

    def __init__(self, command: Any) -> None:
        self._command, self._until = command, time.monotonic() + _FRESH_S
        self._version = data_version()

    def serves(self, command: Any) -> bool:
        """Whether the tables are as this command would fill them."""
        is_fresh = time.monotonic() < self._until and data_version() == self._version
        return is_fresh and bool(command == self._command)


def main() -> None:
    """Run commands until stdin ends."""
    commands = {
        f.__name__: f
        for f in (
            user, without_role, reset, hour, seen, change, add, fence, pin, commit_batch, plan, expire, act,
            follow, find, fire, lose, recover, ring,
        )
    }  # fmt: skip
    filled: Filled | None = None
    for line in sys.stdin:
        name, arguments, options = command = json.loads(line)
        # As a flush does: nobody reads a new revision with old rows, or asks for them before they are there.
        with transaction.atomic():
            if not filled or not filled.serves(command):
                commands[name](*arguments, **options)  # type: ignore[operator]
                filled = Filled(command) if name == "reset" else None
        print("done", flush=True)


if __name__ == "__main__":
    main()
