"""Every way in and who may take it: one line for each method of each route. Another route needs a line here.

`{NAME}` in a path is the number of a row of that kind that `tests.web.test_permissions` makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Who asks: sessions by role, then tokens by role.
CALLERS = (
    "anonymous", "no role", "viewer", "operator", "admin",
    "token viewer", "token operator", "token admin", "token ingest",
)  # fmt: skip
#: What they meet: they are let in; they are led to the sign-in; 401; 403.
IN, SIGN_IN, UNKNOWN, FORBIDDEN = "in", "sign-in", "401", "403"


@dataclass(frozen=True, slots=True)
class Rule:
    """What each of CALLERS meets, in their order, and what when READ_ONLY is set: the same if None."""

    usual: tuple[str, ...]
    read_only: tuple[str, ...] | None = None

    def of(self, caller: str, *, read_only: bool) -> str:
        """Return what a caller meets."""
        row = self.read_only if read_only and self.read_only is not None else self.usual
        return row[CALLERS.index(caller)]


_STRANGERS = (SIGN_IN,) * 4
#: Open to everybody.
OPEN = Rule((IN,) * 9)
#: A page: for whoever is signed in and has a role; tokens are for the API.
PAGE = Rule((SIGN_IN, FORBIDDEN, IN, IN, IN, *_STRANGERS))
#: A page that does something: what an operator may, what only an admin may.
_NOBODY = (SIGN_IN, *(FORBIDDEN,) * 4, *_STRANGERS)
OPERATE = Rule((SIGN_IN, FORBIDDEN, FORBIDDEN, IN, IN, *_STRANGERS), _NOBODY)
ADMINISTER = Rule((SIGN_IN, FORBIDDEN, FORBIDDEN, FORBIDDEN, IN, *_STRANGERS), _NOBODY)
#: A page for admins alone, to look at.
AUDIT = Rule((SIGN_IN, *(FORBIDDEN,) * 3, IN, *_STRANGERS))
#: The API: looking, and the same two.
LOOK = Rule((UNKNOWN, FORBIDDEN, IN, IN, IN, IN, IN, IN, UNKNOWN))
_NO_CALLER = (UNKNOWN, *(FORBIDDEN,) * 7, UNKNOWN)
CALL = Rule((UNKNOWN, FORBIDDEN, FORBIDDEN, IN, IN, FORBIDDEN, IN, IN, UNKNOWN), _NO_CALLER)
CALL_ADMIN = Rule((UNKNOWN, *(FORBIDDEN,) * 3, IN, FORBIDDEN, FORBIDDEN, IN, UNKNOWN), _NO_CALLER)
CALL_AUDIT = Rule((UNKNOWN, *(FORBIDDEN,) * 3, IN, FORBIDDEN, FORBIDDEN, IN, UNKNOWN))
#: What programs without a session ask.
INGEST = Rule((*(UNKNOWN,) * 5, *(FORBIDDEN,) * 3, IN))
SCRAPE = Rule((*(UNKNOWN,) * 5, IN, IN, IN, FORBIDDEN))


@dataclass(frozen=True, slots=True)
class Door:
    """One method of one route."""

    method: str
    path: str
    rule: Rule
    #: What is sent: as a form to pages, as JSON to the API.
    body: Mapping[str, Any] = field(default_factory=dict)
    #: False where whoever is let in finds nothing: 404.
    there: bool = True


_FENCE = {"cluster": "prod", "act": "fence"}
_CONFIRM = {"digest": "another plan's", "confirm": "payments-7", "reason": "ticket 4411"}
_SILENCE = {"matchers": 'alertname="coordinator_overdue"', "reason": "ticket 4411", "ends": "2h"}

DOORS = (
    # Pages.
    Door("GET", "/", PAGE),
    Door("GET", "/transactions", PAGE),
    Door("GET", "/transactions/prod/payments-7", PAGE),
    Door("GET", "/transactions/prod", PAGE),
    Door("GET", "/fencing", PAGE),
    Door("GET", "/partitions", PAGE),
    Door("GET", "/partitions/prod", PAGE),
    Door("GET", "/partitions/prod/payments", PAGE),
    Door("GET", "/partitions/prod/payments/0", PAGE),
    Door("POST", "/partitions/prod/payments/0/replicas", OPERATE),
    Door("GET", "/groups", PAGE),
    Door("GET", "/groups/prod", PAGE),
    Door("GET", "/groups/prod/billing", PAGE),
    Door("GET", "/queries", PAGE),
    Door("GET", "/queries/prod", PAGE),
    Door("GET", "/queries/prod/{query}", PAGE),
    Door("GET", "/recoveries", PAGE),
    Door("GET", "/recoveries/prod", PAGE),
    Door("GET", "/recoveries/prod/{recovery}", PAGE),
    Door("GET", "/feed", PAGE),
    Door("GET", "/history", PAGE),
    Door("GET", "/rules", PAGE),
    Door("GET", "/rules/open_too_long", PAGE),
    Door("GET", "/system", PAGE),
    # Acting.
    Door("GET", "/actions", PAGE),
    Door("GET", "/actions/{action}", PAGE),
    Door("POST", "/actions/plan", OPERATE, _FENCE | {"subject": "payments-7"}),
    Door("POST", "/actions/{action}", OPERATE, _CONFIRM),
    Door("GET", "/audit", AUDIT),
    # Alerting.
    Door("GET", "/events", PAGE),
    Door("GET", "/find", PAGE),
    Door("GET", "/incidents", PAGE),
    Door("GET", "/incidents/{incident}", PAGE),
    Door("GET", "/incidents/{incident}.md", PAGE),
    Door("GET", "/incidents/{incident}.html", PAGE),
    Door("POST", "/incidents/{incident}/acknowledge", OPERATE),
    Door("POST", "/incidents/{incident}/notes", OPERATE, {"text": "ticket 4411"}),
    Door("GET", "/alerts", PAGE),
    Door("GET", "/alerts/{alert}", PAGE),
    Door("GET", "/channels", PAGE),
    Door("GET", "/channels/{channel}", PAGE),
    Door("GET", "/channels/new", ADMINISTER),
    Door("POST", "/channels/add", ADMINISTER),
    Door("GET", "/channels/{channel}/edit", ADMINISTER),
    Door("POST", "/channels/{channel}/change", ADMINISTER),
    Door("GET", "/channels/{channel}/secret", PAGE),
    Door("POST", "/channels/{channel}/rotate", ADMINISTER),
    Door("POST", "/channels/{channel}/end-old", ADMINISTER),
    Door("POST", "/channels/{channel}/enable", ADMINISTER),
    Door("POST", "/channels/{channel}/disable", ADMINISTER),
    Door("GET", "/channels/{channel}/delete", ADMINISTER),
    Door("POST", "/channels/{channel}/delete-now", ADMINISTER),
    Door("POST", "/channels/{channel}/test", OPERATE),
    Door("GET", "/deliveries", PAGE),
    Door("GET", "/deliveries/{delivery}", PAGE),
    Door("POST", "/deliveries/{delivery}/again", OPERATE),
    Door("GET", "/silences", PAGE),
    Door("GET", "/silences/{silence}", PAGE),
    Door("GET", "/silences/preview", PAGE),
    Door("GET", "/silences/new", OPERATE),
    Door("POST", "/silences/make", OPERATE, _SILENCE),
    Door("POST", "/silences/{silence}/end", OPERATE),
    # Without a role.
    Door("GET", "/login/", OPEN),
    Door("POST", "/login/", OPEN, {"username": "nobody", "password": "wrong"}),
    Door("GET", "/static/bundles/app.css", OPEN),
    Door("GET", "/healthz", OPEN),
    Door("GET", "/readyz", OPEN),
    Door("GET", "/metrics", SCRAPE),
    Door("POST", "/ingest/v1/progress", INGEST),
    Door("GET", "/api/nowhere", OPEN, there=False),
    Door("GET", "/ingest/nowhere", OPEN, there=False),
    # The API.
    Door("GET", "/api/v1/openapi.json", OPEN),
    Door("GET", "/api/v1/docs", OPEN),
    Door("GET", "/api", OPEN),
    Door("GET", "/api/v1", OPEN),
    Door("GET", "/api/v1/", OPEN),
    Door("GET", "/api/v1/transactions", LOOK),
    Door("GET", "/api/v1/transactions/prod/payments-7", LOOK),
    Door("GET", "/api/v1/events", LOOK),
    Door("GET", "/api/v1/exports/transactions.csv", LOOK),
    Door("GET", "/api/v1/transitions", LOOK),
    Door("GET", "/api/v1/applications", LOOK),
    Door("GET", "/api/v1/partitions", LOOK),
    Door("GET", "/api/v1/partitions/prod/payments/0", LOOK),
    Door("GET", "/api/v1/partitions/prod/payments/0/series", LOOK),
    Door("GET", "/api/v1/groups", LOOK),
    Door("GET", "/api/v1/groups/prod/billing", LOOK),
    Door("GET", "/api/v1/groups/prod/billing/series", LOOK),
    Door("GET", "/api/v1/history/applications", LOOK, there=False),
    Door("GET", "/api/v1/history/ids", LOOK, there=False),
    Door("GET", "/api/v1/history/days", LOOK, there=False),
    Door("GET", "/api/v1/queries", LOOK),
    Door("GET", "/api/v1/queries/{query}", LOOK),
    Door("GET", "/api/v1/queries/{query}/batches", LOOK),
    Door("GET", "/api/v1/queries/{query}/safe_to_stop", LOOK),
    Door("GET", "/api/v1/recoveries", LOOK),
    Door("GET", "/api/v1/recoveries/prod/{recovery}", LOOK),
    Door("GET", "/api/v1/findings", LOOK),
    Door("GET", "/api/v1/findings/{finding}", LOOK),
    Door("GET", "/api/v1/incidents", LOOK),
    Door("GET", "/api/v1/incidents/{incident}", LOOK),
    Door("POST", "/api/v1/incidents/{incident}/acknowledge", CALL),
    Door("POST", "/api/v1/incidents/{incident}/notes", CALL, {"text": "ticket 4411"}),
    Door("GET", "/api/v1/collectors", LOOK),
    Door("GET", "/api/v1/clusters", LOOK),
    Door("GET", "/api/v1/clusters/prod", LOOK),
    Door("GET", "/api/v1/clusters/prod/safe_to_stop", LOOK),
    Door("GET", "/api/v1/clusters/prod/series", LOOK),
    Door("GET", "/api/v1/clusters/prod/series/groups", LOOK),
    Door("GET", "/api/v1/actions", LOOK),
    Door("GET", "/api/v1/actions/{action}", LOOK),
    Door("POST", "/api/v1/actions/plan", CALL, _FENCE | {"subjects": ["payments-7"]}),
    Door("POST", "/api/v1/actions/{action}/execute", CALL, _CONFIRM),
    Door("GET", "/api/v1/audit", CALL_AUDIT),
    Door("GET", "/api/v1/alerts", LOOK),
    Door("GET", "/api/v1/alerts/{alert}", LOOK),
    Door("GET", "/api/v1/channels", LOOK),
    Door("POST", "/api/v1/channels", CALL_ADMIN, {"name": "b", "kind": "webhook", "url": "http://b.test/"}),
    Door("GET", "/api/v1/channels/{channel}", LOOK),
    Door("PATCH", "/api/v1/channels/{channel}", CALL_ADMIN, {"name": "another"}),
    Door("DELETE", "/api/v1/channels/{channel}", CALL_ADMIN),
    Door("POST", "/api/v1/channels/{channel}/secret", CALL_ADMIN),
    Door("DELETE", "/api/v1/channels/{channel}/secret/old", CALL_ADMIN),
    Door("POST", "/api/v1/channels/{channel}/test", CALL),
    Door("GET", "/api/v1/deliveries", LOOK),
    Door("GET", "/api/v1/deliveries/{delivery}", LOOK),
    Door("POST", "/api/v1/deliveries/{delivery}/again", CALL),
    Door("GET", "/api/v1/silences", LOOK),
    Door(
        "POST",
        "/api/v1/silences",
        CALL,
        {"matchers": 'alertname="coordinator_overdue"', "reason": "x", "duration_s": 60},
    ),
    Door("GET", "/api/v1/silences/{silence}", LOOK),
    Door("DELETE", "/api/v1/silences/{silence}", CALL),
)
