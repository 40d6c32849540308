"""Proves that silences are made with a preview and a reason, ended and kept; what cannot be one is told."""

import html
import re
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from dashboard.models import Cluster, Silence
from tests.cases import cases
from tests.web import factories, roles
from tests.web.roles import page_html

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("prod")]
NEW = {"matchers": 'alertname="open_too_long"', "lasts": "7200", "reason": "maintenance"}
HOUR_MS = 3_600_000


def local(hours: float) -> str:
    """Return an instant some hours from now as a browser's field writes it."""
    return (datetime.now(UTC) + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M")


def wrong(operator: Client, **asked: str) -> str:
    answer = operator.post("/silences/make", NEW | asked)
    assert answer.status_code == 422, answer.content.decode()
    found = re.findall(r'class="wrong"[^>]*>([^<]+)<', answer.content.decode())
    return html.unescape(" ".join(found))


def test_a_silence_is_made_listed_and_ended(operator: Client, prod: Cluster) -> None:
    factories.alert(prod)
    answer = operator.post("/silences/make", NEW)
    row = Silence.objects.get()
    assert answer["Location"] == f"/silences/{row.pk}"
    assert row.matchers == [["alertname", "=", "open_too_long"]]
    assert (row.created_by, row.reason) == ("the operator", "maintenance")
    assert row.ends_ms - row.starts_ms == 2 * HOUR_MS
    assert "Suppresses 1 alert now" in page_html(operator, f"/silences/{row.pk}")
    assert "1 silence is active" in page_html(operator, "/silences")
    assert operator.post(f"/silences/{row.pk}/end")["Location"] == f"/silences/{row.pk}"
    row.refresh_from_db()
    assert row.ended_by == "the operator"
    assert row.ends_ms <= factories.now_ms()
    assert "by the operator" in page_html(operator, f"/silences/{row.pk}")
    text = page_html(operator, "/silences")
    assert "No silence is active" in text
    assert f'href="/silences/{row.pk}"' in text


@pytest.mark.parametrize("path", ["/silences/new", "/channels/new"])
def test_a_hint_of_a_field_has_its_markup(path: str) -> None:
    assert '<code>label="value"</code>' in page_html(roles.client_with_role("admin"), path)


def test_ending_one_that_is_over_changes_nothing(operator: Client) -> None:
    row = factories.silence(starts_s=-7_200, ends_s=-3_600)
    operator.post(f"/silences/{row.pk}/end")
    after = Silence.objects.get()
    assert (after.ends_ms, after.ended_by) == (row.ends_ms, "")


def test_it_may_begin_later_and_end_at_an_instant(operator: Client) -> None:
    operator.post("/silences/make", NEW | {"starts": local(2), "ends": local(5)})
    row = Silence.objects.get()
    assert row.ends_ms - row.starts_ms == 3 * HOUR_MS
    assert abs(row.starts_ms - factories.now_ms() - 2 * HOUR_MS) <= 60_000
    assert "Begins" in page_html(operator, f"/silences/{row.pk}")
    assert "Scheduled" in page_html(operator, "/silences")


@cases(
    ({"matchers": ""}, "at least one matcher"),
    ({"matchers": "open_too_long"}, "cannot be read"),
    ({"matchers": 'colour="red"'}, "No alert has a label “colour”"),
    ({"matchers": 'alertname=~"("'}, "is not a regular expression"),
    ({"matchers": 'severity!="info"'}, "These match every alert, also one without any label"),
    ({"matchers": 'team=""'}, "These match every alert"),
    ({"matchers": 'team="' + "x" * 5_000 + '"'}, "is too long"),
    ({"matchers": "x" * 500_000}, "cannot be read"),
    ({"matchers": ",".join(['team="x"'] * 21)}, "at most 20"),
    ({"matchers": 'team="a\0b"'}, "has a NUL"),
    ({"reason": " "}, "The reason is missing"),
    ({"reason": "x" * 2_001}, "The reason has 2,001 characters; at most 2,000"),
    ({"reason": "a\0b"}, "cannot be shown (U+0000)"),
    ({"lasts": ""}, "Say for how long, or until when"),
    ({"lasts": "1"}, "Say for how long, or until when"),
    ({"ends": local(-1)}, "The end is in the past"),
    ({"starts": local(3), "ends": local(2)}, "The end is not after the start"),
    ({"ends": local(24 * 400)}, "It may last 366 d at most"),
    ({"starts": local(-1)}, "The start is in the past"),
    ({"starts": local(24 * 400)}, "more than a year ahead"),
    ({"ends": "tomorrow"}, "The end “tomorrow” is no date and time"),
    ({"starts": "2026-13-01T00:00"}, "is no date and time"),
    ({"ends": "0001-01-01T00:00+23:59"}, "The end"),
)
def test_what_cannot_be_a_silence_is_told(operator: Client, asked: dict[str, str], said: str) -> None:
    assert said in wrong(operator, **asked)
    assert not Silence.objects.exists()


def test_everything_that_is_wrong_is_told_at_once_and_what_was_written_stays(operator: Client) -> None:
    said = wrong(operator, matchers="<b>", reason="", starts="x", ends="y")
    for words in (
        "4 errors",
        "cannot be read",
        "reason is missing",
        "start “x”",
        "end “y”",
    ):
        assert words in said
    text = operator.post("/silences/make", NEW | {"reason": ""}).content.decode()
    assert "alertname=&quot;open_too_long&quot;</textarea>" in text


def test_the_preview_says_what_it_would_keep_quiet(operator: Client, prod: Cluster) -> None:
    factories.alert(prod, "transaction:payments-7", labels={"team": "Payments"})
    factories.alert(prod, "transaction:payments-8", "pending")
    factories.alert(prod, "transaction:payments-9", "resolved")
    factories.alert(prod, "group:billing", rule="group_stalled")

    def previewed(matchers: str) -> str:
        answer = operator.get("/silences/preview", {"matchers": matchers})
        assert answer.status_code == 200
        return html.unescape(answer.content.decode())

    shown = previewed('alertname="open_too_long"')
    assert "payments-7" in shown
    assert "payments-8" in shown
    assert "payments-9" not in shown
    assert "billing" not in shown
    assert "payments-7" in previewed('team=~"Pay.*"')
    assert "No firing or pending alert matches" in previewed('team="Nobody"')
    assert "cannot be read" in previewed("team")
    assert "No alert has a label “x”" in previewed('x="y"')
    assert "Enter matchers" in previewed("")


def test_a_form_is_filled_for_one_alert_and_for_the_same_again(operator: Client, prod: Cluster) -> None:
    row = factories.alert(prod)
    text = html.unescape(page_html(operator, f"/silences/new?alert={row.pk}"))
    filled = 'alertname="open_too_long", cluster="prod", subject="transaction:payments-7"'
    assert f"{filled}</textarea>" in text
    old = factories.silence(matchers=[["team", "=~", 'a"b\\.']], ends_s=-1)
    assert 'team=~"a\\"b\\\\."</textarea>' in html.unescape(
        page_html(operator, f"/silences/new?silence={old.pk}")
    )
    for query in ("alert=x", "alert=4711", "silence=" + "9" * 40):
        assert "</textarea>" in page_html(operator, f"/silences/new?{query}")


def test_the_longest_subject_can_be_silenced(operator: Client, prod: Cluster) -> None:
    row = factories.alert(prod, f"transaction:{factories.LONG_ID.decode()}")
    text = html.unescape(page_html(operator, f"/silences/new?alert={row.pk}"))
    matchers = text.partition("<textarea")[2].partition(">")[2].partition("</textarea>")[0]
    operator.post("/silences/make", NEW | {"matchers": matchers})
    assert f"Suppresses {Silence.objects.count()} alert now" in page_html(
        operator, f"/silences/{Silence.objects.get().pk}"
    )


def test_who_may_not_end_a_silence_has_no_button(page: Client, operator: Client) -> None:
    row = factories.silence()
    for url in ("/silences", f"/silences/{row.pk}"):
        assert "End now" not in page_html(page, url)
        assert "End now" in page_html(operator, url)
