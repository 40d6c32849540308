"""Liveness and readiness of this process, for supervisors and load balancers."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from dashboard.system.readiness import find_troubles


@never_cache
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Answer "ok", because the process is alive; no dependency is checked."""
    return HttpResponse("ok\n", content_type="text/plain; charset=utf-8")


@never_cache
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Answer 200 if pages can be served, else 503; each part is true or the reason why it fails."""
    parts = find_troubles()
    states = {name: trouble or True for name, trouble in parts.items()}
    return JsonResponse(states, status=503 if any(parts.values()) else 200)
