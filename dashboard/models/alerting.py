"""Findings over time, and notifications: alerts, changes (the outbox), channels, deliveries, silences."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from dashboard.models.collecting import Cluster, OfCluster
from dashboard.models.scope import ManagerOfAlert, ScopedManager
from fenceline.facts import Severity

_SEVERITIES = [(severity.value, severity.value) for severity in Severity]


class Alert(OfCluster):
    """One finding over time: same rule, cluster and subject, same row, however often it opens and closes."""

    class State(models.TextChoices):
        PENDING = "pending"
        FIRING = "firing"
        RESOLVED = "resolved"

    #: As `FindingRecord.fingerprint`.
    fingerprint = models.BinaryField(max_length=32)
    rule = models.CharField(max_length=64)
    subject = models.TextField()
    severity = models.CharField(max_length=8, choices=_SEVERITIES)
    #: What silences and routes match: cluster, alertname (the rule), severity, subject,
    #: subject_kind, application, team, …; and what only people read: summary, evidence, next_step, runbook.
    labels = models.JSONField(default=dict)
    annotations = models.JSONField(default=dict)
    affected = models.JSONField(default=list)
    state = models.CharField(max_length=8, choices=State)
    #: When its finding began, by the rule; when it began to fire; when it was resolved. None until then.
    since_ms = models.BigIntegerField()
    fired_ms = models.BigIntegerField(null=True)
    resolved_ms = models.BigIntegerField(null=True)
    #: When it was found last, as far as that was noted: at its changes, and when it was missed first.
    seen_ms = models.BigIntegerField()
    #: Complete ticks in a row that found it while pending, or that did not while firing.
    ticks = models.IntegerField(default=0)
    #: The finding it follows now, by its number.
    finding = models.BigIntegerField(default=0)
    #: Since when only its groups' waits delay its notification, while it fires.
    loud_ms = models.BigIntegerField(null=True)
    #: Instants of its last openings, for damping: [ms, …]; since when it is held as flapping.
    openings = models.JSONField(default=list)
    flapping_ms = models.BigIntegerField(null=True)
    #: Why nobody is notified of it now: [[kind, what by its number or "", words], …];
    #: empty while somebody is.
    quiet = models.JSONField(default=list)
    #: Who was notified that it fires: [[channel id, delivery id, when in ms], …].
    told = models.JSONField(default=list)
    rev = models.BigIntegerField(default=0)

    class Meta:
        verbose_name = "alert"
        verbose_name_plural = "alerts"
        constraints = [models.UniqueConstraint(fields=["fingerprint"], name="alert_fingerprint")]
        indexes = [
            models.Index(fields=["cluster", "seen_ms"], name="alert_seen"),
            models.Index(fields=["cluster"], condition=~Q(state="resolved"), name="alert_active"),
        ]

    def __str__(self) -> str:
        return f"{self.rule} {self.subject}"


class AlertChange(models.Model):
    """One change of an alert that channels may be notified of: the outbox.

    `processed_at` is empty until every channel either has a delivery with it or a reason why not.
    """

    alert = models.ForeignKey(Alert, models.CASCADE)
    old = models.CharField(max_length=8)
    new = models.CharField(max_length=8)
    at_ms = models.BigIntegerField()
    #: Its words at that moment: {"severity", "labels", "annotations", "since_ms", "fired_ms", "resolved_ms"}.
    said = models.JSONField(default=dict)
    processed_at = models.DateTimeField(null=True)
    #: What came of it, by channel: [[channel id, "delivery", delivery id], [channel id, "quiet", why], …].
    fates = models.JSONField(default=list)

    objects = ManagerOfAlert()

    class Meta:
        verbose_name = "alert change"
        verbose_name_plural = "alert changes"
        indexes = [
            models.Index(fields=["id"], condition=Q(processed_at=None), name="change_unprocessed"),
            models.Index(fields=["alert", "at_ms"], name="change_of_alert"),
            models.Index(fields=["at_ms"], name="change_old"),
        ]

    def __str__(self) -> str:
        return f"{self.alert_id}: {self.old} to {self.new}"


class Channel(models.Model):
    """A receiver of notifications."""

    class Kind(models.TextChoices):
        #: The Alertmanager webhook, version 4, signed as Standard Webhooks.
        WEBHOOK = "webhook"
        #: An Alertmanager's own `/api/v2/alerts`.
        ALERTMANAGER = "alertmanager"
        #: Chat, mail and pagers through apprise.
        APPRISE = "apprise"

    name = models.CharField(max_length=64, unique=True)
    kind = models.CharField(max_length=12, choices=Kind)
    #: Never shown whole: its credentials and query are redacted everywhere but here.
    url = models.TextField()
    #: Standard Webhooks' `whsec_…`; "" for kinds that sign nothing.
    secret = models.TextField(blank=True)
    #: The secret before it was changed; both sign until then.
    old_secret = models.TextField(blank=True)
    min_severity = models.CharField(max_length=8, choices=_SEVERITIES, default="warning")
    #: Which alerts: matchers as in a silence; none: all.
    matchers = models.JSONField(default=list)
    #: Labels that make one notification of many alerts.
    group_by = models.JSONField(default=list)
    #: Seconds; None: as in `[alerts]`.
    group_wait_s = models.FloatField(null=True)
    group_interval_s = models.FloatField(null=True)
    repeat_interval_s = models.FloatField(null=True)
    send_resolved = models.BooleanField(default=True)
    enabled = models.BooleanField(default=True)
    #: Failed deliveries in a row, none of them to be retried; at `[alerts] disable_after` it is disabled.
    failures = models.IntegerField(default=0)
    disabled_at = models.DateTimeField(null=True)
    disabled_why = models.TextField(blank=True)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name = "channel"
        verbose_name_plural = "channels"

    def __str__(self) -> str:
        return self.name


class Delivery(models.Model):
    """One message to one channel: saved before it is sent, with everything that was answered."""

    class State(models.TextChoices):
        PENDING = "pending"
        DELIVERED = "delivered"
        #: The receiver will never take it, or it was tried for too long.
        FAILED = "failed"

    class Origin(models.TextChoices):
        ALERT = "alert"
        TEST = "test"
        #: Sent again by hand.
        AGAIN = "again"

    channel = models.ForeignKey(Channel, models.CASCADE, db_index=False)
    #: Of a test there is none.
    cluster = models.ForeignKey(Cluster, models.CASCADE, null=True, db_index=False)
    origin = models.CharField(max_length=5, choices=Origin, default=Origin.ALERT)
    #: Standard Webhooks' `webhook-id`: the same for each try and each redelivery.
    message_id = models.CharField(max_length=64)
    group_key = models.TextField(blank=True)
    #: Alertmanager's words: first_notification, new_alerts_in_group, new_resolved_alerts,
    #: all_alerts_resolved, repeat_interval_elapsed.
    reason = models.CharField(max_length=32, blank=True)
    #: The body before it is signed, as JSON values.
    payload = models.JSONField()
    #: What the group held when it was made: {"firing": [fingerprint in hex, …], "severities": [of each],
    #: "resolved": […]}.
    held = models.JSONField(default=dict)
    #: When the engine made it, by its own clock.
    made_ms = models.BigIntegerField(default=0)
    #: Whether it is its group's newest, and so the state that the receiver has.
    standing = models.BooleanField(default=False)
    state = models.CharField(max_length=9, choices=State, default=State.PENDING)
    attempts = models.IntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    #: When it is to be tried next, by the database's clock.
    next_at = models.DateTimeField(null=True)
    #: While a worker sends it, by the database's clock.
    claimed_until = models.DateTimeField(null=True)
    #: Grows with each claim: only the newest claim may write what came of it.
    claim = models.BigIntegerField(default=0)
    #: Empty exactly while it is pending.
    ended_at = models.DateTimeField(null=True)
    #: Each try: [{"at_ms", "ms", "request": {headers, redacted}, "status", "headers", "body" (its beginning),
    #: "error", "address"}, …], the last few.
    tries = models.JSONField(default=list)
    #: The last failure in words, redacted.
    error = models.TextField(blank=True)

    objects = ScopedManager()

    class Meta:
        verbose_name = "delivery"
        verbose_name_plural = "deliveries"
        indexes = [
            # SQLite takes a partial index only for a condition without parameters: pending is not ended.
            models.Index(fields=["next_at"], condition=Q(ended_at=None), name="delivery_due"),
            models.Index(
                fields=["channel", "group_key", "id"], condition=Q(ended_at=None), name="delivery_waiting"
            ),
            models.Index(fields=["channel", "created_at"], name="delivery_of_channel"),
            models.Index(fields=["channel", "group_key", "id"], name="delivery_of_group"),
            models.Index(fields=["cluster"], condition=Q(standing=True), name="delivery_standing"),
            models.Index(fields=["cluster", "created_at"], name="delivery_made"),
        ]

    def __str__(self) -> str:
        return f"{self.channel_id}: {self.message_id}"


class Silence(models.Model):
    """Suppresses notifications of matching alerts, for a time."""

    #: [["label", "=" | "!=" | "=~" | "!~", "value"], …], all of them must match; as Alertmanager's.
    matchers = models.JSONField()
    starts_ms = models.BigIntegerField()
    ends_ms = models.BigIntegerField()
    reason = models.TextField()
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)
    #: Who ended it early.
    ended_by = models.CharField(max_length=150, blank=True)

    class Meta:
        verbose_name = "silence"
        verbose_name_plural = "silences"
        indexes = [models.Index(fields=["ends_ms"], name="silence_ends")]

    def __str__(self) -> str:
        return f"silence {self.pk}"
