"""Users and access: users with their roles, and the API's tokens; changes of both."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial, wraps
from typing import Any, NamedTuple, cast

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.tokens import default_token_generator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlsafe_base64_encode

from dashboard.labels.status import ROLE_MEANS
from dashboard.models import Token
from dashboard.runtime.criteria import Page, page_of
from dashboard.system import access, tokens, users
from dashboard.system.access import AccessRefused
from dashboard.system.cluster_limits import split_names
from dashboard.web.action_buttons import request_actor
from dashboard.web.forms.lists import Heading, NumberedList
from dashboard.web.per_request import derive_once
from dashboard.web.rendering import (
    P,
    View,
    action_view,
    error_note,
    flash_refusal,
    forbidden_page,
    list_view,
    or_404,
    render_page,
    signed_in,
)
from dashboard.web.routes import PageRoute
from fenceline.formatting import format_duration

_LIFETIMES = {"30d": "30 days", "90d": "90 days", "365d": "1 year", "": "never"}


class AccessForm(NamedTuple):
    """A form for a new user or token: its words, its routes, its fields."""

    words: str
    field: str
    longest: int
    add: str
    back: str
    roles: Sequence[str]
    lifetimes: Mapping[str, str]


_USER = AccessForm("user", "username", 150, "user-add", "access", tuple(access.ROLES), {})
_TOKEN = AccessForm(
    "token", "name", tokens.LONGEST_NAME, "token-add", "tokens", Token.Role.values, _LIFETIMES
)


class AccessLine(NamedTuple):
    """One user or token as a line of a list; `last` is the last sign-in or use."""

    number: int
    name: str
    role: str
    state: str
    last: datetime | None
    expires: datetime | None = None
    #: Comma-separated names; "" for all clusters.
    clusters: str = ""


def _user_line(user: User) -> AccessLine:
    role, state = users.role_of(user), users.state_of(user)
    limit = getattr(user, "cluster_limit", None)
    clusters = (", ".join(limit.clusters) or "none") if limit else ""
    return AccessLine(user.pk, user.get_username(), role, state, user.last_login, clusters=clusters)


def _token_line(token: Token) -> AccessLine:
    state = token.state(timezone.now())
    clusters = ", ".join(token.clusters)
    return AccessLine(token.pk, token.name, token.role, state, token.last_used_at, token.expires_at, clusters)


def _read_users(request: HttpRequest, wanted: NumberedList) -> Page[AccessLine]:
    return derive_once(request, "users", lambda: _lines(users.list_users(), _user_line, wanted))


def _read_tokens(request: HttpRequest, wanted: NumberedList) -> Page[AccessLine]:
    return derive_once(request, "tokens", lambda: _lines(Token.objects.order_by("name"), _token_line, wanted))


def _lines(rows: QuerySet[Any], line: Callable[[Any], AccessLine], wanted: NumberedList) -> Page[AccessLine]:
    page = page_of(rows, wanted.page, wanted.size)
    return page.with_items([line(row) for row in page.items])


def _for_admins(view: View[P], refusal: Callable[[HttpRequest], str]) -> View[P]:
    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        refused = refusal(request)
        return forbidden_page(request, refused) if refused else view(request, *args, **kwargs)

    return guarded


def _refusal(request: HttpRequest) -> str:
    return access.permission_refusal(request_actor(request), access.USERS)


def _shown(view: View[P]) -> View[P]:
    """Return a page for users who may administer users, also with READ_ONLY."""
    role = partial(access.missing_role, permission=access.USERS)
    return signed_in(_for_admins(view, lambda request: role(request_actor(request))))


def _posted(view: View[P]) -> View[P]:
    return action_view(_for_admins(view, _refusal))


def _headings(*words: str) -> Sequence[Heading]:
    return [(word, "", "", "") for word in words]


def _listed(request: HttpRequest, page: Page[Any]) -> Mapping[str, Any]:
    return {"page": page, "rows": page.items, "cannot_change": _refusal(request)}


_USERS = _headings("User", "Role", "Clusters", "State", "Last sign-in")
_TOKENS = _headings("Token", "Role", "Clusters", "State", "Expires", "Last used", "Revoke")


@_shown
@list_view("access/list", NumberedList, _USERS, depends_on=_read_users, collected=False)
def user_list(request: HttpRequest, wanted: NumberedList) -> Mapping[str, Any]:
    return _listed(request, _read_users(request, wanted))


@_shown
@list_view("access/tokens", NumberedList, _TOKENS, depends_on=_read_tokens, collected=False)
def token_list(request: HttpRequest, wanted: NumberedList) -> Mapping[str, Any]:
    return _listed(request, _read_tokens(request, wanted))


@_shown
def user_detail(request: HttpRequest, number: int) -> HttpResponse:
    user, problem = _found(number), error_note(request)
    line = _user_line(user)
    refused = _refusal(request) or users.refusal_of_change(user, _self(request))
    context = {
        "line": line,
        "problem": problem,
        "refused": refused,
        "is_self": user == request.user,
        "is_superuser": user.is_superuser,
        "roles": [(role, ROLE_MEANS[role]) for role in access.ROLES],
    }
    return render_page(request, "access/user", lambda: context, depends_on=(line, problem, refused))


@_shown
def new_user(request: HttpRequest) -> HttpResponse:
    """Show an empty form for a user, a viewer unless another role is chosen."""
    return _form(request, _USER)


@_posted
def add_user(request: HttpRequest) -> HttpResponse:
    """Create a user and show the link for setting the password, or show the form again with the errors."""
    try:
        user = users.invite_user(request.POST.get("username", ""), request.POST.get("role", ""))
    except AccessRefused as error:
        return _form(request, _USER, error)
    return _link(request, user)


@_shown
def new_token(request: HttpRequest) -> HttpResponse:
    """Show an empty form for a token, for a viewer unless another role is chosen."""
    return _form(request, _TOKEN)


@_posted
def add_token(request: HttpRequest) -> HttpResponse:
    """Create a token and show it once, or show the form again with the errors."""
    asked = (request.POST.get(field, "") for field in ("name", "role", "expires", "clusters"))
    name, role, expires, clusters = asked
    try:
        secret = tokens.create_token(name.strip(), role, expires, split_names(clusters))
    except AccessRefused as error:
        return _form(request, _TOKEN, error)
    return render(request, "access/secret.html", {"name": name, "secret": secret, "back": reverse("tokens")})


@_posted
def revoke_token(request: HttpRequest) -> HttpResponse:
    """Revoke a token by its name; a revoked one stays revoked."""
    token = get_object_or_404(Token, name=request.POST.get("name", "").replace("\0", ""))
    tokens.revoke_token(token.name)
    return HttpResponseRedirect(reverse("tokens"), status=303)


def _act(do: Callable[[HttpRequest, int], HttpResponse | None]) -> View[...]:
    """Return a view that changes a user and shows it again, or shows why the change is refused."""

    def view(request: HttpRequest, number: int) -> HttpResponse:
        page = reverse("user", args=[_found(number).pk])
        try:
            return do(request, number) or HttpResponseRedirect(page, status=303)
        except AccessRefused as error:
            flash_refusal(request, page, str(error))
            return HttpResponseRedirect(page, status=303)

    return _posted(view)


set_role = _act(lambda request, n: users.set_role(n, request.POST.get("role", ""), by=_self(request)))
set_clusters = _act(
    lambda request, n: users.set_clusters(n, request.POST.get("clusters", ""), by=_self(request))
)
enable = _act(lambda request, n: users.set_active(n, active=True, by=_self(request)))
disable = _act(lambda request, n: users.set_active(n, active=False, by=_self(request)))
new_link = _act(lambda request, n: _link(request, users.reset_password(n, by=_self(request))))


def _self(request: HttpRequest) -> User:
    return cast(User, request.user)


def _found(number: int) -> User:
    return or_404(users.find_user(number), "Unknown user.")


def _link(request: HttpRequest, user: User) -> HttpResponse:
    """Show a user's link for setting a password once; it is not stored."""
    proof = (urlsafe_base64_encode(str(user.pk).encode()), default_token_generator.make_token(user))
    shown = {
        "name": user.username,
        "secret": request.build_absolute_uri(reverse("welcome", args=proof)),
        "lasts": format_duration(settings.PASSWORD_RESET_TIMEOUT * 1_000),
        "back": reverse("access"),
    }
    return render(request, "access/secret.html", shown)


def _form(request: HttpRequest, form: AccessForm, error: AccessRefused | None = None) -> HttpResponse:
    if refused := _refusal(request):
        return forbidden_page(request, refused)
    values = {"role": Token.Role.VIEWER, "expires": next(iter(_LIFETIMES)), **request.POST.dict()}
    wrong = {error.field: str(error)} if error else {}
    shown = {
        "form": form,
        "label": form.field.capitalize(),
        "value": values.get(form.field, ""),
        "problem": wrong.get(form.field, ""),
        "values": values,
        "roles": [(role, ROLE_MEANS[role]) for role in form.roles],
        "wrong": wrong,
    }
    return render(request, "access/form.html", shown, status=422 if error else 200)


ROUTES = (
    PageRoute(
        "access",
        "access",
        user_list,
        plural="users and access",
        key="u",
        heading="Admin",
        permission=access.USERS,
        as_of_now="Changes of users and tokens are in the audit log.",
    ),
    PageRoute("user-new", "access/new", new_user, parent="access"),
    PageRoute("user-add", "access/add", add_user),
    PageRoute("user", "access/<int:number>", user_detail, parent="access"),
    PageRoute("user-role", "access/<int:number>/role", set_role),
    PageRoute("user-clusters", "access/<int:number>/clusters", set_clusters),
    PageRoute("user-enable", "access/<int:number>/enable", enable),
    PageRoute("user-disable", "access/<int:number>/disable", disable),
    PageRoute("user-link", "access/<int:number>/link", new_link),
    PageRoute("tokens", "access/tokens", token_list, plural="API tokens", parent="access"),
    PageRoute("token-new", "access/tokens/new", new_token, parent="tokens"),
    PageRoute("token-add", "access/tokens/add", add_token),
    PageRoute("token-revoke", "access/tokens/revoke", revoke_token),
)
