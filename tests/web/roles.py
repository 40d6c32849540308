"""Signed-in clients by role, and what their pages hold."""

import html
import re
from typing import Any

from django.conf import settings
from django.contrib import auth
from django.contrib.auth.models import Group, User
from django.contrib.sessions.backends.db import SessionStore
from django.test import Client

from dashboard.models import Action
from dashboard.system import access
from tests.web import factories
from tests.web.compact_html import CompactClient

#: The page of `factories.query`.
QUERY_PAGE = f"/queries/prod/{factories.QUERY_ID}"


def give_role(user: User, role: str) -> None:
    """Give a user a role alone; the audit log has no row of it."""
    group = Group.objects.filter(name=role).first()
    if group is None:
        # A test with transactions of its own has emptied all tables.
        access.ensure_roles()
        group = Group.objects.get(name=role)
    memberships = User.groups.through.objects
    memberships.filter(user=user).delete()
    memberships.create(user=user, group=group)


def client_with_role(role: str) -> Client:
    """Return the client of a user with a role, called like it."""
    user, _ = User.objects.get_or_create(username=f"the {role}")
    give_role(user, role)
    client = CompactClient()
    open_session(client, user)
    return client


def open_session(client: Client, user: User) -> None:
    """Give a client a user's session as it is some time after the sign-in, which writes rows of its own."""
    session = SessionStore()
    session[auth.SESSION_KEY] = str(user.pk)
    session[auth.BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[-1]
    session[auth.HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.create()
    client.cookies[settings.SESSION_COOKIE_NAME] = session.session_key


def page_html(page: Client, url: str, status: int = 200, /, **asked: str) -> str:
    """Return a page's text in one line."""
    answer = page.get(url, asked)
    assert answer.status_code == status, (url, answer.status_code, answer.content[:500])
    return " ".join(answer.content.decode().split())


def page_text(page: Client, url: str, status: int = 200) -> str:
    """Return a page in one line, without entities."""
    return html.unescape(page_html(page, url, status))


def text_of(markup: str) -> str:
    """Return the text between tags."""
    return " ".join(re.sub(r"<[^>]+>", " ", markup).split())


def headline(page: Client, url: str) -> str:
    """Return a page's headline."""
    found = re.search(r"<h1 [^>]*>(.*?)</h1>", page_html(page, url))
    assert found
    return html.unescape(re.sub(r"<[^>]+>", "", found[1]))


def query_tab(page: Client, name: str) -> str:
    """Return a tab of the page of `factories.query` as HTML."""
    return page_html(page, f"{QUERY_PAGE}?tab={name}")


def confirm(page: Client, action: Action, **fields: str) -> Any:
    """Confirm a plan as its page asks for, but for `fields`."""
    said = {"digest": action.digest, "confirm": action.plan["confirm"], "reason": "ticket 4411"}
    return page.post(f"/actions/{action.pk}", said | fields)


def row_ids(markup: str) -> list[str]:
    """Return the ids of the rows of a list's page: those of its first table, or of its alerts."""
    table = markup.partition("<tbody>")[2].partition("</tbody>")[0]
    return re.findall(r'<tr id="([^"]+)"', table) or re.findall(r'<li class="alert" id="([^"]+)"', markup)


def secret_of(answer: Any) -> str:
    """Return what a page shows once."""
    (shown,) = re.findall(r'id="the-secret"[^>]*>([^<]+)<', answer.content.decode())
    return html.unescape(shown)
