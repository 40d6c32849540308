"""Proves that a rule's page shows its documentation safely, with what the rule finds now."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import Client

from dashboard import markdown
from tests.web import seed

pytestmark = pytest.mark.django_db
TEXT = """# open_too_long

A transaction is *open* for longer than `limits.open_too_long_s`, **longer** than usual.

## What to do
1. Find it
2. See [late](late.md) or <https://kafka.apache.org/>

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


def read(page: Client, url: str) -> str:
    answer = page.get(url)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def test_headings_lists_tables_and_code_are_rendered(page: Client, documented: Path) -> None:
    text = read(page, "/rules/open_too_long")
    for html in (
        "<h1>Open too long</h1>",
        "<h2>What to do</h2>",
        "<em>open</em>",
        "<strong>longer</strong>",
        "<code>limits.open_too_long_s</code>",
        "<ol> <li>Find it</li>",
        "<ul> <li>one</li>",
        "<th>what</th> <td></td>",
        "<td>a &amp; b</td>",
        "<pre><code>kafka-transactions.sh list </code></pre>",
        '<a href="late">late</a>',
        '<a href="https://kafka.apache.org/">',
    ):
        assert html in text, html
    assert "<h1>open_too_long</h1>" not in text


def test_nothing_in_it_runs(page: Client, documented: Path) -> None:
    text = read(page, "/rules/open_too_long")
    assert "<script>alert" not in text
    assert "<img" not in text
    assert 'href="javascript' not in text


def test_what_the_rule_finds_now_is_there_and_leads_on(page: Client, documented: Path) -> None:
    prod = seed.cluster()
    seed.seen(prod)
    assert "It finds nothing now." in read(page, "/rules/open_too_long")
    seed.transaction(prod, "payments-7")
    seed.finding(prod, "transaction:payments-7")
    seed.finding(prod, "transaction:other", rule="late", summary="quite another one")
    text = read(page, "/rules/open_too_long")
    assert "/transactions/prod/payments-7" in text
    assert "quite another one" not in text


def test_a_finding_leads_to_its_rule_from_every_page_that_shows_it(page: Client, documented: Path) -> None:
    prod = seed.cluster()
    seed.seen(prod)
    seed.transaction(prod, "payments-7")
    seed.finding(prod, "transaction:payments-7")
    for url in ("/", "/transactions/prod/payments-7"):
        assert 'href="/rules/open_too_long"' in read(page, url), url
    assert "what “open too long” means" in read(page, "/")


@pytest.mark.parametrize("name", ["late", "..", "../secret", "..%2Fsecret", "a/b", "%00", "open_too_long.md"])
def test_what_is_no_rule_has_no_page(page: Client, documented: Path, name: str) -> None:
    assert page.get(f"/rules/{name}").status_code == 404


def test_an_edited_page_is_shown_as_it_is_now(page: Client, documented: Path) -> None:
    read(page, "/rules/open_too_long")
    (documented / "open_too_long.md").write_text("# open_too_long\n\nnew words")
    assert "<p>new words</p>" in read(page, "/rules/open_too_long")
