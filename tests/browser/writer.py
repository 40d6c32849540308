"""Writes to the database of the server under test and rings its doorbell; one JSON command per line on stdin.

A process of its own: the tests' own Django looks at another database.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import django

django.setup()

from django.contrib.auth.models import Group, User  # noqa: E402
from django.db import transaction  # noqa: E402
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
from tests.web import (  # noqa: E402
    busy_streams,
    happened,
    held,
    over_time,
    planned,
    recorded,
    seed,
    streams,
    voiced,
)

#: Far enough ahead that no page grows stale during a test; the server's clock is the tests'.
_AHEAD_MS = 600_000


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
    "alerts" or "blind"."""
    _clear()
    if kind == "none":
        return
    prod = seed.cluster()
    if kind == "calm":
        seed.seen(prod)
        seed.transaction(prod, "only", TransactionState.COMPLETE_COMMIT, partitions={})
    if kind == "busy":
        seed.busy(prod, ids)
        happened.day(prod)
        seed.seen(seed.cluster("staging"))
        for raw in (*seed.NASTY, seed.LONG):
            seed.transaction(prod, raw)
    if kind == "held":
        seed.busy(prod, 40)
        happened.day(prod)
        held.busy(prod)
        over_time.hour(prod)
        for raw in (*seed.NASTY, seed.LONG):
            held.offset(held.group(prod, raw))
            held.episode(prod, raw)
    _alerts(prod, kind)
    if kind in _FILLED:
        _FILLED[kind](prod)
    if kind == "watched":
        seed.seen(prod)
        held.watched(prod)
        streams.watched(prod)
        planned.watched(prod)
    if kind == "blind":
        seed.collector(prod, seen_through_ms=seed.now_ms() - 95_000, error="connection refused")
        seed.gap(prod)
    else:
        seen(_AHEAD_MS)


def _clear() -> None:
    for each in (Cluster, Channel, Silence, AuditEntry):
        each.objects.all().delete()


def _alerts(prod: Cluster, kind: str) -> None:
    if kind in ("alerts", "watched"):
        voiced.watched(prod)
    if kind == "alerts":
        seed.busy(prod, 20)
        voiced.busy(prod)


def _queries(prod: Cluster) -> None:
    seed.busy(prod, 20)
    held.busy(prod)
    busy_streams.busy(prod)
    over_time.hour(prod)


def _acting(prod: Cluster) -> None:
    """Let there be something to act on, and actions in every state."""
    seed.busy(prod, 40)
    happened.day(prod)
    held.busy(prod)
    busy_streams.busy(prod)
    planned.busy(prod)
    recorded.busy()


_FILLED = {"queries": _queries, "acting": _acting}


def seen(ahead_ms: int) -> None:
    """Let every collector have seen through `ahead_ms` from now, and ring."""
    Collector.objects.update(seen_through_ms=seed.now_ms() + ahead_ms)
    ring("collectors")


def change(name: str, state: str, *, silent: bool = False) -> None:
    """Give a transaction another state, as a flush does."""
    Cluster.objects.filter(name="prod").update(rev=F("rev") + 1)
    rev = Cluster.objects.get(name="prod").rev
    moved = Transaction.objects.filter(transactional_id=name)
    for row in moved:
        seed.counted(row.cluster, row.state, -1)
        seed.counted(row.cluster, state, 1)
    moved.update(state=state, rev=rev, updated_ms=seed.now_ms())
    if not silent:
        _ring("transactions", rev, [name])


def add(name: str) -> None:
    """Let a new transactional id appear."""
    Cluster.objects.filter(name="prod").update(rev=F("rev") + 1)
    prod = Cluster.objects.get(name="prod")
    seed.transaction(prod, name, rev=prod.rev)
    _ring("transactions", prod.rev, [name])


def fence(name: str) -> None:
    """Let another producer take an id over; what was saved rings by itself."""
    happened.takeover(Cluster.objects.get(name="prod"), name.encode())


def pin(topic: str, kind: str = "partitions") -> None:
    """Let a transaction hold a partition of a topic back, and ring."""
    Cluster.objects.filter(name="prod").update(rev=F("rev") + 1)
    prod = Cluster.objects.get(name="prod")
    held.pinned(prod, topic)
    _ring(kind, prod.rev)


def commit_batch(name: str, number: int) -> None:
    """Let a query finish another batch, and ring."""
    Cluster.objects.filter(name="prod").update(rev=F("rev") + 1)
    prod = Cluster.objects.get(name="prod")
    row = Query.objects.get(name=name)
    streams.batch(row, number, started_ms=seed.now_ms())
    Query.objects.filter(pk=row.pk).update(planned=number, finished=number, rev=prod.rev)
    _ring("queries", prod.rev, [row.ident])


def plan(name: str) -> None:
    """Let somebody plan to fence an id; what is kept rings by itself."""
    planned.kept(planned.plan(planned.fence(name)))


def expire() -> None:
    """Let the time of every plan be over, without a ring."""
    Action.objects.update(expires_ms=seed.now_ms() - 1)


def act(state: str, **fields: object) -> None:
    """Let the newest action come to another state, as a worker does."""
    row = Action.objects.select_related("cluster").order_by("-pk")[0]
    told = {"executed_by": "ada", "reason": "ticket 4411", "confirmed_at": now()} | fields
    if state == "done":
        at_ms = seed.now_ms()
        subject = row.subjects.split("\n")[0]
        told |= {"results": [planned.result(subject, "done", at_ms)], "ended_ms": at_ms}
    action_store.update_action(row, state=state, **told)


def follow() -> None:
    """Let what came of the newest action be seen."""
    row = Action.objects.select_related("cluster").order_by("-pk")[0]
    action_store.update_action(row, follow_up=planned.follow_up(seed.now_ms()))


def find(name: str) -> None:
    """Let a finding appear."""
    Cluster.objects.filter(name="prod").update(rev=F("rev") + 1)
    prod = Cluster.objects.get(name="prod")
    seed.finding(prod, f"transaction:{name}", "critical")
    _ring("findings", prod.rev)


def fire(name: str) -> None:
    """Let an alert fire, and ring."""
    Cluster.objects.filter(name="prod").update(rev=F("rev") + 1)
    prod = Cluster.objects.get(name="prod")
    voiced.alert(prod, f"transaction:{name}", rev=prod.rev)
    _ring("alerts", prod.rev)


def lose() -> None:
    """Let the cluster go dark."""
    Cluster.objects.filter(name="prod").update(rev=F("rev") + 1)
    seed.gap(Cluster.objects.get(name="prod"))
    ring("collectors")


def recover() -> None:
    """Let sight come back."""
    GapRecord.objects.update(until_ms=seed.now_ms())
    Cluster.objects.filter(name="prod").update(rev=F("rev") + 1)
    ring("collectors")


def ring(kind: str) -> None:
    """Ring for prod."""
    _ring(kind, 1)


def _ring(kind: str, rev: int, ids: Sequence[str] = ()) -> None:
    """Ring for prod once what was changed is committed."""
    transaction.on_commit(lambda: notify.notify_change("prod", kind, rev, ids))


def main() -> None:
    """Run commands until stdin ends."""
    commands = {
        f.__name__: f
        for f in (
            user, without_role, reset, seen, change, add, fence, pin, commit_batch, plan, expire, act, follow,
            find, fire, lose, recover, ring,
        )
    }  # fmt: skip
    for line in sys.stdin:
        name, arguments, options = json.loads(line)
        # As a flush does: nobody reads a new revision with old rows, or asks for them before they are there.
        with transaction.atomic():
            commands[name](*arguments, **options)  # type: ignore[operator]
        print("done", flush=True)


if __name__ == "__main__":
    main()
