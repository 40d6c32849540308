"""Proves what all lists of pages have in common: values of their address that cannot be used, and names
that break pages."""

import html
import re
from urllib.parse import urlencode

import pytest
from django.test import Client

from dashboard.models import Cluster
from dashboard.runtime.criteria import parameter_choices, parameter_fields
from dashboard.web.forms import lists as list_forms
from dashboard.web.pages.access.audit import AuditListQuery
from dashboard.web.pages.actions import ActionListQuery
from dashboard.web.pages.alerting.alerts import AlertListQuery
from dashboard.web.pages.alerting.deliveries import DeliveryListQuery
from dashboard.web.pages.events import EventListQuery
from dashboard.web.pages.flink import FlinkJobListQuery
from dashboard.web.pages.groups import GroupListQuery
from dashboard.web.pages.incidents import IncidentListQuery
from dashboard.web.pages.partitions import PartitionListQuery
from dashboard.web.pages.queries import QueryListQuery
from dashboard.web.pages.recoveries import RecoveryListQuery
from dashboard.web.pages.transactions import TransactionListQuery
from fenceline.decode import text
from tests.cases import cases
from tests.web import factories
from tests.web.roles import page_html, row_ids

pytestmark = pytest.mark.django_db

LISTS: dict[str, type[list_forms.ListQuery]] = {
    "access": list_forms.NumberedList,
    "access/tokens": list_forms.NumberedList,
    "actions": ActionListQuery,
    "alerts": AlertListQuery,
    "audit": AuditListQuery,
    "deliveries": DeliveryListQuery,
    "events": EventListQuery,
    "flink-jobs": FlinkJobListQuery,
    "groups": GroupListQuery,
    "incidents": IncidentListQuery,
    "partitions": PartitionListQuery,
    "queries": QueryListQuery,
    "recoveries": RecoveryListQuery,
    "transactions": TransactionListQuery,
}
#: Beside words: what is said of a value that is wrong.
EXPECTED = {
    "page": "is not a page number",
    "before": "is not a place",
    "cluster": "is not configured",
    "channel": "is not a number",
    "min_age_s": "is not a number of seconds",
}
WRONG = "zzyzx"
NAMES = [text.escape_bytes(raw) for raw in factories.HOSTILE_IDS]


@pytest.fixture(scope="module")
def hostile(rows_of_module: None) -> Cluster:
    """A cluster whose nouns have a row for each name that breaks pages."""
    of = factories.watched_cluster()
    for raw in (*factories.HOSTILE_IDS, factories.LONG_ID, b"x" * 513, b"x" * 512):
        factories.takeover_history(of, raw)
        factories.group_offset(factories.group(of, raw))
        factories.recovery(of, raw, resumed_by="<b>x</b>")
    for number, name in enumerate(NAMES):
        factories.alert(of, f"transaction:{name}")
        factories.incident_of(of, factories.finding(of, f"transaction:{name}"))
        factories.batch(factories.query(of, name, f"id-{number}"), 1_203)
        factories.flink_job(of, [factories.committable(name)], ident=f"job@{number}", prefix=name)
        factories.audit_entry(actor=name, subject_name=name, changes={f"n {name}": [name, [name]]})
        factories.topic_tally(of, name, "a" * 249)
    factories.planned_action(factories.plan(*map(factories.fence_subject, NAMES)))
    return of


@pytest.mark.parametrize("noun", LISTS)
def test_a_value_that_cannot_be_used_is_ignored_and_named(admin: Client, hostile: Cluster, noun: str) -> None:
    form = LISTS[noun]
    choices = {name: parameter_choices(form, name) for name in parameter_fields(form) if name != "given"}
    asked = {name for name in choices if choices[name] or name in EXPECTED} - {"size"}
    query = urlencode(dict.fromkeys(sorted(asked - form.api_only), WRONG))
    shown = html.unescape(page_html(admin, f"/{noun}?{query}"))
    for name in asked - form.api_only:
        said = f"is none of {', '.join(choices[name])}" if choices.get(name) else EXPECTED[name]
        assert f"{name} “{WRONG}” {said}" in shown
    assert row_ids(shown) == row_ids(page_html(admin, f"/{noun}"))


ODD = (
    "%00",
    "%ff%fe",
    "%25",
    "-99999999999999999999",
    "a-%C2%B2",
    "x" * 200,
    "%F0%9F%98%80",
    "'; drop table",
)


@pytest.mark.parametrize("noun", LISTS)
def test_no_search_breaks_a_page(admin: Client, hostile: Cluster, noun: str) -> None:
    names = parameter_fields(LISTS[noun]).keys() & {"q", "application", "team", "rule", "who", "family"}
    for value in ODD:
        query = "&".join(f"{name}={value}" for name in sorted(names))
        assert admin.get(f"/{noun}?{query}").status_code == 200, query


@cases(
    ("transactions", "transactions", 14),
    ("groups", "groups", 14),
    ("recoveries", "recoveries", 14),
    ("queries", "queries", 11),
    ("flink-jobs", "flink-jobs", 11),
    ("alerts", "alerts", 11),
    ("incidents", "incidents", 11),
    ("actions", "actions", 1),
    ("events?last=30d", "transactions", 11),
    ("audit", "audit", 0),
    ("pipelines", "topics", 0),
)
def test_any_name_is_shown_escaped_and_leads_to_its_page(
    admin: Client, hostile: Cluster, noun: str, path: str, least: int
) -> None:
    listed = admin.get(f"/{noun}").content.decode()
    links = set(re.findall(rf'href="(/{path}/[^"#]+)"', listed.partition("<main")[2]))
    pages = [admin.get(html.unescape(link)) for link in links]
    assert len(links) >= least
    assert all(len(link) < 2_000 and link.isascii() for link in links)
    assert {page.status_code for page in pages} <= {200}
    for markup in (listed, *(page.content.decode() for page in pages)):
        assert "<script>alert" not in markup
        assert "<b>x</b>" not in markup
        assert "\u202e" not in markup


@pytest.mark.parametrize("noun", ["flink-jobs", "groups", "queries", "recoveries", "transactions"])
def test_a_cluster_that_is_no_longer_configured_is_not_shown(
    admin: Client, hostile: Cluster, noun: str
) -> None:
    links = re.findall(rf'href="(/{noun}/prod/[^"#]+)"', page_html(admin, f"/{noun}"))
    Cluster.objects.update(configured=False)
    assert row_ids(page_html(admin, f"/{noun}")) == []
    assert admin.get(html.unescape(links[0])).status_code == 404
