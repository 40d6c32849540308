"""Proves who may do what: every route and method, for each caller, with and without READ_ONLY.

The table is tests/web/route_permissions.py. It is compared with the routes: one without a line fails here.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.test import Client
from django.urls import get_resolver, resolve

from dashboard.api import api
from dashboard.models import Token
from dashboard.system import access, cluster_limits
from dashboard.system.tokens import token_digest
from tests.web import factories, scenarios
from tests.web.route_permissions import (
    CALLERS,
    FORBIDDEN,
    IN,
    ROUTE_PERMISSIONS,
    SIGN_IN,
    UNKNOWN,
    RoutePermission,
)

#: No Redis runs here, and to find that out takes its time.
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sandbox", "sent")]
#: Django's own pages: nobody but staff gets in, and of those who who may is Django's own affair.
_ADMIN = "admin/"
#: Who signs in or out has no role yet, or any; signing out is only posted.
_OPEN_ADMIN = ("admin/login/", "admin/logout/")
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
#: The sign-in is Django's; what describes the API, and what is none of it, is answered to whoever asks.
_ANY_METHOD = ("/login/", "/api/nowhere", "/ingest/nowhere", "/api/v1/docs", "/api/v1/openapi.json")
_ENDS = ("anonymous", "no role", "admin", "token admin")
#: Tokens that are over: they open what is open to everybody.
OVER = ("token revoked", "token expired")
#: An operator who may see another cluster than the one that all rows are of.
ELSEWHERE = "operator elsewhere"
#: Not this machine: on loopback some doors stand open.
_ELSEWHERE = "203.0.113.9"


def _walk(patterns: Any, before: str = "") -> Iterator[str]:
    for each in patterns:
        route = before + str(each.pattern)
        if hasattr(each, "url_patterns"):
            yield from _walk(each.url_patterns, route)
        else:
            yield route


ROUTES = frozenset(_walk(get_resolver().url_patterns))
ADMIN_ROUTES = sorted(route for route in ROUTES if route.startswith(_ADMIN) and route not in _OPEN_ADMIN)


def _shape(route: str) -> str:
    """Return a route as OpenAPI writes it: `/api/v1/actions/{number}`."""
    return "/" + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", route)


@pytest.fixture(scope="module")
def rows(django_db_setup: None, django_db_blocker: Any) -> Iterator[Mapping[str, object]]:
    """A row of each kind by its name, for all tests of this file: what they change is taken back."""
    with django_db_blocker.unblock(), transaction.atomic():
        of = factories.watched_cluster()
        factories.transaction(of, "payments-7")
        factories.group(of, "")
        factories.blocked_offset(
            factories.group(of, "billing"), factories.lso_blocker(of, "payments", 0, "hanging")
        )
        channel = factories.channel()
        yield {
            "query": scenarios.abandoned_query(of).ident,
            "flink_job": factories.flink_job(of).ident,
            "recovery": factories.recovery(of).pk,
            "finding": factories.finding(of, "transaction:payments-7").pk,
            "incident": factories.incident(of).pk,
            "action": factories.planned_action().pk,
            "alert": factories.alert(of).pk,
            "channel": channel.pk,
            "delivery": factories.delivery(channel, "failed").pk,
            "silence": factories.silence().pk,
            "user": User.objects.create_user("grace").pk,
        }
        transaction.set_rollback(True)


@pytest.fixture(scope="module")
def clients(rows: Mapping[str, object]) -> Mapping[str, Client]:
    """Who asks, each with what proves it."""
    access.ensure_roles()
    found = {"anonymous": Client(REMOTE_ADDR=_ELSEWHERE)}
    for role in ("no role", "viewer", "operator", "admin"):
        user = User.objects.create_user(role)
        user.groups.set(Group.objects.filter(name=role))
        found[role] = Client(REMOTE_ADDR=_ELSEWHERE)
        found[role].force_login(user)
    for role in Token.Role.values:
        Token.objects.create(name=f"ci-{role}", role=role, digest=token_digest(role))
        found[f"token {role}"] = Client(REMOTE_ADDR=_ELSEWHERE, headers={"Authorization": f"Bearer {role}"})
    assert tuple(found) == CALLERS
    past = datetime(2026, 1, 1, tzinfo=UTC)
    for name, over in zip(OVER, ({"revoked_at": past}, {"expires_at": past}), strict=True):
        Token.objects.create(name=name, role="admin", digest=token_digest(name), **over)
        found[name] = Client(REMOTE_ADDR=_ELSEWHERE, headers={"Authorization": f"Bearer {name}"})
    factories.cluster("elsewhere")
    user = User.objects.create_user(ELSEWHERE)
    user.groups.set(Group.objects.filter(name="operator"))
    cluster_limits.set_clusters(user, ["elsewhere"])
    found[ELSEWHERE] = Client(REMOTE_ADDR=_ELSEWHERE)
    found[ELSEWHERE].force_login(user)
    return found


def ask(client: Client, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """Ask, and take back what was done."""
    is_api = path.startswith("/api/")
    said = {"data": dict(body or {})} if method != "GET" else {}
    kind = {"content_type": "application/json"} if is_api and method != "GET" else {}
    with transaction.atomic():
        answer = getattr(client, method.lower())(path, **said, **kind)
        transaction.set_rollback(True)
    return answer


def met(answer: Any) -> str:
    """Return what a caller met, in the table's words; anything else by its status."""
    status = answer.status_code
    if status in (301, 302, 303) and answer["Location"].partition("?")[0] in ("/login/", "/admin/login/"):
        return SIGN_IN
    if status in (401, 403):
        return {401: UNKNOWN, 403: FORBIDDEN}[status]
    # Let in, and told what is wrong with what was asked; Redis does not run here.
    return IN if status < 400 or status in (400, 409, 422, 503) else str(status)


def named(door: RoutePermission) -> str:
    return f"{door.method} {door.path}"


def least_and_most(door: RoutePermission, *, read_only: bool) -> Iterator[str]:
    """Yield who may least and who may most of sessions, and of tokens, in a row that get the same."""
    for _, same in groupby(CALLERS, lambda each: ("token" in each, door.rule.of(each, read_only=read_only))):
        first, *others = same
        yield from (first, *others[-1:])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each line."""
    if "door" in metafunc.fixturenames:
        metafunc.parametrize("door", ROUTE_PERMISSIONS, ids=named)


def test_a_line_for_every_caller(
    door: RoutePermission, rows: Mapping[str, object], clients: Mapping[str, Client], settings: Any
) -> None:
    path, wrong = door.path.format(**rows), []

    def expect(caller: str, *expected: str) -> None:
        found = met(ask(clients[caller], door.method, path, door.body))
        if found not in expected and not (IN in expected and found == "404" and not door.there):
            wrong.append((caller, f"READ_ONLY={settings.READ_ONLY}", found, "not", expected))

    for settings.READ_ONLY in (True, False):
        # What only looks is then as it was.
        looks = settings.READ_ONLY and door.method == "GET" and door.rule.read_only is None
        for caller in _ENDS if looks else least_and_most(door, read_only=settings.READ_ONLY):
            expect(caller, door.rule.of(caller, read_only=settings.READ_ONLY))
    for caller in OVER:
        expect(caller, door.rule.of("anonymous", read_only=False))
    names_a_row = "{" in door.path or "/prod" in door.path or "prod" in str(door.body) or not door.there
    open_to_them = {SIGN_IN, "404"} if names_a_row else {door.rule.of("operator", read_only=False)}
    expect(ELSEWHERE, FORBIDDEN, *open_to_them)
    assert not wrong, (named(door), wrong)


def test_who_may_more_may_all_that_others_may() -> None:
    viewer, operator, admin = (access.ROLES[role] for role in ("viewer", "operator", "admin"))
    assert viewer < operator < admin


#: A number that no row has, and one that no database holds.
_UNKNOWN = ("4711", "9" * 30)
#: Addresses of rows by names that nothing has, or that no name can be.
_NOBODY = (
    "/groups/prod/never",
    "/partitions/prod/payments/77",
    "/partitions/prod/payments/zero",
    "/recoveries/prod/-1",
    "/transactions/prod/never",
    "/transactions/prod/bad%5Cescape",
)


def test_what_is_not_there_is_not_found(rows: Mapping[str, object], clients: Mapping[str, Client]) -> None:
    """A number or an id that no row has, a name that nothing has, a cluster that is not configured."""
    asked: list[tuple[str, str, Any]] = [("POST", "/partitions/prod/never/0/replicas", {})]
    asked += [("GET", f"{before}{path}", {}) for before in ("", "/api/v1") for path in _NOBODY]
    for door in ROUTE_PERMISSIONS:
        if "{" in door.path:
            asked += [(door.method, re.sub(r"{\w+}", name, door.path), door.body) for name in _UNKNOWN]
        # The address of a cluster or of a topic leads to a list, whatever their names are.
        if "/prod" in door.path and ask(clients["admin"], "GET", door.path.format(**rows)).status_code != 302:
            asked.append((door.method, door.path.format(**rows).replace("/prod", "/nowhere"), door.body))
    wrong = [
        (method, path[:80], answer.status_code)
        for method, path, body in asked
        if (answer := ask(clients["admin"], method, path, body)).status_code != 404
    ]
    assert len(asked) > 80
    assert not wrong


def test_every_route_has_its_line(rows: Mapping[str, object]) -> None:
    told = {resolve(door.path.format(**rows)).route for door in ROUTE_PERMISSIONS}
    missing = {route for route in ROUTES - told if not route.startswith(_ADMIN) and route != "logout/"}
    assert not missing, f"tests/web/route_permissions.py says nothing of {sorted(missing)}"


def test_every_operation_of_the_api_has_its_line(rows: Mapping[str, object]) -> None:
    told = {
        (door.method.lower(), _shape(resolve(door.path.format(**rows)).route))
        for door in ROUTE_PERMISSIONS
        if door.path.startswith("/api/v1/")
    }
    for path, operations in api.get_openapi_schema()["paths"].items():
        for method in operations:
            assert (method, path) in told, f"tests/web/route_permissions.py says nothing of {method} {path}"


def test_what_has_no_line_is_no_method_of_its_route(
    rows: Mapping[str, object], clients: Mapping[str, Client]
) -> None:
    told: dict[str, set[str]] = {}
    for door in ROUTE_PERMISSIONS:
        told.setdefault(door.path.format(**rows), set()).add(door.method)
    wrong = []
    for path, methods in told.items():
        if path in _ANY_METHOD:
            continue
        for method in set(_METHODS) - methods:
            status = ask(clients["admin"], method, path).status_code
            if status != 405:
                wrong.append((method, path, status))
    assert not wrong


def test_django_s_admin_is_for_staff_alone(rows: Mapping[str, object], clients: Mapping[str, Client]) -> None:
    wrong = []
    for route in ADMIN_ROUTES:
        path = "/" + re.sub(r"<[^>]+>|\(\?P<url>\.\*\)\$", "1", route)
        path = path.replace("^(?P1auth|dashboard)/$", "dashboard/")
        for caller, method in (("anonymous", "GET"), ("admin", "POST"), ("token admin", "GET")):
            if met(ask(clients[caller], method, path)) != SIGN_IN:
                wrong.append((method, path, caller))
    assert len(ADMIN_ROUTES) > 60
    assert not wrong


def test_signing_out_is_only_posted(clients: Mapping[str, Client]) -> None:
    for path in ("/logout/", "/admin/logout/"):
        assert {ask(client, "GET", path).status_code for client in clients.values()} <= {302, 403, 405}
        assert ask(clients["viewer"], "GET", "/").status_code == 200
        assert met(ask(clients["anonymous"], "POST", path)) in (IN, SIGN_IN)
