from typing import Any

from django.db import migrations


def delete_permission(apps: Any, editor: Any) -> None:
    """Delete the permission from roles, users and the list of permissions: Django leaves it there."""
    permissions = apps.get_model("auth", "Permission").objects.using(editor.connection.alias)
    permissions.filter(content_type__app_label="dashboard", codename="view_state_keys").delete()


class Migration(migrations.Migration):
    dependencies = [
        ("dashboard", "0014_aborted_commits"),
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="query",
            options={
                "verbose_name": "streaming query",
                "verbose_name_plural": "streaming queries",
            },
        ),
        migrations.RunPython(delete_permission, migrations.RunPython.noop),
    ]
