"""Django's users with passwords."""

from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User

from dashboard.models import ExternalIdentity


class UserBackend(ModelBackend):
    """Reads the user of a session together with the related rows that each request needs."""

    def get_user(self, user_id: int) -> User | None:
        """Return the user of a session; None for a deleted or disabled one, or of a removed provider."""
        rows = User.objects.select_related("cluster_limit", "external_identity")
        user = rows.filter(pk=user_id).first()
        if user is None or not self.user_can_authenticate(user):
            return None
        identity: ExternalIdentity | None = getattr(user, "external_identity", None)
        return user if identity is None or identity.provider in settings.FENCELINE.sign_in_names else None
