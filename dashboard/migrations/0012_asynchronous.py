"""Whether a query's listener has reported asynchronous progress tracking."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """One more column of queries."""

    dependencies = [("dashboard", "0011_verbose_names")]

    operations = [
        migrations.AddField(model_name="query", name="asynchronous", field=models.BooleanField(null=True)),
    ]
