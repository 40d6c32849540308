"""Proves that the first page has one card for each incident, the one that is lost first first, and that the
list of incidents shows what its address asks for."""

import html
import re

import pytest
from django.test import Client

from dashboard.models import Cluster, FindingRecord, Incident, IncidentFinding
from fenceline.history.time_range import format_instant
from tests.cases import cases
from tests.web import factories, scenarios
from tests.web.roles import page_html

pytestmark = pytest.mark.django_db
Role = IncidentFinding.Role


def headline(text: str) -> str:
    found = re.search(r"<h1[^>]*data-headline[^>]*>(.*?)</h1>", text)
    assert found
    return " ".join(re.sub("<[^>]+>", "", found[1]).split())


def cards(text: str) -> list[str]:
    return re.findall(r'<li class="incident edge-\w+" id="finding-(\d+)"', text)


def card(text: str, of: FindingRecord) -> str:
    """The markup of one card."""
    return text.partition(f'id="finding-{of.pk}"')[2].partition("</details>")[0]


def acts(markup: str) -> list[str]:
    """The one action of each incident: an act that is planned, or a link."""
    found = re.findall(r'name="act" value="(\w+)"|(data-primary)', markup)
    return [act or link for act, link in found]


def test_effects_are_folded_into_the_card_of_their_cause(page: Client, prod: Cluster) -> None:
    cause, effect = (
        factories.finding(prod, "transaction:payments-7"),
        factories.finding(prod, "partition:payments-0"),
    )
    row = factories.incident_of(prod, cause, effect, severity="critical", owner="Payments")
    alone = factories.finding(prod, "group:billing")
    text = page_html(page, "/")
    assert cards(text) == [str(cause.pk), str(alone.pk)]
    assert re.findall(r'data-incident="(\d+)"', text) == [str(row.pk)]
    folded = card(text, cause).partition("<details")[2]
    assert f'data-effect="{effect.pk}"' in folded
    assert effect.summary in folded
    # Its severity is that of the incident, which is the worst of cause and effects.
    assert 'mark-critical"' in card(text, cause)
    assert "<dd><bdi>Payments</bdi></dd>" in card(text, cause)
    assert "(2) Incidents" in text


def test_a_card_stays_with_an_effect_that_outlives_its_cause(page: Client, prod: Cluster) -> None:
    effect = factories.finding(prod, "partition:payments-0", rule="group_stalled", summary="p-0 is blocked")
    cause = factories.finding(prod, "transaction:payments-7", summary="payments-7 was open")
    facts = factories.facts_of([cause]) | {
        "cause_over_ms": factories.now_ms(),
        "left_summary": effect.summary,
    }
    factories.incident_of(prod, None, effect, cause_over_ms=factories.now_ms(), facts=facts)
    cause.delete()
    text = page_html(page, "/")
    assert cards(text) == [str(effect.pk)]
    assert "p-0 is blocked" in headline(text)
    assert "payments-7 was open." in card(text, effect)


def test_what_is_lost_first_comes_first_and_is_the_headline(page: Client, prod: Cluster) -> None:
    """By damage and deadline: severity, then when records are lost, then how many readers are blocked."""
    query = scenarios.abandoned_query(prod)
    late = factories.finding(prod, "transaction:payments-7", "critical")
    factories.incident_of(prod, late, severity="critical")
    prepared = factories.finding(prod, f"query:{query.ident}", "critical", rule="batch_prepared")
    ends_ms = factories.now_ms() + 600_000
    lost = {"records_lost": 300, "transactions": 3, "partitions": 3, "groups": 0, "queries": 0, "backlog": 9}
    row = factories.incident_of(
        prod, prepared, rule=prepared.rule, subject=prepared.subject, severity="critical",
        deadline_ms=ends_ms, impact=lost,
    )  # fmt: skip
    text = page_html(page, "/")
    assert cards(text) == [str(prepared.pk), str(late.pk)]
    assert re.match(
        r"2 open incidents\. orders_enrich loses [\d,]+ rows at .+ unless batch 1,204 is finished\.",
        headline(text),
    )
    assert "orders_enrich failed in the middle of batch 1,204" in card(text, prepared)
    assert dict(re.findall(r"<dt>([\w ]+)</dt><dd>(\d+)</dd>", card(text, prepared))) == {
        "transactions prepared": "3", "partitions blocked": "3", "uncommitted backlog": "9",
        "records at risk": "300",
    }  # fmt: skip
    assert f'data-deadline="{ends_ms}"' in card(text, prepared)
    assert headline(page_html(page, f"/incidents/{row.pk}")).startswith(
        "orders_enrich failed in the middle of batch 1,204. A restart completes it; after "
    )


@cases(
    ("open_too_long", "transaction:payments-7", "fence"),
    # A broker that is away ends no transaction, whatever is done to its effects.
    ("stuck_in_prepare", "transaction:orders-1", "data-primary"),
    ("coordinator_loading", "coordinators:prod", "data-primary"),
    ("timeouts_in_a_row", "application:payments", "fence"),
    ("abort_ratio", "application:payments", "fence"),
)
def test_an_incident_offers_exactly_one_action(
    operator: Client, prod: Cluster, rule: str, subject: str, expected: str
) -> None:
    factories.transaction(prod, "payments-7", age_ms=842_000)
    effects = [
        factories.finding(prod, f"partition:payments-{number}", rule="lso_pinned") for number in range(12)
    ]
    opened = factories.finding(prod, "transaction:payments-7")
    cause = opened if subject == opened.subject else factories.finding(prod, subject, rule=rule)
    row = factories.incident_of(prod, cause, *effects, *([opened] if cause is not opened else []))
    for url in "/", f"/incidents/{row.pk}":
        assert acts(page_html(operator, url)) == [expected], url


def test_what_a_flink_checkpoint_decided_is_committed_first(operator: Client, prod: Cluster) -> None:
    factories.transaction(prod, "copy-0-41", age_ms=842_000)
    factories.flink_job(prod, [factories.committable("copy-0-41")])
    row = factories.incident_of(prod, factories.finding(prod, "transaction:copy-0-41"))
    assert acts(page_html(operator, f"/incidents/{row.pk}")) == ["commit_flink"]


def test_an_open_incident_counts_down_to_its_deadline(page: Client, prod: Cluster) -> None:
    deadline_ms = factories.now_ms() + 50_000
    row = factories.incident_of(
        prod, factories.finding(prod, "transaction:payments-7"), deadline_ms=deadline_ms
    )
    none = factories.incident_of(prod, factories.finding(prod, "group:billing"))
    for url in "/", f"/incidents/{row.pk}":
        assert re.findall(r'data-deadline="(\d+)"', page_html(page, url)) == [str(deadline_ms)], url
    assert "data-deadline" not in page_html(page, f"/incidents/{none.pk}")
    Incident.objects.update(closed_ms=factories.now_ms())
    assert "data-deadline" not in page_html(page, f"/incidents/{row.pk}")


def test_an_effect_of_two_causes_names_the_other_incident(page: Client, prod: Cluster) -> None:
    effect = factories.finding(prod, "partition:payments-0")
    causes = [factories.finding(prod, f"transaction:{name}") for name in ("payments-7", "orders-1")]
    first, second = (factories.incident_of(prod, cause, effect) for cause in causes)
    text = page_html(page, "/")
    for cause, other in zip(causes, (second, first), strict=True):
        assert f'href="/incidents/{other.pk}"' in card(text, cause).partition(f'data-effect="{effect.pk}"')[2]
    one = page_html(page, f"/incidents/{first.pk}")
    assert f'also in <a href="/incidents/{second.pk}">' in one
    assert "All of them must end" in one


def test_a_range_that_has_ended_has_the_incidents_that_were_open_in_it(page: Client, prod: Cluster) -> None:
    now = factories.now_ms()
    hour = 3_600_000
    before = factories.incident(prod, opened_ms=now - 5 * hour, closed_ms=now - 4 * hour)
    within = factories.incident(prod, opened_ms=now - 3 * hour, closed_ms=now - 2 * hour)
    begin, end = format_instant(now - 7 * hour // 2), format_instant(now - hour)
    text = page_html(page, f"/?from={begin}&to={end}")
    assert re.findall(r'<tr id="incident-(\d+)"', text) == [str(within.pk)]
    assert headline(text) == "1 incident in this range."
    assert str(before.pk) not in re.findall(r'<tr id="incident-(\d+)"', text)


def test_the_headline_is_the_cause_of_now_whatever_was_held_for_it_before(
    page: Client, prod: Cluster
) -> None:
    cause, before = (
        factories.finding(prod, "query:q", rule="batch_lost"),
        factories.finding(prod, "transaction:t-1"),
    )
    row = factories.incident_of(prod, cause, rule="batch_lost", subject="query:q")
    IncidentFinding.objects.create(
        incident=row, finding=before.pk, rule=before.rule, subject=before.subject, role=Role.CAUSE,
        severity="warning", summary="t-1 is open", since_ms=row.opened_ms, until_ms=factories.now_ms(),
    )  # fmt: skip
    text = page_html(page, f"/incidents/{row.pk}")
    assert headline(text) == f"{cause.summary}."
    assert "1 earlier effect" in text


def test_the_list_shows_what_its_address_asks_for(page: Client, prod: Cluster) -> None:
    now = factories.now_ms()
    open_one = factories.incident(prod, severity="critical")
    closed = factories.incident(prod, closed_ms=now)
    for query, shown in {
        "": [open_one],
        "?state=closed": [closed],
        "?state=all": [closed, open_one],
        "?state=all&severity=critical": [open_one],
        "?severity=info": [],
        f"?state=all&before={closed.pk}": [open_one],
    }.items():
        found = re.findall(r'<tr id="incident-(\d+)"', page_html(page, f"/incidents{query}"))
        assert found == [str(row.pk) for row in shown], query


def test_an_incident_leads_to_the_events_around_it_and_an_alert_to_its_incident(
    page: Client, prod: Cluster
) -> None:
    row = factories.incident_of(prod, factories.finding(prod, "transaction:payments-7"))
    url = re.search(r'href="([^"]+)" data-events', page_html(page, f"/incidents/{row.pk}"))
    assert url
    shown = page_html(page, html.unescape(url[1]))
    assert "data-ignored" not in shown
    assert "payments-7" in shown
    alert = factories.alert(prod, "transaction:payments-7", labels={"incident": str(row.pk)})
    assert f'href="/incidents/{row.pk}"' in page_html(page, f"/alerts/{alert.pk}")
