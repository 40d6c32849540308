"""Proves the transitions on sequences captured from real brokers, whose true events are known.

tests/data/capture_transaction_state.py played the scenarios with librdkafka, Java and raw requests against
both brokers and wrote the truth beside the bytes. Only what the log does not show of them is listed here.
"""

import json
from collections import defaultdict
from pathlib import Path

import pytest

from fenceline.decode.transaction_state import decode_record
from fenceline.facts import Confidence, Transition, TransitionKind, Undecoded
from fenceline.kafka.transitions import IdHistory, derive_transition, next_history
from fenceline.text.explanations import explain_transition

FOLDER = Path(__file__).parent.parent / "data" / "transaction_state"
TRUTH: dict[str, dict[str, list[str]]] = json.loads((FOLDER / "truth.json").read_text())
SCENARIOS = [(version, name) for version, scenarios in TRUTH.items() for name in scenarios]
#: Whether a protocol 2 client aborted, or the coordinator, the first do not show. The others do not show
#: whether an Admin fenced, or a producer with its 30 s took over.
UNTOLD = {
    ("4.2.0", f"java-{scenario}")
    for scenario in (
        "commit", "abort", "abort_then_another", "takeover", "takeover_crosswise", "takeover_and_gone",
    )
} | {
    (version, f"{client}-{scenario}")
    for version in TRUTH for client in ("java", "librdkafka") for scenario in ("fence", "fence_idle")
}  # fmt: skip


def captured_transitions(version: str) -> dict[str, list[Transition]]:
    """Return the transitions of each scenario as they read in the end, oldest first."""
    lives: dict[str, IdHistory] = defaultdict(IdHistory)
    found: dict[str, dict[int, Transition]] = defaultdict(dict)
    for line in (FOLDER / f"kafka-{version}.jsonl").read_text().splitlines():
        row = json.loads(line)
        value = None if row["value"] is None else bytes.fromhex(row["value"])
        record = decode_record(bytes.fromhex(row["key"]), value)
        assert not isinstance(record, Undecoded)
        step = derive_transition(lives[row["key"]], record, row["partition"], row["offset"], whole=True)
        lives[row["key"]] = next_history(lives[row["key"]], record, step)
        found[row["scenario"]] |= {told.offset: told for told in (step.revised, step.made) if told}
    return {name: [told[offset] for offset in sorted(told)] for name, told in found.items()}


CAPTURED = {version: captured_transitions(version) for version in TRUTH}


@pytest.mark.parametrize(("version", "scenario"), SCENARIOS)
def test_derived_transitions_equal_the_captured_truth(version: str, scenario: str) -> None:
    told = [each for each in CAPTURED[version][scenario] if each.kind is not TransitionKind.EXTEND]
    if told[-1].kind is TransitionKind.EXPIRY:
        told.pop()
    true = TRUTH[version][scenario]
    if any(each.confidence is Confidence.AMBIGUOUS for each in told):
        assert (version, scenario) in UNTOLD
    else:
        assert [each.kind.value for each in told] == true, [explain_transition(each) for each in told]
