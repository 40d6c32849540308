"""Users with their passwords, as Django has them."""

from __future__ import annotations

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User


class UserBackend(ModelBackend):
    """Reads the user of a session together with the limit to clusters, which each request needs."""

    def get_user(self, user_id: int) -> User | None:
        """Return the user of a session, None for one who is gone or disabled."""
        user = User.objects.select_related("cluster_limit").filter(pk=user_id).first()
        return user if user is not None and self.user_can_authenticate(user) else None
