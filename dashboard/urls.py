"""The table of contents: every address of the dashboard."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth import views as auth
from django.urls import path

from dashboard.api import api, problems
from dashboard.views import fencing, health, overview, system, transactions

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("transactions", transactions.transaction_list, name="transactions"),
    path(
        "transactions/<str:cluster>/<path:transactional_id>",
        transactions.transaction_detail,
        name="transaction",
    ),
    path("fencing", fencing.fencing, name="fencing"),
    path("system", system.system, name="system"),
    path("login/", auth.LoginView.as_view(template_name="login.html"), name="login"),
    path("logout/", auth.LogoutView.as_view(), name="logout"),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("api/v1/", api.urls),
    path("api/<path:_>", lambda request, _: problems.nowhere(request)),
    path("admin/", admin.site.urls),
]
