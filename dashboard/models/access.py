"""Who may ask the API."""

from __future__ import annotations

from datetime import datetime

from django.contrib.auth.models import User
from django.db import models


class ExternalIdentity(models.Model):
    """Whom an identity provider knows as a user: by the subject that it never gives to another person."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="external_identity")
    #: The name of the provider in the configuration.
    provider = models.CharField(max_length=32)
    #: Its issuer; "" of a proxy, and of users who have not signed in since it is kept.
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
    """What a user may see and do on clusters; a user without a row sees all, with one role on all."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="cluster_limit")
    #: Grants, as `dashboard.system.access.granted_roles` takes them; also of clusters that are unknown.
    clusters = models.JSONField(default=list)

    class Meta:
        verbose_name = "cluster limit"
        verbose_name_plural = "cluster limits"

    def __str__(self) -> str:
        return f"{self.user}: {', '.join(self.clusters)}"


class Token(models.Model):
    """A bearer token of the API. Only its digest is kept."""

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
    #: Grants, as of a `ClusterLimit`; empty where it sees all.
    clusters = models.JSONField(default=list)
    #: None: it does not expire.
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    #: Written at most once a minute; None: never.
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = "API token"
        verbose_name_plural = "API tokens"

    def __str__(self) -> str:
        return f"{self.name} ({self.role})"

    def state(self, now: datetime) -> str:
        """Return whether it may be used: "active", "expired" or "revoked"."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"
