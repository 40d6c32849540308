"""All addresses of the dashboard."""

from django.contrib import admin
from django.urls import path, re_path

from dashboard.api import api, ingest, problems, prometheus
from dashboard.web.pages import page_urls, system
from dashboard.web.pages.access import sign_in, single_sign_on
from dashboard.web.server import bundles, former_paths

urlpatterns = [
    *page_urls(),
    path("feed", former_paths.feed),
    path("fencing", former_paths.fencing),
    path("history", former_paths.history),
    path("login/", sign_in.SignIn.as_view(), name="login"),
    path("access/welcome/<str:uidb64>/<str:token>", sign_in.SetPassword.as_view(), name="welcome"),
    path("sign-in/<slug:name>", single_sign_on.begin, name="sign-in-at"),
    path("sign-in/<slug:name>/callback", single_sign_on.callback, name="sign-in-callback"),
    path("logout/", single_sign_on.sign_out, name="logout"),
    path("static/bundles/<str:name>", bundles.serve_bundle, name="bundle"),
    path("favicon.ico", bundles.serve_bundle, {"name": "icon.svg"}, name="favicon"),
    path("healthz", system.healthz, name="healthz"),
    path("readyz", system.readyz, name="readyz"),
    path("metrics", prometheus.metrics, name="metrics"),
    path("ingest/v1/progress", ingest.ingest_progress, name="ingest"),
    path("api", former_paths.api_docs),
    path("api/v1", former_paths.api_docs),
    path("api/v1/", former_paths.api_docs),
    path("api/v1/", api.urls),
    re_path(r"^api(?:/[\s\S]*)?$", problems.unknown_path),
    re_path(r"^ingest(?:/[\s\S]*)?$", problems.unknown_path),
    path("admin/login/", sign_in.admin_sign_in),
    path("admin/", admin.site.urls),
]
