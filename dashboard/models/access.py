"""Users' identities and cluster limits, API tokens, the audit log, and operators' actions: plans and their
outcomes, kept for ever.
"""

from datetime import datetime

from django.contrib.auth.models import User
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models import Q

from dashboard.models.collecting import OfCluster, choices_of
from fenceline.plans.plan import Act


class ExternalIdentity(models.Model):
    """A user's identity at an identity provider: its subject there, never reused for another person."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="external_identity")
    #: The name of the provider in the configuration.
    provider = models.CharField(max_length=32)
    #: Its issuer; "" for a proxy, and for users without a sign-in since issuers are stored.
    issuer = models.CharField(max_length=255, default="")
    subject = models.CharField(max_length=255)

    class Meta:
        verbose_name = "external identity"
        verbose_name_plural = "external identities"
        constraints = [
            models.UniqueConstraint(fields=["provider", "issuer", "subject"], name="identity_of_issuer")
        ]

    def __str__(self) -> str:
        return f"{self.user} at {self.provider}"


class ClusterLimit(models.Model):
    """A user's roles by cluster; a user without a row has one role on all clusters."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="cluster_limit")
    #: Grants for `dashboard.system.access.granted_roles`; they may name unknown clusters.
    clusters = models.JSONField(default=list)

    class Meta:
        verbose_name = "cluster limit"

    def __str__(self) -> str:
        return f"{self.user}: {', '.join(self.clusters)}"


class Token(models.Model):
    """A bearer token of the API. Only its digest is stored."""

    class Role(models.TextChoices):
        VIEWER = "viewer"
        OPERATOR = "operator"
        ADMIN = "admin"
        INGEST = "ingest"

    name = models.CharField(max_length=64, unique=True)
    role = models.CharField(max_length=8, choices=Role)
    #: SHA-256 of the token, in hexadecimal.
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    #: Grants, as in `ClusterLimit`; empty for all clusters.
    clusters = models.JSONField(default=list)
    #: None: it does not expire.
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    #: Written at most once a minute; None if never used.
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = "API token"

    def __str__(self) -> str:
        return f"{self.name} ({self.role})"

    def state(self, now: datetime) -> str:
        """Return the token's state: "active", "expired" or "revoked"."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"


class AuditEntry(models.Model):
    """A change or a sign-in. It has no foreign keys, so that it outlives deleted rows."""

    class Event(models.TextChoices):
        """A stable identifier, and its text on a page."""

        CHANNEL_CREATED = "channel.created", "channel added"
        CHANNEL_CHANGED = "channel.changed", "channel changed"
        CHANNEL_ENABLED = "channel.enabled", "channel enabled"
        CHANNEL_DISABLED = "channel.disabled", "channel disabled"
        CHANNEL_SECRET_ROTATED = "channel.secret_rotated", "channel secret rotated"
        CHANNEL_OLD_SECRET_ENDED = "channel.old_secret_ended", "old channel secret ended"
        CHANNEL_DELETED = "channel.deleted", "channel deleted"
        SILENCE_CREATED = "silence.created", "silence added"
        SILENCE_ENDED = "silence.ended", "silence ended"
        INCIDENT_ACKNOWLEDGED = "incident.acknowledged", "incident acknowledged"
        INCIDENT_NOTED = "incident.noted", "note added to an incident"
        PAYLOAD_SHOWN = "payload.shown", "key and value of a record shown"
        SCENE_PLAYED = "scene.played", "scene played in the sandbox"
        TOKEN_CREATED = "token.created", "token created"
        TOKEN_CHANGED = "token.changed", "token changed"
        TOKEN_REVOKED = "token.revoked", "token revoked"
        TOKEN_DELETED = "token.deleted", "token deleted"
        USER_CREATED = "user.created", "user added"
        USER_CHANGED = "user.changed", "user changed"
        USER_DELETED = "user.deleted", "user deleted"
        PASSWORD_CHANGED = "password.changed", "password changed"
        ROLE_CREATED = "role.created", "role added"
        ROLE_CHANGED = "role.changed", "role changed"
        ROLE_DELETED = "role.deleted", "role deleted"
        SIGN_IN_SUCCEEDED = "sign_in.succeeded", "signed in"
        SIGN_IN_FAILED = "sign_in.failed", "sign-in failed"
        SIGN_IN_LOCKED = "sign_in.locked", "sign-in locked"
        SIGN_IN_UNLOCKED = "sign_in.unlocked", "sign-in unlocked"
        SIGNED_OUT = "signed_out", "signed out"

    class Via(models.TextChoices):
        PAGE = "page"
        ADMIN = "admin"
        API = "api"
        COMMAND = "command"
        #: Fenceline itself, without a request: a Celery worker.
        SYSTEM = "system"

    at = models.DateTimeField(auto_now_add=True)
    event = models.CharField(max_length=32)
    #: A user's name, "token NAME" or "manage.py NAME"; "" if unknown.
    actor = models.CharField(max_length=200, blank=True)
    via = models.CharField(max_length=8, choices=Via)
    #: The client's address; None without a request, or behind a Unix socket.
    address = models.GenericIPAddressField(null=True)
    #: "channel", "silence", "incident", "scene", "token", "user", "role", "address" or "".
    subject_kind = models.CharField(max_length=16, blank=True)
    subject_id = models.BigIntegerField(null=True)
    #: Its name at that time; "" for a sign-in with an unknown name.
    subject_name = models.CharField(max_length=200, blank=True)
    #: {field: [before, after], …}; for a secret only `redact.HIDDEN`.
    changes = models.JSONField(default=dict, encoder=DjangoJSONEncoder)
    #: Failed sign-ins of one name and address within an hour of `at` are one row.
    count = models.IntegerField(default=1)

    class Meta:
        verbose_name = "audit entry"
        verbose_name_plural = "audit entries"
        default_permissions = ("view",)
        indexes = [
            models.Index(fields=["event", "id"], name="audit_of_event"),
            models.Index(fields=["event", "at"], name="audit_old"),
            models.Index(fields=["actor", "id"], name="audit_of_actor"),
        ]

    def __str__(self) -> str:
        return f"{self.event} {self.subject_name}".rstrip()


#: Events that are pruned; changes are kept.
SIGN_INS = (
    AuditEntry.Event.SIGN_IN_SUCCEEDED,
    AuditEntry.Event.SIGN_IN_FAILED,
    AuditEntry.Event.SIGN_IN_LOCKED,
    AuditEntry.Event.SIGNED_OUT,
)


class Action(OfCluster):
    """One plan, from its preview to its follow-up: the audit row."""

    class State(models.TextChoices):
        """The state of an action; an expired plan stays `planned`: see `expires_ms`."""

        PLANNED = "planned"
        EXECUTING = "executing"
        #: Every subject without a refusal is done.
        DONE = "done"
        #: Some subjects are done, others stale or failed.
        PARTLY = "partly"
        #: Nothing was done, because every subject had changed since the plan.
        STALE = "stale"
        #: Nothing was done, because the cluster refused or was unreachable.
        FAILED = "failed"
        #: The worker died, and the effect cannot be observed.
        UNKNOWN = "unknown"

    act = models.CharField(max_length=16, choices=choices_of(Act))
    state = models.CharField(max_length=9, choices=State, default=State.PLANNED)
    #: `fenceline.plans.plan.Plan.as_json()`.
    plan = models.JSONField()
    #: `Plan.digest`.
    digest = models.CharField(max_length=64)
    #: The subjects, one per line, for a search.
    subjects = models.TextField()
    forced = models.BooleanField(default=False)
    #: The user or token that requested the plan, and the interface: "page", "admin" or "api".
    planned_by = models.CharField(max_length=150)
    planned_via = models.CharField(max_length=8)
    planned_at = models.DateTimeField(auto_now_add=True)
    expires_ms = models.BigIntegerField()
    #: The user or token that executed it, the reason, and the time of the confirmation.
    executed_by = models.CharField(max_length=150, blank=True)
    reason = models.TextField(blank=True)
    confirmed_at = models.DateTimeField(null=True)
    #: The end of the executing worker's lease, by the database's clock; extended every second.
    lease_until = models.DateTimeField(null=True)
    #: The holder of the lease: the worker's message names it, and a process that settles the action replaces
    #: it.
    lease_token = models.CharField(max_length=32, blank=True)
    #: When a worker began; then no message starts the action again.
    started_ms = models.BigIntegerField(null=True)
    ended_ms = models.BigIntegerField(null=True)
    #: [{"subject", "outcome": done|stale|failed|unknown|skipped, "words", "parts": [{"where", "code",
    #: "words"}, …], "records": [`attributions.WrittenRecord`, …], "started_ms", "ended_ms"}, …] in the order
    #: of the plan's subjects.
    results = models.JSONField(default=list)
    #: Observations after the action: [{"words", "at_ms", "kind", …}, …], oldest first.
    follow_up = models.JSONField(default=list)
    #: The end of these observations; None after it, and before the action is done.
    followed_until_ms = models.BigIntegerField(null=True)
    rev = models.BigIntegerField(default=0)

    class Meta:
        verbose_name = "action"
        permissions = [
            ("fence_producer", "Can fence producers"),
            ("abort_marker", "Can write abort markers for hanging transactions"),
            ("finish_batch", "Can finish prepared batches"),
            ("roll_back_batch", "Can roll back batches that are not prepared"),
            ("commit_flink", "Can commit what a Flink checkpoint decided"),
            ("force_action", "Can do what is refused, with a reason"),
        ]
        indexes = [
            models.Index(fields=["cluster", "planned_at"], name="action_planned"),
            models.Index(fields=["lease_until"], condition=Q(state="executing"), name="action_executing"),
            models.Index(
                fields=["followed_until_ms"],
                condition=~Q(followed_until_ms=None),
                name="action_followed",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.act} #{self.pk}"


class ActionRecord(OfCluster):
    """A record of `__transaction_state` that a coordinator wrote for an action, by the coordinator's answer.

    It joins transitions with their actions, whichever of the two is stored first
    (`dashboard.transactions.attributions`).
    """

    action = models.ForeignKey(Action, models.CASCADE)
    #: As in Transaction.
    key = models.BinaryField(max_length=32)
    producer_id = models.BigIntegerField()
    producer_epoch = models.IntegerField()
    #: `facts.State`: Empty, PrepareCommit or PrepareAbort.
    state = models.CharField(max_length=16)
    #: Whether a fence (InitProducerId) caused it; else an EndTxn did.
    fence = models.BooleanField()

    class Meta:
        verbose_name = "action record"
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "key", "producer_id", "producer_epoch", "state"],
                name="action_record_identity",
            )
        ]

    def __str__(self) -> str:
        return f"{self.state} of action {self.action_id}"
