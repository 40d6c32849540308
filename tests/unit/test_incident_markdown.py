"""Proves that the Markdown of an incident contains all of it, and that no name in it becomes markup."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fenceline.incidents.markdown import IncidentReport, ReportLine, incident_markdown

AT_MS = 1_795_481_767_412


def rendered_text(markdown: str) -> list[str]:
    """Return the text of each block as CommonMark reads it; fail at any markup inside of one."""
    found = []
    for token in MarkdownIt("commonmark").parse(markdown):
        if token.type == "inline":
            assert {each.type for each in token.children or ()} <= {"text", "text_special"}, markdown
            found.append("".join(each.content for each in token.children or ()))
    return found


def test_a_report_has_its_headline_facts_effects_and_history_in_order() -> None:
    report = IncidentReport(
        7,
        "a_b is open",
        [("Cluster", "prod"), ("Owner", "Payments")],
        [
            ("Effects", [ReportLine(AT_MS, "billing is blocked")]),
            ("Nothing", []),
            (
                "History, oldest first",
                [ReportLine(AT_MS, "opened"), ReportLine(AT_MS + 1_000, "note by ada: see\n# 4411")],
            ),
        ],
    )
    assert rendered_text(incident_markdown(report)) == [
        "Incident 7: a_b is open",
        "Cluster: prod",
        "Owner: Payments",
        "Effects",
        "2026-11-24 00:56:07 UTC billing is blocked",
        "History, oldest first",
        "2026-11-24 00:56:07 UTC opened",
        "2026-11-24 00:56:08 UTC note by ada: see # 4411",
    ]


def test_empty_sections_are_left_out() -> None:
    assert incident_markdown(IncidentReport(7, "x", [], [("Effects", [])])) == "# Incident 7: x\n\n"


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zs", "Zl", "Zp"]), min_size=1))
def test_any_name_is_read_back_as_it_is(name: str) -> None:
    report = IncidentReport(7, f"x{name}x", [], [("History", [ReportLine(AT_MS, f"x{name}x")])])
    assert rendered_text(incident_markdown(report))[0] == f"Incident 7: x{name}x"


@given(st.text(st.sampled_from("\\`*_{}[]<>()#+!|~&;=-.:/a1 "), min_size=1))
@example("[1]")
def test_no_markup_changes_a_text_wherever_it_stands(text: str) -> None:
    plain = " ".join(text.split()) or "x"
    report = IncidentReport(7, plain, [(plain, plain)], [("History", [ReportLine(AT_MS, plain)])])
    assert rendered_text(incident_markdown(report)) == [
        f"Incident 7: {plain}", f"{plain}: {plain}", "History", f"2026-11-24 00:56:07 UTC {plain}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "orders_enriched-0 (2026-11-24 00:56:07 UTC)",
        "demo-abandoned has blocked payments-0 for 7 min; 1,465 records, 3 + 4 = 7!",
        "offsets 10 - 20 of [a], {b} | c",
        "note by ada: see #4411 & INC-7 <- 3 > 2",
    ],
)
def test_dates_names_and_sentences_are_written_as_they_are(text: str) -> None:
    report = IncidentReport(7, text, [("Fact", text)], [])
    assert incident_markdown(report) == f"# Incident 7: {text}\n\n- Fact: {text}\n"


def test_what_would_be_markup_is_escaped() -> None:
    report = IncidentReport(7, "*a* __transaction_state", [("# x", "<b>")], [])
    assert incident_markdown(report) == ("# Incident 7: \\*a\\* \\_\\_transaction_state\n\n- \\# x: \\<b>\n")
