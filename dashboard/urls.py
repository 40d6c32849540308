"""The table of contents: every address of the dashboard."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth import views as auth
from django.urls import path

from dashboard.api import api, ingest, problems
from dashboard.views import (
    fencing,
    groups,
    health,
    history_page,
    overview,
    partitions,
    queries,
    recoveries,
    rules_page,
    system,
    transactions,
)

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("transactions", transactions.transaction_list, name="transactions"),
    path(
        "transactions/<str:cluster>/<path:transactional_id>",
        transactions.transaction_detail,
        name="transaction",
    ),
    path("fencing", fencing.fencing, name="fencing"),
    path("partitions", partitions.partition_list, name="partitions"),
    path(
        "partitions/<str:cluster>/<str:topic>/<int:partition>", partitions.partition_detail, name="partition"
    ),
    path(
        "partitions/<str:cluster>/<str:topic>/<int:partition>/replicas",
        partitions.ask_replicas,
        name="ask-replicas",
    ),
    path("groups", groups.group_list, name="groups"),
    path("groups/<str:cluster>/<path:group_id>", groups.group_detail, name="group"),
    path("queries", queries.query_list, name="queries"),
    path("queries/<str:cluster>/<path:ident>", queries.query_detail, name="query"),
    path("recoveries", recoveries.recovery_list, name="recoveries"),
    path("recoveries/<str:cluster>/<int:number>", recoveries.recovery_detail, name="recovery"),
    path("history", history_page.history, name="history"),
    path("rules/<slug:name>", rules_page.rule, name="rule"),
    path("system", system.system, name="system"),
    path("login/", auth.LoginView.as_view(template_name="login.html"), name="login"),
    path("logout/", auth.LogoutView.as_view(), name="logout"),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("ingest/v1/progress", ingest.progress, name="ingest"),
    path("api/v1/", api.urls),
    path("api/<path:_>", lambda request, _: problems.nowhere(request)),
    path("admin/", admin.site.urls),
]
