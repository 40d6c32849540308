"""Keeps who wrote the newest records of a partition, by the headers of their batches."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("dashboard", "0020_coordinator_moves"),
    ]

    operations = [
        migrations.AddField(
            model_name="replicalook",
            name="writers",
            field=models.JSONField(null=True),
        ),
    ]
