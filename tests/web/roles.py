"""Signed-in clients by role."""

from __future__ import annotations

from django.contrib.auth.models import Group, User
from django.test import Client

from dashboard.system import access
from tests.web.compact_html import CompactClient


def give_role(user: User, role: str) -> None:
    """Give a user a role, as an admin does in Django's admin."""
    if not Group.objects.filter(name=role).exists():
        # A test with transactions of its own has emptied all tables.
        access.ensure_roles()
    user.groups.set([Group.objects.get(name=role)])


def client_with_role(role: str) -> Client:
    """Return the client of a user with a role, called like it."""
    user, _ = User.objects.get_or_create(username=f"the {role}")
    give_role(user, role)
    client = CompactClient()
    client.force_login(user)
    return client


def page_html(page: Client, url: str, status: int = 200) -> str:
    """Return a page's text in one line."""
    answer = page.get(url)
    assert answer.status_code == status, (url, answer.status_code, answer.content[:500])
    return " ".join(answer.content.decode().split())
