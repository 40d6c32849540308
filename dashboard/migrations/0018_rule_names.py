"""Give rows of renamed rules their new names, and the fingerprints that follow from these.

What is firing goes on: its alert keeps its row, and the messages that hold it still do. Matchers stay as they
were written (`fenceline.rule_names` resolves them), and so does what was sent.
"""

import hashlib
import json

from django.db import migrations

from fenceline.rule_names import RENAMED

_BATCH = 500


def rename(apps, schema_editor):
    finding, alert, delivery = (
        apps.get_model("dashboard", name) for name in ("FindingRecord", "Alert", "Delivery")
    )
    _rename(finding, ["rule", "fingerprint"])
    moved = _rename(alert, ["rule", "fingerprint", "labels"])
    rows = [row for row in delivery.objects.only("held") if moved and _is_moved(row, moved)]
    delivery.objects.bulk_update(rows, ["held"], batch_size=_BATCH)


def _rename(model, columns):
    """Return the new fingerprints by the former ones, both in hexadecimal."""
    rows = list(model.objects.filter(rule__in=RENAMED).select_related("cluster"))
    moved = {}
    for row in rows:
        row.rule = RENAMED[row.rule]
        named = json.dumps([row.cluster.name, row.rule, row.subject])
        former, row.fingerprint = bytes(row.fingerprint).hex(), hashlib.sha256(named.encode()).digest()
        moved[former] = row.fingerprint.hex()
        if "labels" in columns:
            row.labels = {**row.labels, "alertname": row.rule}
    model.objects.bulk_update(rows, columns, batch_size=_BATCH)
    return moved


def _is_moved(row, moved):
    """Give a message's alerts their new fingerprints; return whether any has one."""
    former = row.held
    row.held = {name: [moved.get(each, each) for each in values] for name, values in former.items()}
    return row.held != former


class Migration(migrations.Migration):
    dependencies = [
        ("dashboard", "0017_audit"),
    ]

    operations = [
        migrations.RunPython(rename, migrations.RunPython.noop),
    ]
