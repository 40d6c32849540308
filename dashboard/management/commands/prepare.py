"""`manage.py prepare`: prepare the database for this version and this configuration, once per start.

FENCELINE_ADMIN_PASSWORD makes the user admin if there is none, and never changes a password: a password
changed on a page stays. FENCELINE_INGEST_TOKEN is the token of Spark's listeners. FENCELINE_DEMO_RECEIVER is
the page of the demo's receiver, set only by `make up`.
"""

import os

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connection
from django.db.migrations.loader import MigrationLoader

from dashboard.alerts import channels, deliver, validation
from dashboard.engines.store import remove_unnamed_apis, remove_unrooted_jobs
from dashboard.models import Token
from dashboard.runtime import collector_store, loop
from dashboard.runtime.collector_names import CHECKPOINTS, ENGINES, FLINK
from dashboard.runtime.environment import SecretError, read_secret
from dashboard.system import access
from dashboard.system.readiness import newer_schema_reason, older_schema_reason
from dashboard.system.tokens import token_digest
from dashboard.transactions.naming_store import rename_applications
from fenceline.grouping import grouped

#: The name of the token from the environment.
_BROUGHT = "environment"
_ADMIN = "admin"


class Command(BaseCommand):
    """Migrate, store the configured clusters, and make the admin if a password is given."""

    help = "Migrate the database, note the configured clusters and set the admin's password."

    def handle(self, *args: object, **options: object) -> None:
        """Refuse a newer version's database; everything else may run repeatedly."""
        try:
            _refuse_other_schema()
            call_command("migrate", verbosity=0, interactive=False)
            collector_store.sync_clusters(settings.FENCELINE.clusters)
            config = settings.FENCELINE
            rooted = {
                CHECKPOINTS: {root.cluster for root in config.checkpoints},
                FLINK: {root.cluster for root in config.flink_checkpoints},
                ENGINES: {engine.cluster for engine in config.engines},
            }
            collector_store.keep_collectors(
                settings.SHARDS, config.limits, rooted, loop.now_ms(), audited=bool(config.audit_url)
            )
            remove_unrooted_jobs(grouped((root.cluster, root.root) for root in config.flink_checkpoints))
            remove_unnamed_apis(grouped((engine.cluster, engine.url) for engine in config.engines))
            rename_applications(config.owners)
            access.ensure_roles()
            self._ensure_admin(read_secret(os.environ, "FENCELINE_ADMIN_PASSWORD"))
            _ensure_ingest_token(read_secret(os.environ, "FENCELINE_INGEST_TOKEN"))
            self._sync_demo_channel(read_secret(os.environ, "FENCELINE_DEMO_RECEIVER_SECRET"))
        except SecretError as error:
            raise CommandError(str(error)) from error
        except DatabaseError as error:
            raise CommandError(f"The database cannot be used: {error}. Check DATABASE_URL.") from error

    def _ensure_admin(self, password: str) -> None:
        """Make the user admin once; print what to do if the environment has another password."""
        users = get_user_model().objects
        admin = users.filter(username=_ADMIN).first()
        if admin is None and password:
            _check_password(password)
            users.create_superuser(_ADMIN, password=password)
        elif admin is not None and password and not admin.check_password(password):
            self.stdout.write(
                f"The user {_ADMIN} has another password than FENCELINE_ADMIN_PASSWORD, and keeps it. "
                f"To change it: manage.py changepassword {_ADMIN}"
            )
        elif not users.exists():
            self.stdout.write(
                "There is no user, so nobody can sign in: set FENCELINE_ADMIN_PASSWORD, or run "
                "manage.py createsuperuser"
            )

    def _sync_demo_channel(self, secret: str) -> None:
        """Print why the demo has no channel: it is optional, so its failure stops no start."""
        try:
            channels.sync_demo_channel(settings.DEMO_RECEIVER, secret)
        except (validation.Unfit, deliver.CannotSend) as error:
            self.stdout.write(f"The channel {channels.DEMO_NAME} cannot be kept: {error}")


def _check_password(password: str) -> None:
    try:
        access.check_password(password, _ADMIN)
    except ValueError as error:
        raise CommandError(f"FENCELINE_ADMIN_PASSWORD cannot be used. {error}") from error


def _refuse_other_schema() -> None:
    """Refuse a newer version's database, or one from before 0.1.0."""
    loader = MigrationLoader(connection)
    database = f"The database {connection.settings_dict['NAME']} was"
    if reason := newer_schema_reason(loader):
        raise CommandError(f"{database} {reason}. Upgrade, or use another database.")
    if reason := older_schema_reason(loader):
        raise CommandError(f"{database} {reason}.")


def _ensure_ingest_token(token: str) -> None:
    """Store the environment's token; a revoked one stays revoked until another is given."""
    if (
        token
        and not Token.objects.filter(
            name=_BROUGHT, role=Token.Role.INGEST, digest=token_digest(token)
        ).exists()
    ):
        values = {
            "role": Token.Role.INGEST,
            "digest": token_digest(token),
            "revoked_at": None,
            "last_used_at": None,
        }
        Token.objects.update_or_create(name=_BROUGHT, defaults=values)
