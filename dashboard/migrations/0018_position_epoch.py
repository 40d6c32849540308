"""Keeps the leader epoch of a saved position: of those saved before none is known."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("dashboard", "0017_recent_in_transaction"),
    ]

    operations = [
        migrations.AddField(
            model_name="position",
            name="epoch",
            field=models.IntegerField(db_default=-1, default=-1),
        ),
    ]
