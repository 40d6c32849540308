"""Keeps the state stores of groups of Kafka Streams."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("dashboard", "0021_batch_writers"),
    ]

    operations = [
        migrations.AddField(
            model_name="group",
            name="stores",
            field=models.TextField(blank=True, db_default=""),
        ),
    ]
