"""Who may call each method of each route: one line each. Another route needs a line here.

`{NAME}` in a path is the number of a row of that kind that `tests.web.test_permissions` makes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: The callers: sessions by role, then tokens by role.
CALLERS = (
    "anonymous", "no role", "viewer", "operator", "admin",
    "token viewer", "token operator", "token admin", "token ingest",
)  # fmt: skip
#: What they get: the answer; a redirect to the sign-in; 401; 403.
IN, SIGN_IN, UNKNOWN, FORBIDDEN = "in", "sign-in", "401", "403"


@dataclass(frozen=True, slots=True)
class Permission:
    """What each of CALLERS gets, in their order, and with READ_ONLY: the same if None."""

    usual: tuple[str, ...]
    read_only: tuple[str, ...] | None = None

    def of(self, caller: str, *, read_only: bool) -> str:
        """Return what a caller gets."""
        row = self.read_only if read_only and self.read_only is not None else self.usual
        return row[CALLERS.index(caller)]


_STRANGERS = (SIGN_IN,) * 4
#: Open to everybody.
OPEN = Permission((IN,) * 9)
#: A page: for whoever is signed in and has a role; tokens are for the API.
PAGE = Permission((SIGN_IN, FORBIDDEN, IN, IN, IN, *_STRANGERS))
#: A page that does something: what an operator may, what only an admin may.
_NOBODY = (SIGN_IN, *(FORBIDDEN,) * 4, *_STRANGERS)
OPERATE = Permission((SIGN_IN, FORBIDDEN, FORBIDDEN, IN, IN, *_STRANGERS), _NOBODY)
ADMINISTER = Permission((SIGN_IN, FORBIDDEN, FORBIDDEN, FORBIDDEN, IN, *_STRANGERS), _NOBODY)
#: A page for admins alone, to look at.
AUDIT = Permission((SIGN_IN, *(FORBIDDEN,) * 3, IN, *_STRANGERS))
#: A page without a session, which READ_ONLY closes.
WELCOME = Permission((IN,) * 9, (FORBIDDEN,) * 9)
#: The API: looking, and the same two.
API_READ = Permission((UNKNOWN, FORBIDDEN, IN, IN, IN, IN, IN, IN, UNKNOWN))
_NO_TOKEN = (UNKNOWN, *(FORBIDDEN,) * 7, UNKNOWN)
API_OPERATE = Permission((UNKNOWN, FORBIDDEN, FORBIDDEN, IN, IN, FORBIDDEN, IN, IN, UNKNOWN), _NO_TOKEN)
API_ADMINISTER = Permission((UNKNOWN, *(FORBIDDEN,) * 3, IN, FORBIDDEN, FORBIDDEN, IN, UNKNOWN), _NO_TOKEN)
API_AUDIT = Permission((UNKNOWN, *(FORBIDDEN,) * 3, IN, FORBIDDEN, FORBIDDEN, IN, UNKNOWN))
#: What programs without a session ask.
INGEST = Permission((*(UNKNOWN,) * 5, *(FORBIDDEN,) * 3, IN))
SCRAPE = Permission((*(UNKNOWN,) * 5, IN, IN, IN, FORBIDDEN))


@dataclass(frozen=True, slots=True)
class RoutePermission:
    """One method of one route."""

    method: str
    path: str
    rule: Permission
    #: What is sent: as a form to pages, as JSON to the API.
    body: Mapping[str, Any] = field(default_factory=dict)
    #: False where whoever is let in finds nothing: 404.
    there: bool = True


_FENCE = {"cluster": "prod", "act": "fence"}
_CONFIRM = {"digest": "another plan's", "confirm": "payments-7", "reason": "ticket 4411"}
_SILENCE = {"matchers": 'alertname="coordinator_overdue"', "reason": "ticket 4411", "ends": "2h"}

ROUTE_PERMISSIONS = (
    # Pages.
    RoutePermission("GET", "/", PAGE),
    RoutePermission("GET", "/timeline", PAGE),
    RoutePermission("GET", "/transactions", PAGE),
    RoutePermission("GET", "/transactions/prod/payments-7", PAGE),
    RoutePermission("GET", "/transactions/prod", PAGE),
    RoutePermission("GET", "/fencing", PAGE),
    RoutePermission("GET", "/partitions", PAGE),
    RoutePermission("GET", "/partitions/prod", PAGE),
    RoutePermission("GET", "/partitions/prod/payments", PAGE),
    RoutePermission("GET", "/partitions/prod/payments/0", PAGE),
    RoutePermission("POST", "/partitions/prod/payments/0/replicas", OPERATE),
    RoutePermission("GET", "/partitions/prod/payments/0/record", PAGE),
    RoutePermission("GET", "/preflight", PAGE),
    RoutePermission("GET", "/coordinators", PAGE),
    RoutePermission("POST", "/partitions/prod/payments/0/record/payload", AUDIT),
    RoutePermission("POST", "/partitions/prod/payments/0/record/key", AUDIT),
    RoutePermission("GET", "/groups", PAGE),
    RoutePermission("GET", "/groups/prod", PAGE),
    RoutePermission("GET", "/groups/prod/billing", PAGE),
    RoutePermission("GET", "/queries", PAGE),
    RoutePermission("GET", "/queries/prod", PAGE),
    RoutePermission("GET", "/queries/prod/{query}", PAGE),
    RoutePermission("GET", "/flink-jobs", PAGE),
    RoutePermission("GET", "/flink-jobs/prod", PAGE),
    RoutePermission("GET", "/flink-jobs/prod/{flink_job}", PAGE),
    RoutePermission("GET", "/recoveries", PAGE),
    RoutePermission("GET", "/recoveries/prod", PAGE),
    RoutePermission("GET", "/recoveries/prod/{recovery}", PAGE),
    RoutePermission("GET", "/feed", PAGE),
    RoutePermission("GET", "/history", PAGE),
    RoutePermission("GET", "/reports", PAGE),
    RoutePermission("GET", "/rules", PAGE),
    RoutePermission("GET", "/rules/open_too_long", PAGE),
    RoutePermission("GET", "/clusters", PAGE),
    RoutePermission("GET", "/system", PAGE),
    RoutePermission("GET", "/scenes", PAGE),
    RoutePermission("POST", "/scenes/play", OPERATE, {"scene": "zombie"}),
    # Acting.
    RoutePermission("GET", "/actions", PAGE),
    RoutePermission("GET", "/actions/{action}", PAGE),
    RoutePermission("POST", "/actions/plan", OPERATE, _FENCE | {"subject": "payments-7"}),
    RoutePermission("POST", "/actions/{action}", OPERATE, _CONFIRM),
    RoutePermission("GET", "/audit", AUDIT),
    # Alerting.
    RoutePermission("GET", "/events", PAGE),
    RoutePermission("GET", "/pipelines", PAGE),
    RoutePermission("GET", "/pipelines/proof.json", PAGE, there=False),
    RoutePermission("GET", "/find", PAGE),
    RoutePermission("GET", "/incidents", PAGE),
    RoutePermission("GET", "/incidents/{incident}", PAGE),
    RoutePermission("GET", "/incidents/{incident}.md", PAGE),
    RoutePermission("GET", "/incidents/{incident}.html", PAGE),
    RoutePermission("GET", "/incidents/{incident}.csv", PAGE),
    RoutePermission("POST", "/incidents/{incident}/acknowledge", OPERATE),
    RoutePermission("POST", "/incidents/{incident}/notes", OPERATE, {"text": "ticket 4411"}),
    RoutePermission("GET", "/alerts", PAGE),
    RoutePermission("GET", "/alerts/{alert}", PAGE),
    RoutePermission("GET", "/channels", PAGE),
    RoutePermission("GET", "/channels/{channel}", PAGE),
    RoutePermission("GET", "/channels/new", ADMINISTER),
    RoutePermission("POST", "/channels/add", ADMINISTER),
    RoutePermission("GET", "/channels/{channel}/edit", ADMINISTER),
    RoutePermission("POST", "/channels/{channel}/change", ADMINISTER),
    RoutePermission("GET", "/channels/{channel}/secret", PAGE),
    RoutePermission("POST", "/channels/{channel}/rotate", ADMINISTER),
    RoutePermission("POST", "/channels/{channel}/end-old", ADMINISTER),
    RoutePermission("POST", "/channels/{channel}/enable", ADMINISTER),
    RoutePermission("POST", "/channels/{channel}/disable", ADMINISTER),
    RoutePermission("GET", "/channels/{channel}/delete", ADMINISTER),
    RoutePermission("POST", "/channels/{channel}/delete-now", ADMINISTER),
    RoutePermission("POST", "/channels/{channel}/test", OPERATE),
    RoutePermission("GET", "/deliveries", PAGE),
    RoutePermission("GET", "/deliveries/{delivery}", PAGE),
    RoutePermission("POST", "/deliveries/{delivery}/again", OPERATE),
    RoutePermission("GET", "/silences", PAGE),
    RoutePermission("GET", "/silences/{silence}", PAGE),
    RoutePermission("GET", "/silences/preview", PAGE),
    RoutePermission("GET", "/silences/new", OPERATE),
    RoutePermission("POST", "/silences/make", OPERATE, _SILENCE),
    RoutePermission("POST", "/silences/{silence}/end", OPERATE),
    # Users and tokens.
    RoutePermission("GET", "/access", AUDIT),
    RoutePermission("GET", "/access/new", ADMINISTER),
    RoutePermission("POST", "/access/add", ADMINISTER, {"username": "linus", "role": "viewer"}),
    RoutePermission("GET", "/access/{user}", AUDIT),
    RoutePermission("POST", "/access/{user}/role", ADMINISTER, {"role": "operator"}),
    RoutePermission("POST", "/access/{user}/clusters", ADMINISTER, {"clusters": "prod"}),
    RoutePermission("POST", "/access/{user}/enable", ADMINISTER),
    RoutePermission("POST", "/access/{user}/disable", ADMINISTER),
    RoutePermission("POST", "/access/{user}/link", ADMINISTER),
    RoutePermission("GET", "/access/tokens", AUDIT),
    RoutePermission("GET", "/access/tokens/new", ADMINISTER),
    RoutePermission("POST", "/access/tokens/add", ADMINISTER, {"name": "new", "role": "viewer"}),
    RoutePermission("POST", "/access/tokens/revoke", ADMINISTER, {"name": "ci-ingest"}),
    # Without a role.
    RoutePermission("GET", "/access/welcome/MQ/never", WELCOME, there=False),
    RoutePermission("POST", "/access/welcome/MQ/never", WELCOME, there=False),
    RoutePermission("GET", "/sign-in/corp", OPEN, there=False),
    RoutePermission("GET", "/sign-in/corp/callback", OPEN, there=False),
    RoutePermission("GET", "/login/", OPEN),
    RoutePermission("POST", "/login/", OPEN, {"username": "nobody", "password": "wrong"}),
    RoutePermission("GET", "/static/bundles/app.css", OPEN),
    RoutePermission("GET", "/favicon.ico", OPEN),
    RoutePermission("GET", "/healthz", OPEN),
    RoutePermission("GET", "/readyz", OPEN),
    RoutePermission("GET", "/metrics", SCRAPE),
    RoutePermission("POST", "/ingest/v1/progress", INGEST),
    RoutePermission("GET", "/api/nowhere", OPEN, there=False),
    RoutePermission("GET", "/ingest/nowhere", OPEN, there=False),
    # The API.
    RoutePermission("GET", "/api/v1/openapi.json", OPEN),
    RoutePermission("GET", "/api/v1/docs", OPEN),
    RoutePermission("GET", "/api", OPEN),
    RoutePermission("GET", "/api/v1", OPEN),
    RoutePermission("GET", "/api/v1/", OPEN),
    RoutePermission("GET", "/api/v1/transactions", API_READ),
    RoutePermission("GET", "/api/v1/transactions/prod/payments-7", API_READ),
    RoutePermission("GET", "/api/v1/events", API_READ),
    RoutePermission("GET", "/api/v1/pipelines", API_READ),
    RoutePermission("GET", "/api/v1/pipelines/edges", API_READ),
    RoutePermission("GET", "/api/v1/pipelines/proof", API_READ, there=False),
    RoutePermission("GET", "/api/v1/exports/transactions.csv", API_READ),
    RoutePermission("GET", "/api/v1/transitions", API_READ),
    RoutePermission("GET", "/api/v1/applications", API_READ),
    RoutePermission("GET", "/api/v1/partitions", API_READ),
    RoutePermission("GET", "/api/v1/partitions/prod/payments/0", API_READ),
    RoutePermission("GET", "/api/v1/groups", API_READ),
    RoutePermission("GET", "/api/v1/groups/prod/", API_READ),
    RoutePermission("GET", "/api/v1/groups/prod/billing", API_READ),
    RoutePermission("GET", "/api/v1/history/applications", API_READ, there=False),
    RoutePermission("GET", "/api/v1/history/ids", API_READ, there=False),
    RoutePermission("GET", "/api/v1/history/days", API_READ, there=False),
    RoutePermission("GET", "/api/v1/queries", API_READ),
    RoutePermission("GET", "/api/v1/queries/{query}", API_READ),
    RoutePermission("GET", "/api/v1/queries/{query}/batches", API_READ),
    RoutePermission("GET", "/api/v1/queries/{query}/safe_to_stop", API_READ),
    RoutePermission("GET", "/api/v1/flink-jobs", API_READ),
    RoutePermission("GET", "/api/v1/flink-jobs/prod/{flink_job}", API_READ),
    RoutePermission("GET", "/api/v1/connectors", API_READ),
    RoutePermission("GET", "/api/v1/recoveries", API_READ),
    RoutePermission("GET", "/api/v1/recoveries/prod/{recovery}", API_READ),
    RoutePermission("GET", "/api/v1/findings", API_READ),
    RoutePermission("GET", "/api/v1/findings/{finding}", API_READ),
    RoutePermission("GET", "/api/v1/incidents", API_READ),
    RoutePermission("GET", "/api/v1/incidents/{incident}", API_READ),
    RoutePermission("POST", "/api/v1/incidents/{incident}/acknowledge", API_OPERATE),
    RoutePermission("POST", "/api/v1/incidents/{incident}/notes", API_OPERATE, {"text": "ticket 4411"}),
    RoutePermission("GET", "/api/v1/collectors", API_READ),
    RoutePermission("GET", "/api/v1/clusters", API_READ),
    RoutePermission("GET", "/api/v1/clusters/prod", API_READ),
    RoutePermission("GET", "/api/v1/clusters/prod/safe_to_stop", API_READ),
    RoutePermission("GET", "/api/v1/clusters/prod/capabilities", API_READ),
    RoutePermission("GET", "/api/v1/clusters/prod/series", API_READ),
    RoutePermission("GET", "/api/v1/clusters/prod/series/groups", API_READ),
    RoutePermission("GET", "/api/v1/groups/prod/billing/series", API_READ),
    RoutePermission("GET", "/api/v1/partitions/prod/payments/0/series", API_READ),
    RoutePermission("GET", "/api/v1/partitions/prod/payments/0/records/7", API_READ),
    RoutePermission("GET", "/api/v1/clusters/prod/preflight", API_READ),
    RoutePermission("GET", "/api/v1/clusters/prod/coordinators", API_READ),
    RoutePermission("GET", "/api/v1/actions", API_READ),
    RoutePermission("GET", "/api/v1/actions/{action}", API_READ),
    RoutePermission("POST", "/api/v1/actions/plan", API_OPERATE, _FENCE | {"subjects": ["payments-7"]}),
    RoutePermission("POST", "/api/v1/actions/{action}/execute", API_OPERATE, _CONFIRM),
    RoutePermission("GET", "/api/v1/audit", API_AUDIT),
    RoutePermission("GET", "/api/v1/alerts", API_READ),
    RoutePermission("GET", "/api/v1/alerts/{alert}", API_READ),
    RoutePermission("GET", "/api/v1/channels", API_READ),
    RoutePermission(
        "POST", "/api/v1/channels", API_ADMINISTER, {"name": "b", "kind": "webhook", "url": "http://b.test/"}
    ),
    RoutePermission("GET", "/api/v1/channels/{channel}", API_READ),
    RoutePermission("PATCH", "/api/v1/channels/{channel}", API_ADMINISTER, {"name": "another"}),
    RoutePermission("DELETE", "/api/v1/channels/{channel}", API_ADMINISTER),
    RoutePermission("POST", "/api/v1/channels/{channel}/secret", API_ADMINISTER),
    RoutePermission("DELETE", "/api/v1/channels/{channel}/secret/old", API_ADMINISTER),
    RoutePermission("POST", "/api/v1/channels/{channel}/test", API_OPERATE),
    RoutePermission("GET", "/api/v1/deliveries", API_READ),
    RoutePermission("GET", "/api/v1/deliveries/{delivery}", API_READ),
    RoutePermission("POST", "/api/v1/deliveries/{delivery}/again", API_OPERATE),
    RoutePermission("GET", "/api/v1/silences", API_READ),
    RoutePermission(
        "POST",
        "/api/v1/silences",
        API_OPERATE,
        {"matchers": 'alertname="coordinator_overdue"', "reason": "x", "duration_s": 60},
    ),
    RoutePermission("GET", "/api/v1/silences/{silence}", API_READ),
    RoutePermission("DELETE", "/api/v1/silences/{silence}", API_OPERATE),
)
