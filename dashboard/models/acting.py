"""Operators' actions: plans and their outcomes, kept for ever."""

from django.db import models
from django.db.models import Q

from dashboard.models.collecting import OfCluster
from fenceline.plans.plan import Act


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

    act = models.CharField(max_length=16, choices=[(act.value, act.value) for act in Act])
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
