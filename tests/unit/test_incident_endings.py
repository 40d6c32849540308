"""Proves how an incident says in one sentence how it ended: by whom, and never surer than the verdict. Its
Markdown contains all of it, and no name in it becomes markup."""

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fenceline.facts import Confidence, Transition, TransitionKind, TransitionReason
from fenceline.incidents.markdown import incident_markdown
from fenceline.incidents.outcomes import (
    ActionTaken,
    batch_ending,
    end_of_transaction,
    transaction_ending,
)
from tests.cases import cases

Kind, Reason = TransitionKind, TransitionReason
#: 02:16:07 UTC.
NOW_MS = 1_795_486_567_000
BY_ADA = ActionTaken(2, "ada", "INC-4411")


def end(
    kind: Kind,
    confidence: Confidence = Confidence.CERTAIN,
    reason: Reason = Reason.BROKER_LATE,
    open_ms: int | None = 50,
) -> Transition:
    return Transition(kind, confidence, reason, NOW_MS, 7, 1, 1, 60_000, open_ms, None, None, 3, 9)


@cases(
    (end(Kind.COMMIT), None, "Its producer committed it at 02:16:07 UTC; nothing was lost."),
    (end(Kind.CLIENT_ABORT), None, "Its producer aborted it at 02:16:07 UTC."),
    (end(Kind.TIMEOUT), None, "Its coordinator aborted it at its timeout at 02:16:07 UTC."),
    (
        end(Kind.TAKEOVER, Confidence.PROBABLE),
        None,
        "Another producer with the same id fenced it at 02:16:07 UTC (probable).",
    ),
    (
        end(Kind.TAKEOVER, Confidence.AMBIGUOUS),
        None,
        "It was aborted at 02:16:07 UTC; records cannot decide by whom.",
    ),
    (
        end(Kind.ADMIN_FENCE, reason=Reason.FENCED_BY_ACTION),
        BY_ADA,
        "Fenced by ada, action 2, reason INC-4411 at 02:16:07 UTC.",
    ),
    (
        end(Kind.ADMIN_FENCE, Confidence.PROBABLE, Reason.ADMIN_TIMEOUT),
        BY_ADA,
        "An administrator fenced it from outside at 02:16:07 UTC (probable).",
    ),
)
def test_a_transaction_ends_in_one_sentence(
    ended: Transition, action: ActionTaken | None, words: str
) -> None:
    assert transaction_ending(ended, action) == words


def test_an_end_is_that_of_the_transaction_that_began_then() -> None:
    ring = [end(Kind.INIT), end(Kind.COMMIT, open_ms=None), end(Kind.COMMIT, open_ms=900), end(Kind.TIMEOUT)]
    found = end_of_transaction(ring, f"7@{NOW_MS - 50}")
    assert found is not None
    assert found.kind is Kind.TIMEOUT
    assert end_of_transaction(ring, f"7@{NOW_MS - 51}") is None
    assert end_of_transaction(ring, "") is None


@cases(
    ("committed", 0, NOW_MS - 7_000, None,
     "The driver came back at 02:16:00 UTC and committed all 322 rows; nothing was lost."),
    ("committed", 0, None, None, "Its driver committed all 322 rows at 02:16:07 UTC; nothing was lost."),
    ("committed", 0, None, BY_ADA,
     "Finished by ada, action 2, reason INC-4411 at 02:16:07 UTC: all 322 rows committed, "
     "nothing was lost."),
    ("lost", 20, None, None,
     "Batch 1,204 was lost in part: 20 rows of 322 aborted, recorded at 02:16:07 UTC."),
    ("aborted", 0, None, None,
     "Batch 1,204 was aborted at 02:16:07 UTC; the next run reads its input again."),
)  # fmt: skip
def test_a_batch_ends_in_one_sentence(
    outcome: str, lost: int, restarted_ms: int | None, action: ActionTaken | None, words: str
) -> None:
    ended = {"done_ms": NOW_MS, "rows": 322, "lost_rows": lost}
    assert batch_ending(1_204, outcome, action, **ended, restarted_ms=restarted_ms) == words


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
    facts = [("Cluster", "prod"), ("Owner", "Payments")]
    history = [(AT_MS, "opened"), (AT_MS + 1_000, "note by ada: see\n# 4411")]
    effects = ("Effects", [(AT_MS, "billing is blocked")])
    # Empty sections are left out.
    sections = [effects, ("Nothing", []), ("History, oldest first", history)]
    assert rendered_text(incident_markdown(7, "a_b is open", facts, sections)) == [
        "Incident 7: a_b is open",
        "Cluster: prod",
        "Owner: Payments",
        "Effects",
        "2026-11-24 00:56:07 UTC billing is blocked",
        "History, oldest first",
        "2026-11-24 00:56:07 UTC opened",
        "2026-11-24 00:56:08 UTC note by ada: see # 4411",
    ]


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zs", "Zl", "Zp"]), min_size=1))
def test_any_name_is_read_back_as_it_is(name: str) -> None:
    report = (7, f"x{name}x", [], [("History", [(AT_MS, f"x{name}x")])])
    assert rendered_text(incident_markdown(*report))[0] == f"Incident 7: x{name}x"


@given(st.text(st.sampled_from("\\`*_{}[]<>()#+!|~&;=-.:/a1 "), min_size=1))
@example("[1]")
def test_no_markup_changes_a_text_wherever_it_stands(text: str) -> None:
    plain = " ".join(text.split()) or "x"
    report = (7, plain, [(plain, plain)], [("History", [(AT_MS, plain)])])
    assert rendered_text(incident_markdown(*report)) == [
        f"Incident 7: {plain}", f"{plain}: {plain}", "History", f"2026-11-24 00:56:07 UTC {plain}",
    ]  # fmt: skip


@cases(
    "orders_enriched-0 (2026-11-24 00:56:07 UTC)",
    "demo-abandoned has blocked payments-0 for 7 min; 1,465 records, 3 + 4 = 7!",
    "offsets 10 - 20 of [a], {b} | c",
    "note by ada: see #4411 & INC-7 <- 3 > 2",
)
def test_sentences_are_written_as_they_are_and_what_would_be_markup_is_escaped(text: str) -> None:
    report = (7, text, [("Fact", text)], [])
    assert incident_markdown(*report) == f"# Incident 7: {text}\n\n- Fact: {text}\n"
    markup = (7, "*a* __transaction_state", [("# x", "<b>")], [])
    assert incident_markdown(*markup) == "# Incident 7: \\*a\\* \\_\\_transaction_state\n\n- \\# x: \\<b>\n"
