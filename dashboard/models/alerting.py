"""Alerts and notifications: alerts, their changes (the outbox), channels, deliveries, silences."""

from django.db import models
from django.db.models import Q

from dashboard.models.collecting import Cluster, ManagerOfAlert, OfCluster, ScopedManager, choices_of
from fenceline.facts import Severity


class Alert(OfCluster):
    """An alert: one row for all findings of a rule, cluster and subject, however often they open."""

    class State(models.TextChoices):
        PENDING = "pending"
        FIRING = "firing"
        RESOLVED = "resolved"

    #: The same as `FindingRecord.fingerprint`.
    fingerprint = models.BinaryField(max_length=32)
    rule = models.CharField(max_length=64)
    subject = models.TextField()
    severity = models.CharField(max_length=8, choices=choices_of(Severity))
    #: Labels, matched by silences and routes: cluster, alertname (the rule), severity, subject,
    #: subject_kind, application, team, …; annotations, for people: summary, evidence, next_step, runbook.
    labels = models.JSONField(default=dict)
    annotations = models.JSONField(default=dict)
    affected = models.JSONField(default=list)
    state = models.CharField(max_length=8, choices=State)
    #: When its finding began, by the rule; when the alert began to fire; when it was resolved; None until
    #: then.
    since_ms = models.BigIntegerField()
    fired_ms = models.BigIntegerField(null=True)
    resolved_ms = models.BigIntegerField(null=True)
    #: The last time at which its finding was open; updated only on a change, and at the first tick without
    #: it.
    seen_ms = models.BigIntegerField()
    #: Consecutive complete ticks with the finding while pending, or without it while firing.
    ticks = models.IntegerField(default=0)
    #: The number of the finding that the alert follows now.
    finding = models.BigIntegerField(default=0)
    #: While it fires: the time since which only the waits of its groups delay the notification.
    loud_ms = models.BigIntegerField(null=True)
    #: The times of its last openings, for damping: [ms, …]; the time since which it is held as flapping.
    openings = models.JSONField(default=list)
    flapping_ms = models.BigIntegerField(null=True)
    #: Reasons why nobody is notified now: [[kind, the cause's number or "", words], …]; empty otherwise.
    quiet = models.JSONField(default=list)
    #: The channels notified that it fires: [[channel id, delivery id, time in ms], …].
    told = models.JSONField(default=list)
    rev = models.BigIntegerField(default=0)

    class Meta:
        verbose_name = "alert"
        constraints = [models.UniqueConstraint(fields=["fingerprint"], name="alert_fingerprint")]
        indexes = [
            models.Index(fields=["cluster", "seen_ms"], name="alert_seen"),
            models.Index(fields=["cluster"], condition=~Q(state="resolved"), name="alert_active"),
        ]

    def __str__(self) -> str:
        return f"{self.rule} {self.subject}"

    @property
    def ended_unfired(self) -> bool:
        """Whether it was pending only: its finding ended before the rule let it fire."""
        return self.state == self.State.RESOLVED and self.fired_ms is None


class AlertChange(models.Model):
    """A change of an alert, for the notification of channels: the outbox.

    `processed_at` is None until every channel has either a delivery or a reason for no delivery.
    """

    alert = models.ForeignKey(Alert, models.CASCADE)
    old = models.CharField(max_length=8)
    new = models.CharField(max_length=8)
    at_ms = models.BigIntegerField()
    #: The alert at that time: {"severity", "labels", "annotations", "since_ms", "fired_ms", "resolved_ms"}.
    said = models.JSONField(default=dict)
    processed_at = models.DateTimeField(null=True)
    #: The outcome by channel: [[channel id, "delivery", delivery id], [channel id, "quiet", reason], …].
    fates = models.JSONField(default=list)

    objects = ManagerOfAlert()

    class Meta:
        verbose_name = "alert change"
        indexes = [
            models.Index(fields=["id"], condition=Q(processed_at=None), name="change_unprocessed"),
            models.Index(fields=["alert", "at_ms"], name="change_of_alert"),
            models.Index(fields=["at_ms"], name="change_old"),
        ]

    def __str__(self) -> str:
        return f"{self.alert_id}: {self.old} to {self.new}"


class Channel(models.Model):
    class Kind(models.TextChoices):
        #: The Alertmanager webhook, version 4, signed as Standard Webhooks.
        WEBHOOK = "webhook"
        #: An Alertmanager's own `/api/v2/alerts`.
        ALERTMANAGER = "alertmanager"
        #: Chat, mail and pagers through apprise.
        APPRISE = "apprise"

    name = models.CharField(max_length=64, unique=True)
    kind = models.CharField(max_length=12, choices=Kind)
    #: With credentials and query; they are redacted everywhere else.
    url = models.TextField()
    #: Standard Webhooks' `whsec_…`; "" for kinds that do not sign.
    secret = models.TextField(blank=True)
    #: The previous secret; it also signs until it is ended.
    old_secret = models.TextField(blank=True)
    min_severity = models.CharField(max_length=8, choices=choices_of(Severity), default="warning")
    #: Matchers of its alerts, as in a silence; empty for all alerts.
    matchers = models.JSONField(default=list)
    #: Labels that group alerts into one notification.
    group_by = models.JSONField(default=list)
    #: Seconds; None for the value of `[alerts]`.
    group_wait_s = models.FloatField(null=True)
    group_interval_s = models.FloatField(null=True)
    repeat_interval_s = models.FloatField(null=True)
    send_resolved = models.BooleanField(default=True)
    enabled = models.BooleanField(default=True)
    #: Consecutive deliveries that failed for good; at `[alerts] disable_after` the channel is disabled.
    failures = models.IntegerField(default=0)
    disabled_at = models.DateTimeField(null=True)
    disabled_why = models.TextField(blank=True)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name = "channel"

    def __str__(self) -> str:
        return self.name


class Delivery(models.Model):
    """A message to a channel, saved before it is sent; its responses are stored with it."""

    class State(models.TextChoices):
        PENDING = "pending"
        DELIVERED = "delivered"
        #: The receiver rejected it for good, or the tries took too long.
        FAILED = "failed"

    class Origin(models.TextChoices):
        ALERT = "alert"
        TEST = "test"
        #: Sent again by hand.
        AGAIN = "again"

    channel = models.ForeignKey(Channel, models.CASCADE, db_index=False)
    #: None for a test.
    cluster = models.ForeignKey(Cluster, models.CASCADE, null=True, db_index=False)
    origin = models.CharField(max_length=5, choices=Origin, default=Origin.ALERT)
    #: Standard Webhooks' `webhook-id`: the same for each try and each redelivery.
    message_id = models.CharField(max_length=64)
    group_key = models.TextField(blank=True)
    #: Alertmanager's terms: first_notification, new_alerts_in_group, new_resolved_alerts,
    #: all_alerts_resolved, repeat_interval_elapsed.
    reason = models.CharField(max_length=32, blank=True)
    #: The unsigned body as JSON values.
    payload = models.JSONField()
    #: The alerts of the group in it: {"firing": [fingerprint in hex, …], "severities": [one per alert],
    #: "resolved": […]}.
    held = models.JSONField(default=dict)
    #: When the alert engine made it, by the engine's clock.
    made_ms = models.BigIntegerField(default=0)
    #: Whether it is the newest of its group, and thus the receiver's state.
    standing = models.BooleanField(default=False)
    state = models.CharField(max_length=9, choices=State, default=State.PENDING)
    attempts = models.IntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    #: The time of the next try, by the database's clock.
    next_at = models.DateTimeField(null=True)
    #: The end of the sending worker's claim, by the database's clock.
    claimed_until = models.DateTimeField(null=True)
    #: Incremented by each claim: only the newest claim may write the result.
    claim = models.BigIntegerField(default=0)
    #: None exactly while it is pending.
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
    """A silence: it suppresses notifications of matching alerts for a time."""

    #: [["label", "=" | "!=" | "=~" | "!~", "value"], …], which must all match, as in Alertmanager.
    matchers = models.JSONField()
    starts_ms = models.BigIntegerField()
    ends_ms = models.BigIntegerField()
    reason = models.TextField()
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)
    #: The user who ended it early.
    ended_by = models.CharField(max_length=150, blank=True)

    class Meta:
        verbose_name = "silence"
        indexes = [models.Index(fields=["ends_ms"], name="silence_ends")]

    def __str__(self) -> str:
        return f"silence {self.pk}"
