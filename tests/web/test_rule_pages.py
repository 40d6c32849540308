"""Proves that the rules' pages show their documentation safely and whole, with the limits in effect and what
each rule finds now; and that an index leads to all of them."""

import re
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from django.test import Client

from dashboard.labels.alert import rule_label
from dashboard.models import Cluster
from dashboard.web import markdown
from fenceline.facts import Severity
from fenceline.findings import REMOVED, RENAMED
from fenceline.limits import Limits
from fenceline.rules import RULES
from tests.cases import cases
from tests.web import factories
from tests.web.roles import page_html

pytestmark = pytest.mark.django_db
TEXT = """# open_too_long

A transaction is *open* for longer than `limits.open_too_long_s`, **longer** than usual.

## What to do
1. Find it
2. See [coordinator_overdue](coordinator_overdue.md) or <https://kafka.apache.org/>

- one
- two

| what | |
|---|---|
| a & b | <script>alert(1)</script> |

```
kafka-transactions.sh list
```

[no](javascript:alert(1)) <img src=x onerror=alert(1)>
"""


@pytest.fixture
def documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "open_too_long.md").write_text(TEXT)
    (tmp_path.parent / "secret.md").write_text("# not a rule")
    monkeypatch.setattr(markdown, "RULES", tmp_path)
    return tmp_path


def test_headings_lists_tables_and_code_are_rendered_and_nothing_in_it_runs(
    page: Client, documented: Path
) -> None:
    text = page_html(page, "/rules/open_too_long")
    for html in (
        "<h1>Open too long</h1>",
        "<h2>What to do</h2>",
        "<em>open</em>",
        "<strong>longer</strong>",
        "<code>limits.open_too_long_s</code>",
        "<ol><li>Find it</li>",
        "<ul><li>one</li>",
        "<th>what</th><td></td>",
        "<td>a &amp; b</td>",
        "<pre><code>kafka-transactions.sh list </code></pre>",
        '<a href="coordinator_overdue">coordinator_overdue</a>',
        '<a href="https://kafka.apache.org/">',
    ):
        assert html in text, html
    for html in "<h1>open_too_long</h1>", "<script>alert", "<img", 'href="javascript':
        assert html not in text, html


def test_what_the_rule_finds_now_is_there_and_leads_on(page: Client, prod: Cluster, documented: Path) -> None:
    assert "No active findings." in page_html(page, "/rules/open_too_long")
    factories.transaction(prod, "payments-7")
    factories.finding(prod, "transaction:payments-7")
    factories.finding(prod, "transaction:other", rule="coordinator_overdue", summary="quite another one")
    text = page_html(page, "/rules/open_too_long")
    assert "/transactions/prod/payments-7" in text
    assert "quite another one" not in text


def test_a_finding_leads_to_its_rule_from_every_page_that_shows_it(
    page: Client, prod: Cluster, documented: Path
) -> None:
    factories.transaction(prod, "payments-7")
    factories.finding(prod, "transaction:payments-7")
    for url in ("/", "/transactions/prod/payments-7"):
        assert 'href="/rules/open_too_long"' in page_html(page, url), url
    assert "about “open too long”" in page_html(page, "/")


@cases("two_writers", "..", "../secret", "..%2Fsecret", "a/b", "%00", "open_too_long.md")
def test_what_is_no_rule_has_no_page(page: Client, documented: Path, name: str) -> None:
    assert page.get(f"/rules/{name}").status_code == 404


def test_a_former_name_leads_to_the_rule(page: Client) -> None:
    for former, name in RENAMED.items():
        answer = page.get(f"/rules/{former}?cluster=prod")
        assert (answer.status_code, answer["Location"]) == (301, f"/rules/{name}?cluster=prod")


@pytest.mark.parametrize("name", REMOVED)
def test_a_removed_rule_is_named_with_where_its_facts_are(page: Client, name: str) -> None:
    text = f"The rule {name} was removed: {REMOVED[name]}."
    answer = page.get(f"/rules/{name}")
    assert (answer.status_code, escape(text) in answer.content.decode()) == (404, True)
    for noun in ("alerts", "findings"):
        refused = page.get(f"/api/v1/{noun}?rule={name}")
        assert (refused.status_code, refused.json()["errors"][0]["message"]) == (422, text)


def test_a_rule_is_called_by_its_label(page: Client, prod: Cluster) -> None:
    assert not [name for name in RULES if "_" in rule_label(name)]
    for name in RULES:
        assert f"<h1>{rule_label(name).capitalize()}</h1>" in page_html(page, f"/rules/{name}")


def test_an_edited_page_is_shown_as_it_is_now(page: Client, documented: Path) -> None:
    page_html(page, "/rules/open_too_long")
    (documented / "open_too_long.md").write_text("# open_too_long\n\nnew words")
    assert "<p>new words</p>" in page_html(page, "/rules/open_too_long")


def test_the_index_lists_every_rule_with_its_severities_and_active_findings(
    page: Client, prod: Cluster
) -> None:
    factories.finding(prod, "transaction:payments-7", rule="coordinator_overdue", severity="critical")
    html = page.get("/rules").content.decode()
    assert re.findall(r'id="rule-(\w+)"', html) == list(RULES)
    for entry in markdown.rule_index():
        assert set(entry.severities) <= set(Severity)
        row = html.split(f'id="rule-{entry.name}"')[1].split("</tr>")[0]
        assert f'href="/rules/{entry.name}"' in row
        assert re.findall(r"mark-(\w+)", row) == list(entry.severities)
        assert escape(entry.means) in row
        assert ("1<span" in row) is (entry.name == "coordinator_overdue")


def test_the_index_is_reached_from_a_rule_and_from_system(page: Client, prod: Cluster) -> None:
    for url in ("/rules/coordinator_overdue", "/system"):
        assert 'href="/rules"' in page_html(page, url), url


def test_the_index_without_documentation_explains_itself(
    page: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markdown, "RULES", tmp_path)
    assert "documentation is not installed" in page_html(page, "/rules")


def test_the_documentations_own_index_is_no_rule(page: Client) -> None:
    assert page.get("/rules/README").status_code == 404


def test_a_page_shows_the_limits_in_effect_and_names_a_default_that_differs(
    page: Client, prod: Cluster, settings: Any
) -> None:
    settings.FENCELINE = replace(settings.FENCELINE, limits=Limits(open_too_long_s=7.5, open_usual_factor=4))
    text = page_html(page, "/rules/open_too_long")
    assert "<th>limit</th><th>value</th>" in text
    assert "<td><code>open_too_long_s</code></td><td>7.5 (default 60)</td>" in text
    assert "<td><code>open_usual_factor</code></td><td>4 (default 3)</td>" in text
    assert "<td><code>open_usual_commits</code></td><td>50</td>" in text
    settings.FENCELINE = replace(settings.FENCELINE, limits=Limits())
    assert "<td><code>open_too_long_s</code></td><td>60</td>" in page_html(page, "/rules/open_too_long")


def test_links_to_the_index_and_to_parts_of_pages_lead_there(page: Client, documented: Path) -> None:
    links = "[one](README.md#severity), [two](open_too_long.md#its-limits), [three](../acting.md#fence)"
    text = f"# coordinator_overdue\n{links}\n"
    (documented / "coordinator_overdue.md").write_text(text)
    html = page_html(page, "/rules/coordinator_overdue")
    assert '<a href="../rules">one</a>, <a href="open_too_long">two</a>, three (docs/acting.md)' in html


#: What Markdown leaves in a text where it was not understood: tables, lists, emphasis, code, links, headings.
UNRENDERED = re.compile(r"\||\*|`|\]\(|^\s*#+ |(?:^|\s)\d+\. [A-Z]|(?:^|\n)\s*- |-{3}", re.MULTILINE)


def text_of(html: str) -> str:
    """The text that is no code."""
    return re.sub(r"<[^>]+>", " ", re.sub(r"<(pre|code)>.*?</\1>", "", html, flags=re.DOTALL))


@pytest.mark.parametrize("name", RULES)
def test_no_markdown_is_left_unrendered(name: str) -> None:
    html = markdown.render_rule(name, Limits())
    assert html is not None
    assert not UNRENDERED.findall(text_of(html))
    for table in re.findall(r"<table>.*?</table>", html, re.DOTALL):
        cells = {len(re.findall(r"<t[hd]", row)) for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL)}
        assert len(cells) == 1, "a row has another number of cells"


def test_every_link_of_a_rule_page_leads_to_a_page(page: Client, prod: Cluster) -> None:
    html = "".join(markdown.render_rule(name, Limits()) or "" for name in RULES)
    links = {href for href in re.findall(r'href="([^"]+)"', html) if not href.startswith("https://")}
    assert links <= {*RULES, "../rules"}
    for href in links:
        assert page.get(urljoin("/rules/coordinator_overdue", href)).status_code == 200, href
