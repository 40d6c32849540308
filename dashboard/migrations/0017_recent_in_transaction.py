"""Moves the last transitions of known ids from their table into the rows of the ids.

The table keeps those of forgotten ids.
"""

from django.db import migrations, models

_DELETE_KNOWN = """
    DELETE FROM dashboard_recent
    WHERE (cluster_id, key) IN (SELECT cluster_id, key FROM dashboard_transaction)
"""
_MOVE = """
    UPDATE dashboard_transaction SET recent = (
        SELECT packed FROM dashboard_recent r
        WHERE r.cluster_id = dashboard_transaction.cluster_id AND r.key = dashboard_transaction.key
    )
    WHERE (cluster_id, key) IN (SELECT cluster_id, key FROM dashboard_recent)
"""
_MOVE_BACK = """
    INSERT INTO dashboard_recent (cluster_id, key, packed)
    SELECT cluster_id, key, recent FROM dashboard_transaction WHERE length(recent) > 0
"""


class Migration(migrations.Migration):
    dependencies = [
        ("dashboard", "0016_revision_owner"),
    ]

    operations = [
        migrations.AddField(
            model_name="transaction",
            name="recent",
            field=models.BinaryField(db_default=b"", default=b""),
        ),
        migrations.RunSQL([_MOVE, _DELETE_KNOWN], [_DELETE_KNOWN, _MOVE_BACK]),
    ]
