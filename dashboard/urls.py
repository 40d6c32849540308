"""All addresses of the dashboard, with former ones, which redirect."""

from collections.abc import Mapping
from urllib.parse import urlencode

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import path, re_path, reverse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from dashboard.api import api, ingest, problems, prometheus
from dashboard.web.forms import time_ranges
from dashboard.web.pages import page_urls, system
from dashboard.web.pages.access import sign_in
from dashboard.web.rendering import signed_in
from dashboard.web.server import bundles
from fenceline.history.timeline import ROUTINE, EventSource

#: The default range of the former page of fences.
_FENCING_LAST = "24h"


@signed_in
def feed(request: HttpRequest) -> HttpResponse:
    """Redirect the live feed to the transitions among the events."""
    return _moved("events", {**request.GET.dict(), "source": EventSource.TRANSITION.value})


@signed_in
def fencing(request: HttpRequest) -> HttpResponse:
    """Redirect the list of fences and aborts to the transitions among the events. The former list hid
    re-initialisations by default.
    """
    kept = {name: value for name, value in request.GET.dict().items() if name not in ("kind", "before")}
    kind = request.GET.get("kind", "")
    wanted = {} if kind in ("", "all") else {"kind": kind}
    single = {"unfolded": "true"} if kind == "all" or kind in ROUTINE else {}
    ranged = _with_range(kept, _FENCING_LAST)
    return _moved("events", {**ranged, "source": EventSource.TRANSITION.value, **wanted, **single})


@signed_in
def history(request: HttpRequest) -> HttpResponse:
    """Redirect the former page of the history job to the reports."""
    return _moved("reports", _with_range(request.GET.dict(), ""))


@csrf_exempt
@require_safe
def api_docs(request: HttpRequest) -> HttpResponse:
    """Redirect the root of the API to its description, which needs no sign-in."""
    return redirect("api-1:openapi-view")


def _with_range(asked: Mapping[str, str], last: str) -> Mapping[str, str]:
    """Return parameters with a time range in place of `since`, which named a range that ends now."""
    rest = {name: value for name, value in asked.items() if name != "since"}
    if any(name in asked for name in time_ranges.PARAMETERS):
        return rest
    last = asked.get("since", last)
    return {**rest, **({"last": last} if last else {})}


def _moved(name: str, asked: Mapping[str, str]) -> HttpResponse:
    query = urlencode(asked, safe=":")
    return redirect(f"{reverse(name)}{'?' if query else ''}{query}")


urlpatterns = [
    *page_urls(),
    path("feed", feed),
    path("fencing", fencing),
    path("history", history),
    path("login/", sign_in.SignIn.as_view(), name="login"),
    path("access/welcome/<str:uidb64>/<str:token>", sign_in.SetPassword.as_view(), name="welcome"),
    path("sign-in/<slug:name>", sign_in.begin, name="sign-in-at"),
    path("sign-in/<slug:name>/callback", sign_in.callback, name="sign-in-callback"),
    path("logout/", sign_in.sign_out, name="logout"),
    path("static/bundles/<str:name>", bundles.serve_bundle, name="bundle"),
    path("favicon.ico", bundles.serve_bundle, {"name": "icon.svg"}, name="favicon"),
    path("healthz", system.healthz, name="healthz"),
    path("readyz", system.readyz, name="readyz"),
    path("metrics", prometheus.metrics, name="metrics"),
    path("ingest/v1/progress", ingest.ingest_progress, name="ingest"),
    path("api", api_docs),
    path("api/v1", api_docs),
    path("api/v1/", api_docs),
    path("api/v1/", api.urls),
    re_path(r"^api(?:/[\s\S]*)?$", problems.unknown_path),
    re_path(r"^ingest(?:/[\s\S]*)?$", problems.unknown_path),
    path("admin/login/", sign_in.admin_sign_in),
    path("admin/", admin.site.urls),
]
