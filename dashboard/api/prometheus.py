"""`/metrics`: the endpoint for Prometheus. It needs a token of a role that may read, except on loopback.

A token sent on loopback is checked too. The connection decides whether a client is on loopback, never a
header. Behind a proxy every client needs a token: the proxy may forward remote requests over loopback.
"""

from http import HTTPStatus
from ipaddress import ip_address

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import exposition
from prometheus_client.openmetrics import exposition as openmetrics

from dashboard.models import Token
from dashboard.runtime import loop
from dashboard.runtime.problems import problem_response
from dashboard.system import cluster_limits
from dashboard.system.metrics import Metrics
from dashboard.system.tokens import TokenRefused, bearer_token

_FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via")
_REMEDY = (
    "make one with `manage.py create_token NAME --role viewer` and send it as `Authorization: Bearer TOKEN`"
)


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer in Prometheus' text format, or in OpenMetrics' if the Accept header names it."""
    needs_token = not _is_local(request) or "Authorization" in request.headers
    if needs_token and (refusal := _refusal(request)):
        return refusal
    wanted = request.headers.get("Accept", "")
    form = openmetrics if "application/openmetrics-text" in wanted else exposition
    kind = openmetrics.CONTENT_TYPE_LATEST if form is openmetrics else exposition.CONTENT_TYPE_PLAIN_0_0_4
    return HttpResponse(form.generate_latest(Metrics(loop.now_ms())), content_type=kind)


def _is_local(request: HttpRequest) -> bool:
    """Whether the client runs on this machine, and no proxy forwarded the request."""
    try:
        address = ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:
        return False
    is_forwarded = settings.IS_BEHIND_PROXY or any(name in request.headers for name in _FORWARDED)
    return address.is_loopback and not is_forwarded


def _refusal(request: HttpRequest) -> HttpResponse | None:
    try:
        known = bearer_token(request)
    except TokenRefused as refused:
        response = problem_response(
            HTTPStatus.UNAUTHORIZED, f"{refused} This needs a token that may read: {_REMEDY}."
        )
        response["WWW-Authenticate"] = "Bearer"
        return response
    if known.role == Token.Role.INGEST:
        why = f"A token of the role {known.role} may not read: {_REMEDY}."
        return problem_response(HTTPStatus.FORBIDDEN, why)
    if reason := cluster_limits.limit_caller(request, cluster_limits.limit_of_token(known)):
        return problem_response(HTTPStatus.FORBIDDEN, reason)
    return None
