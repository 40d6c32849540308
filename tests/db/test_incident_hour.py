"""Proves that an hour with 10,000 findings makes the incidents that its script made, none twice and none
lost, in memory that does not grow: tick by tick through the evaluation's own save, on a real database."""

import gc
import random
import tracemalloc
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest

from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.incidents.store import GroupingFacts
from dashboard.models import FindingRecord, Incident, IncidentFinding
from fenceline.facts import Finding, Severity
from fenceline.incidents.causality import ThingLinks
from tests.db.conftest import NOW_MS, Take
from tests.seeds import SEED

pytestmark = pytest.mark.soak

HOUR_S, STORIES, FINDINGS = 3_600, 2_700, 10_000
#: Seconds between ticks: half as many as there are do the same in half the time.
_TICK_S = 2
#: From when on memory is measured, in seconds, and by how many bytes it may grow until the end.
_WARM_S, _MOST_GROWTH = 1_200, 2_000_000


class Open(NamedTuple):
    """One finding of the script: open from one second up to before another."""

    #: When its episode began: each start of a cause is one.
    start_s: int
    since_s: int
    until_s: int
    rule: str
    subject: str
    affected: tuple[str, ...]


class Story(NamedTuple):
    """A cause by its own name, and what follows from it."""

    cause: str
    findings: tuple[Open, ...]


def stories(dice: random.Random) -> Iterator[Story]:
    """Yield causes with a partition and a group each; every tenth shares both with the one before.

    Some effects are found before their cause, all of them end after it; every seventh cause starts again.
    """
    partition = group = ""
    begin = 0
    for number in range(STORIES):
        if number % 10 != 1:
            partition, group = f"partition:p-{number}", f"group:g-{number}"
            begin = dice.randrange(HOUR_S - 900)
        times = [begin, begin + dice.randrange(90, 500)] if number % 7 == 0 else [begin]
        cause = f"transaction:t-{number}"
        yield Story(cause, tuple(_findings(dice, times, cause, partition, group)))


def _findings(
    dice: random.Random, times: list[int], cause: str, partition: str, group: str
) -> Iterator[Open]:
    for at in times:
        found = at + dice.choice((0, 1, 2, 9))
        over = found + dice.randrange(20, 60)
        yield Open(at, found, over, "open_too_long", cause, (partition,))
        yield Open(at, at, over + dice.randrange(5), "lso_pinned", partition, (group,))
        yield Open(at, found + 3, over + dice.randrange(9), "group_stalled", group, (partition,))
        if len(times) == 1:
            yield Open(at, found + 9, over, "coordinator_overdue", cause, (partition,))


def by_second(script: list[Story]) -> Mapping[int, Mapping[tuple[str, str], Finding]]:
    """Return the open findings of each second by rule and subject."""
    found: dict[int, dict[tuple[str, str], Finding]] = defaultdict(dict)
    for story in script:
        for each in story.findings:
            row = Finding(
                each.rule, "prod", each.subject, Severity.WARNING, NOW_MS + each.since_s * 1_000,
                f"{each.rule} of {each.subject}", "e", "n", each.affected,
                instance=f"7@{each.start_s}" if each.subject.startswith("transaction:") else "",
            )  # fmt: skip
            for second in range(each.since_s, each.until_s):
                found[second].setdefault((each.rule, each.subject), row)
    return found


def links_by_second(script: list[Story]) -> Mapping[int, Mapping[str, list[str]]]:
    """Return which partition each open transaction holds in each second, found or not."""
    found: dict[int, dict[str, list[str]]] = defaultdict(dict)
    for story in script:
        for each in story.findings:
            if each.rule == "lso_pinned":
                for second in range(each.since_s, each.until_s):
                    found[second][story.cause] = [each.subject]
    return found


def test_an_hour_of_10_000_findings_is_grouped_as_it_was_made(take: Take) -> None:
    print(f"seed {SEED}")
    script = list(stories(random.Random(SEED)))
    seconds, links, lease = by_second(script), links_by_second(script), take("judge")
    for second in range(0, HOUR_S + 1, _TICK_S):
        if second == _WARM_S:
            tracemalloc.start()
        now_ms, found = NOW_MS + second * 1_000, list(seconds.get(second, {}).values())
        facts = GroupingFacts(ThingLinks(links.get(second, {})))
        evaluate_rules.save_findings(lease, found, sees=lambda row: True, now_ms=now_ms, facts=facts)
        if second % 60 == 0:
            _nothing_is_lost()
    gc.collect()
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"{FindingRecord.objects.count():,} findings, {Incident.objects.count():,} incidents, +{grown:,} B")
    assert FindingRecord.objects.count() >= FINDINGS
    assert grown < _MOST_GROWTH
    assert not Incident.objects.filter(closed_ms=None).exists()
    _each_start_has_one_incident(script)


def _nothing_is_lost() -> None:
    """Every open finding is in an open incident, and no cause in two."""
    members = IncidentFinding.objects.filter(until_ms=None, incident__closed_ms=None)
    alone = FindingRecord.objects.filter(closed_at=None).exclude(pk__in=members.values("finding"))
    assert list(alone.values_list("rule", "subject")) == []
    causes = list(Incident.objects.filter(closed_ms=None).values_list("rule", "subject"))
    assert len(causes) == len(set(causes))


def _each_start_has_one_incident(script: list[Story]) -> None:
    """An incident for each start of a cause, with exactly its findings, whatever was found first."""
    found: dict[str, set[int]] = defaultdict(set)
    content: dict[int, set[tuple[str, str]]] = defaultdict(set)
    for number, rule, subject in IncidentFinding.objects.values_list("incident", "rule", "subject"):
        content[number].add((rule, subject))
        if subject.startswith("transaction:"):
            found[subject].add(number)
    starts = {story.cause: sorted({each.start_s for each in story.findings}) for story in script}
    assert {cause: len(numbers) for cause, numbers in found.items()} == {
        cause: len(times) for cause, times in starts.items()
    }
    assert Incident.objects.count() == sum(map(len, starts.values()))
    for story in script:
        for number, start_s in zip(sorted(found[story.cause]), starts[story.cause], strict=True):
            expected = {(each.rule, each.subject) for each in story.findings if each.start_s == start_s}
            assert content[number] == expected, story.cause
