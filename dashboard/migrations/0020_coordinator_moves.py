"""Adds the moves of coordinators: ids whose coordinator changed from one broker to another."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("dashboard", "0019_view_payload"),
    ]

    operations = [
        migrations.CreateModel(
            name="CoordinatorMoveRecord",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("rev", models.BigIntegerField()),
                ("before_ms", models.BigIntegerField()),
                ("seen_ms", models.BigIntegerField()),
                ("from_broker", models.IntegerField()),
                ("to_broker", models.IntegerField()),
                ("partitions", models.JSONField()),
                ("ids", models.BigIntegerField()),
                ("size", models.BigIntegerField(null=True)),
                ("answered_ms", models.BigIntegerField(null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        db_index=False, on_delete=django.db.models.deletion.CASCADE, to="dashboard.cluster"
                    ),
                ),
            ],
            options={
                "verbose_name": "coordinator move",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "seen_ms", "from_broker", "to_broker"), name="coordinator_move"
                    )
                ],
            },
        ),
    ]
