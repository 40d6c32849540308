"""Users' identities and cluster limits, and API tokens."""

from datetime import datetime

from django.contrib.auth.models import User
from django.db import models


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
        verbose_name_plural = "cluster limits"

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
        verbose_name_plural = "API tokens"

    def __str__(self) -> str:
        return f"{self.name} ({self.role})"

    def state(self, now: datetime) -> str:
        """Return the token's state: "active", "expired" or "revoked"."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"
