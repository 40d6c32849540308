"""Writes to the database of the server under test and rings its doorbell; one JSON command per line on stdin.

A process of its own: the tests' own Django looks at another database.
"""

from __future__ import annotations

import json
import sys

import django

django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.db.models import F  # noqa: E402

from dashboard import live  # noqa: E402
from dashboard.models import Cluster, Collector, GapRecord, Query, Transaction  # noqa: E402
from fenceline.facts import State  # noqa: E402
from tests.web import happened, held, seed, streams  # noqa: E402

#: Far enough ahead that no page grows stale during a test; the server's clock is the tests'.
_AHEAD_MS = 600_000


def user(name: str, password: str) -> None:
    """Make an admin."""
    User.objects.create_superuser(name, password=password)


def reset(kind: str, ids: int = 300) -> None:
    """Fill the tables anew: "none", "new", "calm", "watched", "busy", "held", "queries", "blind"."""
    Cluster.objects.all().delete()
    if kind == "none":
        return
    prod = seed.cluster()
    if kind == "calm":
        seed.seen(prod)
        seed.transaction(prod, "only", State.COMPLETE_COMMIT, partitions={})
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
        for raw in (*seed.NASTY, seed.LONG):
            held.offset(held.group(prod, raw))
            held.episode(prod, raw)
    if kind == "queries":
        seed.busy(prod, 20)
        held.busy(prod)
        streams.busy(prod)
    if kind == "watched":
        seed.seen(prod)
        held.watched(prod)
        streams.watched(prod)
    if kind == "blind":
        seed.collector(prod, seen_through_ms=seed.now_ms() - 95_000, error="connection refused")
        seed.gap(prod)
    else:
        seen(_AHEAD_MS)


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
        live.ring("prod", "transactions", rev, [name])


def add(name: str) -> None:
    """Let a new transactional id appear."""
    Cluster.objects.filter(name="prod").update(rev=F("rev") + 1)
    prod = Cluster.objects.get(name="prod")
    seed.transaction(prod, name, rev=prod.rev)
    live.ring("prod", "transactions", prod.rev, [name])


def fence(name: str) -> None:
    """Let another producer take an id over; what was saved rings by itself."""
    happened.takeover(Cluster.objects.get(name="prod"), name.encode())


def pin(topic: str, kind: str = "partitions") -> None:
    """Let a transaction hold a partition of a topic back, and ring."""
    Cluster.objects.filter(name="prod").update(rev=F("rev") + 1)
    prod = Cluster.objects.get(name="prod")
    held.pinned(prod, topic)
    live.ring("prod", kind, prod.rev)


def commit_batch(name: str, number: int) -> None:
    """Let a query finish another batch, and ring."""
    Cluster.objects.filter(name="prod").update(rev=F("rev") + 1)
    prod = Cluster.objects.get(name="prod")
    row = Query.objects.get(name=name)
    streams.batch(row, number, started_ms=seed.now_ms())
    Query.objects.filter(pk=row.pk).update(planned=number, finished=number, rev=prod.rev)
    live.ring("prod", "queries", prod.rev, [row.ident])


def find(name: str) -> None:
    """Let a finding appear."""
    Cluster.objects.filter(name="prod").update(rev=F("rev") + 1)
    prod = Cluster.objects.get(name="prod")
    seed.finding(prod, f"transaction:{name}", "critical")
    live.ring("prod", "findings", prod.rev)


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
    live.ring("prod", kind, 1)


def main() -> None:
    """Run commands until stdin ends."""
    commands = {
        f.__name__: f
        for f in (user, reset, seen, change, add, fence, pin, commit_batch, find, lose, recover, ring)
    }
    for line in sys.stdin:
        name, arguments, options = json.loads(line)
        commands[name](*arguments, **options)  # type: ignore[operator]
        print("done", flush=True)


if __name__ == "__main__":
    main()
