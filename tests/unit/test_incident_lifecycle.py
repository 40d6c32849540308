"""Proves how incidents change from tick to tick: numbers, new causes, reopening, severity, none lost."""

import random
from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from fenceline.facts import Severity
from fenceline.incidents.findings import FindingKey
from fenceline.incidents.grouping import IncidentGroup, group_by_cause
from fenceline.incidents.lifecycle import (
    REOPEN_MS,
    SETTLE_MS,
    IncidentUpdate,
    KnownIncident,
    follow_incidents,
)

INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL
Stories = dict[str, Sequence[str]]


def key(name: str) -> FindingKey:
    return FindingKey("r", name)


class Deployment:
    """Incidents as a store keeps them; each `tick` has the groups that are found, by cause."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.rows: dict[int, KnownIncident] = {}
        self.updates: Sequence[IncidentUpdate] = ()
        #: By subject: which transaction or batch it is about.
        self.instances: dict[str, str] = {}

    def tick(self, stories: Stories, severity: Severity = WARNING, after_ms: int = 1_000) -> None:
        groups = [IncidentGroup(key(cause), tuple(map(key, effects))) for cause, effects in stories.items()]
        self.follow(groups, severity, after_ms)

    def lately(self, now_ms: int) -> Sequence[KnownIncident]:
        """Return what is open, or was closed so lately that it may reopen."""
        return [
            each
            for each in self.rows.values()
            if each.closed_ms is None or now_ms - each.closed_ms <= REOPEN_MS
        ]

    def follow(
        self,
        groups: Sequence[IncidentGroup],
        severity: Severity,
        after_ms: int,
        found: Collection[FindingKey] | None = None,
    ) -> None:
        """`found`: the findings, if not each member of a group is one."""
        self.now_ms += after_ms
        names = {name for group in groups for name in group.members} if found is None else found
        instances = {name: self.instances.get(name.subject, "") for name in names}
        self.updates = follow_incidents(
            self.lately(self.now_ms), groups, instances, lambda group: severity, now_ms=self.now_ms
        )
        for update in self.updates:
            self._save(update)

    def _save(self, update: IncidentUpdate) -> None:
        number = update.before.number if update.before else len(self.rows) + 1
        if update.group is None:
            assert update.before is not None
            self.rows[number] = replace(
                update.before, effects=frozenset(), cause_over_ms=None, closed_ms=self.now_ms
            )
            return
        cause, effects = update.group.cause, frozenset(update.group.effects)
        instance = self.instances.get(cause.subject, "")
        if update.group.is_cause_over and update.before:
            instance = update.before.instance
        self.rows[number] = KnownIncident(
            number, cause, update.severity, effects, update.cause_over_ms, instance=instance
        )

    @property
    def open(self) -> dict[int, tuple[str, set[str]]]:
        return {
            each.number: (each.cause.subject, {effect.subject for effect in each.effects})
            for each in self.rows.values()
            if each.closed_ms is None
        }


@pytest.fixture
def prod() -> Deployment:
    return Deployment()


def changes(prod: Deployment) -> list[IncidentUpdate]:
    return [each for each in prod.updates if each.is_change]


def test_an_incident_opens_stays_unchanged_and_closes(prod: Deployment) -> None:
    prod.tick({"t": ["p"]})
    assert prod.open == {1: ("t", {"p"})}
    prod.tick({"t": ["p"]})
    assert changes(prod) == []
    prod.tick({"t": ["p", "g"]})
    assert [(each.added, each.removed) for each in changes(prod)] == [((key("g"),), ())]
    prod.tick({"t": ["g"]})
    assert [(each.added, each.removed) for each in changes(prod)] == [((), (key("p"),))]
    prod.tick({})
    assert prod.open == {}


def test_a_cause_that_is_found_later_takes_over_the_number(prod: Deployment) -> None:
    prod.tick({"g": []})
    prod.tick({"p": ["g"]})
    assert prod.open == {1: ("p", {"g"})}
    assert [each.has_new_cause for each in prod.updates] == [True]
    prod.tick({"q": ["t", "p", "g"]})
    assert prod.open == {1: ("q", {"t", "p", "g"})}
    assert prod.updates[0].added == (key("t"),)


def test_of_eleven_incidents_with_one_cause_the_first_stays_open(prod: Deployment) -> None:
    names = [f"f{n:02}" for n in range(11)]
    prod.tick({name: [] for name in names})
    assert len(prod.open) == 11
    prod.tick({"cause": names})
    assert prod.open == {1: ("cause", set(names))}
    merged = [each for each in prod.updates if each.is_closed]
    assert [each.merged_into for each in merged] == [(key("cause"),)] * 10


def test_a_cause_with_an_open_incident_keeps_its_number_when_an_effect_joins(prod: Deployment) -> None:
    prod.tick({"q": []})
    prod.tick({"q": [], "g": []})
    prod.tick({"q": ["g"]})
    assert prod.open == {1: ("q", {"g"})}
    assert prod.rows[2].closed_ms is not None


def test_two_causes_stay_two_and_share_their_effect_whose_number_one_of_them_takes(prod: Deployment) -> None:
    prod.tick({"p": []})
    prod.tick({"a": ["p"], "b": ["p"]})
    assert prod.open == {1: ("a", {"p"}), 2: ("b", {"p"})}
    prod.tick({"b": ["p"]})
    assert prod.open == {2: ("b", {"p"})}, "what another cause explains does not keep it open"


def test_a_flapping_cause_keeps_its_number_for_a_minute(prod: Deployment) -> None:
    prod.tick({"t": ["p"]})
    for _ in range(5):
        prod.tick({})
        assert prod.open == {}
        prod.tick({"t": []}, after_ms=REOPEN_MS)
        assert list(prod.open) == [1]
        assert prod.updates[0].is_reopened
    prod.tick({})
    prod.tick({"t": []}, after_ms=REOPEN_MS + 1)
    assert list(prod.open) == [2]


def test_effects_of_a_transaction_that_is_over_pass_to_the_next_one(prod: Deployment) -> None:
    prod.instances["t"] = "7@100"
    prod.tick({"t": ["p", "g"]})
    prod.tick({"p": ["g"]})
    prod.instances["t"] = "7@200"
    prod.tick({"t": ["p"], "g": []})
    assert prod.open == {1: ("t", {"g"}), 2: ("t", {"p"})}
    assert prod.rows[1].cause_over_ms == prod.now_ms - 1_000


def test_one_batch_is_one_incident_whichever_rule_finds_it(prod: Deployment) -> None:
    prepared, lost = FindingKey("batch_prepared", "q"), FindingKey("batch_lost", "q")
    prod.instances["q"] = "batch 43"
    prod.follow([IncidentGroup(prepared)], WARNING, 1_000)
    prod.follow([IncidentGroup(lost)], CRITICAL, 1_000)
    assert [each.cause for each in prod.rows.values()] == [lost]
    prod.follow([], WARNING, 1_000)
    prod.follow([IncidentGroup(prepared)], WARNING, REOPEN_MS)
    assert [each.closed_ms for each in prod.rows.values()] == [None]
    prod.instances["q"] = "batch 44"
    prod.follow([IncidentGroup(prepared)], WARNING, 1_000)
    assert list(prod.open) == [2]


def test_another_transaction_of_an_id_is_another_incident(prod: Deployment) -> None:
    prod.tick({"t": ["p", "g"]})
    prod.instances["t"] = "7@100"
    prod.tick({"t": ["p", "g"]})
    assert list(prod.open) == [1], "an instance that becomes known changes nothing"
    prod.tick({})
    prod.instances["t"] = "7@200"
    prod.tick({"t": ["p"]})
    assert prod.open == {2: ("t", {"p"})}, "a second later, and another one all the same"
    prod.instances["t"] = "7@300"
    prod.tick({"t": ["p"]})
    assert prod.open == {3: ("t", {"p"})}
    assert prod.rows[2].closed_ms == prod.now_ms, "without a tick between them"


@pytest.mark.parametrize("after_ms", [SETTLE_MS - 1, SETTLE_MS])
def test_effects_outlive_their_cause_in_its_incident_and_become_causes_where_they_stay(
    prod: Deployment, after_ms: int
) -> None:
    prod.tick({"t": ["p", "g", "h"]})
    prod.tick({"p": ["g"], "h": []})
    assert prod.open == {1: ("t", {"p", "g", "h"})}
    assert prod.updates[0].cause_over_ms == prod.now_ms
    prod.tick({"p": ["g"], "h": []}, after_ms=after_ms)
    alone = {1: ("h", set()), 2: ("p", {"g"})}
    assert prod.open == (alone if after_ms == SETTLE_MS else {1: ("t", {"p", "g", "h"})})
    prod.tick({})
    assert prod.open == {}


def test_a_cause_that_comes_back_while_its_effects_last_is_the_cause_again(prod: Deployment) -> None:
    prod.tick({"t": ["p"]})
    prod.tick({"p": []})
    prod.tick({"t": ["p"]})
    assert prod.open == {1: ("t", {"p"})}
    assert prod.rows[1].cause_over_ms is None
    assert [each.is_change for each in prod.updates] == [True]


def test_severity_only_grows_also_when_an_incident_reopens(prod: Deployment) -> None:
    seen = []
    for severity in (INFO, CRITICAL, WARNING):
        prod.tick({"t": []}, severity)
        seen.append(prod.rows[1].severity)
    prod.tick({})
    prod.tick({"t": []}, WARNING)
    assert [*seen, prod.rows[1].severity] == [INFO, CRITICAL, CRITICAL, CRITICAL]


@pytest.mark.parametrize("seed", range(5))
def test_random_lifecycles_lose_no_finding_and_give_no_cause_two_incidents(seed: int) -> None:
    random_ = random.Random(seed)
    prod, nodes = Deployment(), [key(f"f{n:02}") for n in range(12)]
    edges = [(nodes[a], nodes[b]) for a in range(12) for b in range(12) if random_.random() < 0.12]
    present: set[FindingKey] = set()
    for _ in range(400):
        present ^= set(random_.sample(nodes, random_.randint(0, 3)))
        found = sorted(present)
        groups = group_by_cause(found, [(a, b) for a, b in edges if a in present and b in present])
        prod.follow(groups, WARNING, random_.choice([1_000, 30_000, SETTLE_MS, REOPEN_MS]))
        rows = [each for each in prod.rows.values() if each.closed_ms is None]
        members = {name for each in rows for name in each.members}
        over = {each.cause for each in rows if each.cause_over_ms is not None}
        assert members - over == present
        assert len({each.cause for each in rows}) == len(rows)
        assert not over & present


def test_10_000_incidents_stay_open_without_change(prod: Deployment) -> None:
    stories: Stories = {f"t{n}": [f"p{n}"] for n in range(10_000)}
    prod.tick(stories)
    prod.tick(stories)
    assert len(prod.open) == 10_000
    assert changes(prod) == []
