"""Assign stored rows to the configured applications after each change of `[[owners]]`.

Collectors assign only new records; other ids and their history would keep the former name. Older figures by
application stay as they were counted.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from hashlib import sha256

from django.db.models import F, Model

from dashboard.models import Cluster, Recovery, Transaction, TransitionRecord
from dashboard.runtime.sql import in_portions
from dashboard.runtime.write_transactions import retry_write
from fenceline.kafka.applications import application_of
from fenceline.owners import Owner

_NAMED: Sequence[type[Model]] = (Transaction, TransitionRecord, Recovery)
#: Maximum rows of one step, so that other writes wait only briefly.
_STEP = 5_000


def rename_applications(owners: Sequence[Owner]) -> int:
    """Update the applications of all ids if `[[owners]]` has changed; return the number of changed rows."""
    naming = _digest(owners)
    changed = 0
    for cluster in Cluster.objects.exclude(naming=naming):
        changed += sum(_rename(model, cluster) for model in _NAMED)
        Cluster.objects.filter(pk=cluster.pk).update(naming=naming, rev=F("rev") + 1)
    return changed


def _digest(owners: Sequence[Owner]) -> str:
    if not any(owner.application for owner in owners):
        return ""
    return sha256(json.dumps([[owner.match, owner.application] for owner in owners]).encode()).hexdigest()


def _rename(model: type[Model], cluster: Cluster) -> int:
    changed, place = 0, 0
    rows = model._default_manager.filter(cluster=cluster).order_by("pk")
    columns = rows.values_list("pk", "transactional_id", "application")
    while step := list(columns.filter(pk__gt=place)[:_STEP]):
        place = step[-1][0]
        changed += _write(model, step)
    return changed


@retry_write
def _write(model: type[Model], step: Sequence[tuple[int, str, str]]) -> int:
    renamed: dict[str, list[int]] = defaultdict(list)
    for pk, name, application in step:
        if (now := application_of(name).application) != application:
            renamed[now].append(pk)
    return sum(
        rows.update(application=application)
        for application, keys in renamed.items()
        for rows in in_portions(model._default_manager.all(), "pk", keys)
    )
