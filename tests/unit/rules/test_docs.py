"""Proves that every rule is explained: meaning, causes, remedy, limits, and when it is suppressed."""

import re
import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest

from fenceline.limits import Limits
from fenceline.rules import RULES

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs" / "rules"
COLLECTING = ROOT / "docs" / "collecting.md"
SECTIONS = ["What it means", "Why it matters", "What to do", "Its limits", "When it is silent"]
#: Limits that pace collectors and draw no line of a rule.
PACES = {
    "reconcile_every_s",
    "partitions_every_s",
    "groups_every_s",
    "checkpoints_every_s",
    "engines_every_s",
    "markers_mb",
}
_ROW = re.compile(r"^\| `(\w+)` \| ([\d.]+) \|", re.MULTILINE)
#: Words in code that are written like limits, so that one that is no more is noticed anywhere in the text.
_LIKE_A_LIMIT = re.compile(r"`(\w+(?:_s|_percent|_per_hour|_per_day|_factor))\b")


def page(rule: str) -> str:
    return (DOCS / f"{rule}.md").read_text()


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_explained(rule: str) -> None:
    text = page(rule)
    assert text.startswith(f"# {rule}\n"), "its title is its name"
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    parts = re.split(r"^## .+$", text, flags=re.MULTILINE)
    assert all(part.strip() for part in parts), "a section is empty"


@pytest.mark.parametrize("rule", RULES)
def test_limits_of_a_rule_equal_those_on_its_page(rule: str) -> None:
    limits = asdict(Limits())
    named = {name: float(default) for name, default in _ROW.findall(page(rule))}
    assert named == {name: limits.get(name) for name in named}
    assert set(_LIKE_A_LIMIT.findall(page(rule))) <= set(limits)


def test_each_limit_is_explained_by_its_rule_or_by_collecting() -> None:
    explained = {name for rule in RULES for name, _ in _ROW.findall(page(rule))}
    of_collectors = set(re.findall(r"`(collector_\w+_s|poller_\w+_s)` \([\d.]+\)", COLLECTING.read_text()))
    assert explained | of_collectors == set(asdict(Limits())) - PACES


def test_removed_rules_have_no_page() -> None:
    assert {path.stem for path in DOCS.glob("*.md")} == {*RULES, "README"}


def test_the_index_names_every_rule() -> None:
    assert re.findall(r"^\| \[(\w+)\]\(\1\.md\)", page("README"), re.MULTILINE) == list(RULES)


def test_the_example_shows_every_limit_at_its_default() -> None:
    example = tomllib.loads((ROOT / "fenceline.example.toml").read_text())
    assert example["limits"] == asdict(Limits())
