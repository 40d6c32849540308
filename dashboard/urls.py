"""The table of contents: every address of the dashboard."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.views import LogoutView
from django.urls import path, re_path

from dashboard.api import api, ingest, problems, prometheus
from dashboard.web.pages import (
    actions,
    audit,
    feed,
    fencing,
    groups,
    health,
    overview,
    parent_paths,
    partitions,
    queries,
    recoveries,
    sign_in,
    system,
    transactions,
)
from dashboard.web.pages import history as history_page
from dashboard.web.pages.alerting import alerts, channels, deliveries, silences
from dashboard.web.pages.alerting import rules as rules_page

urlpatterns = [
    path("", overview.overview_page, name="overview"),
    path("transactions", transactions.transaction_list, name="transactions"),
    path(
        "transactions/<str:cluster>/<text:transactional_id>",
        transactions.transaction_detail,
        name="transaction",
    ),
    path("transactions/<str:cluster>", parent_paths.transactions),
    path("fencing", fencing.fencing_page, name="fencing"),
    path("partitions", partitions.partition_list, name="partitions"),
    path(
        "partitions/<str:cluster>/<str:topic>/<int:partition>", partitions.partition_detail, name="partition"
    ),
    path(
        "partitions/<str:cluster>/<str:topic>/<int:partition>/replicas",
        partitions.ask_replicas,
        name="ask-replicas",
    ),
    path("partitions/<str:cluster>", parent_paths.partitions),
    path("partitions/<str:cluster>/<str:topic>", parent_paths.partitions),
    path("groups", groups.group_list, name="groups"),
    path("groups/<str:cluster>/<text:group_id>", groups.group_detail, name="group"),
    path("groups/<str:cluster>", parent_paths.groups),
    path("queries", queries.query_list, name="queries"),
    path("queries/<str:cluster>/<text:ident>", queries.query_detail, name="query"),
    path("queries/<str:cluster>", parent_paths.queries),
    path("recoveries", recoveries.recovery_list, name="recoveries"),
    path("recoveries/<str:cluster>/<int:number>", recoveries.recovery_detail, name="recovery"),
    path("recoveries/<str:cluster>", parent_paths.recoveries),
    path("feed", feed.feed_page, name="feed"),
    path("actions", actions.action_list, name="actions"),
    path("actions/plan", actions.make_plan, name="action-plan"),
    path("actions/<int:number>", actions.one_action, name="action"),
    path("audit", audit.entry_list, name="audit"),
    path("alerts", alerts.alert_list, name="alerts"),
    path("alerts/<int:number>", alerts.alert_detail, name="alert"),
    path("channels", channels.channel_list, name="channels"),
    path("channels/new", channels.new_form, name="channel-new"),
    path("channels/add", channels.add, name="channel-add"),
    path("channels/<int:number>", channels.channel_detail, name="channel"),
    path("channels/<int:number>/edit", channels.edit, name="channel-edit"),
    path("channels/<int:number>/change", channels.change, name="channel-change"),
    path("channels/<int:number>/secret", channels.show_secret, name="channel-secret"),
    path("channels/<int:number>/rotate", channels.rotate, name="channel-rotate"),
    path("channels/<int:number>/end-old", channels.end_old, name="channel-end-old"),
    path("channels/<int:number>/enable", channels.enable, name="channel-enable"),
    path("channels/<int:number>/disable", channels.disable, name="channel-disable"),
    path("channels/<int:number>/test", channels.test, name="channel-test"),
    path("channels/<int:number>/delete", channels.confirm_delete, name="channel-delete"),
    path("channels/<int:number>/delete-now", channels.delete, name="channel-delete-now"),
    path("deliveries", deliveries.delivery_list, name="deliveries"),
    path("deliveries/<int:number>", deliveries.delivery_detail, name="delivery"),
    path("deliveries/<int:number>/again", deliveries.send_again, name="delivery-again"),
    path("silences", silences.silence_list, name="silences"),
    path("silences/new", silences.new_form, name="silence-new"),
    path("silences/preview", silences.preview, name="silence-preview"),
    path("silences/make", silences.make, name="silence-make"),
    path("silences/<int:number>", silences.silence_detail, name="silence"),
    path("silences/<int:number>/end", silences.end, name="silence-end"),
    path("history", history_page.history_page, name="history"),
    path("rules", rules_page.rule_list, name="rules"),
    path("rules/<slug:name>", rules_page.rule_page, name="rule"),
    path("system", system.system_page, name="system"),
    path("login/", sign_in.SignIn.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", prometheus.metrics, name="metrics"),
    path("ingest/v1/progress", ingest.ingest_progress, name="ingest"),
    path("api", parent_paths.api_docs),
    path("api/v1", parent_paths.api_docs),
    path("api/v1/", parent_paths.api_docs),
    path("api/v1/", api.urls),
    re_path(r"^api(?:/[\s\S]*)?$", problems.unknown_path),
    re_path(r"^ingest(?:/[\s\S]*)?$", problems.unknown_path),
    path("admin/login/", sign_in.admin_sign_in),
    path("admin/", admin.site.urls),
]
