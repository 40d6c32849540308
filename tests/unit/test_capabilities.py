"""Proves what is said of a cluster by the requests, rights and internal topics that it has."""

from dataclasses import replace

import pytest

from fenceline.kafka.acls import TO_END, TO_LOOK, TO_WRITE_MARKERS, Right, RightTrial, TrialVerdict
from fenceline.kafka.capabilities import (
    CAPABILITIES,
    CapabilityCheck,
    CapabilityState,
    ClusterSight,
    check_capabilities,
)

ALL_RIGHTS = (*TO_LOOK, TO_WRITE_MARKERS, TO_END)
GRANTS = {right: f"grant {right}" for right in ALL_RIGHTS}
STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
WHOLE = ClusterSight(
    requests={1: dict.fromkeys(range(100), 99), 2: dict.fromkeys(range(100), 99)},
    rights=dict.fromkeys(ALL_RIGHTS, RightTrial(TrialVerdict.GRANTED)),
    topics={STATE: True, OFFSETS: True},
    listed={},
)


def found(sight: ClusterSight, *, all_of_them: bool = False) -> dict[str, CapabilityCheck]:
    checks = check_capabilities(sight, GRANTS)
    assert [check.name for check in checks] == [capability.name for capability in CAPABILITIES]
    return {each.name: each for each in checks if all_of_them or each.state is not CapabilityState.WORKS}


def without(sight: ClusterSight, key: int, broker: int = 1) -> ClusterSight:
    kept = {number: version for number, version in (sight.requests[broker] or {}).items() if number != key}
    return replace(sight, requests={**sight.requests, broker: kept})


def tried(sight: ClusterSight, right: Right, verdict: TrialVerdict, reason: str = "") -> ClusterSight:
    return replace(sight, rights={**sight.rights, right: RightTrial(verdict, reason)})


def test_a_whole_cluster_lacks_nothing() -> None:
    assert found(WHOLE) == {}
    assert all(each.why == "" == "".join(each.remedies) for each in found(WHOLE, all_of_them=True).values())


@pytest.mark.parametrize(
    ("key", "lacking"),
    [
        (61, {"blockers", "abort_markers"}),
        (65, {"transactions", "marker_history", "blockers"}),
        (66, {"transactions"}),
        (27, {"abort_markers"}),
        (26, {"fence"}),
        (90, {"share_groups"}),
        (9, {"groups"}),
    ],
)
def test_a_request_that_a_broker_does_not_offer_is_named_with_the_broker(key: int, lacking: set[str]) -> None:
    checks = found(without(WHOLE, key))
    assert set(checks) == lacking
    for check in checks.values():
        assert check.state is CapabilityState.MISSING
        assert check.why.startswith("broker 1 does not offer ")
        assert "Apache Kafka offers" in check.remedies[0]


def test_an_old_version_is_as_good_as_none() -> None:
    old = replace(WHOLE, requests={1: {**(WHOLE.requests[1] or {}), 9: 7}})
    assert "OffsetFetch v8" in found(old)["groups"].why


def test_a_refused_right_limits_what_narrower_grants_may_show_and_ends_the_rest() -> None:
    for right in ALL_RIGHTS:
        checks = found(tried(WHOLE, right, TrialVerdict.REFUSED))
        assert all(GRANTS[right] in check.remedies for check in checks.values())
        limited = right.name == "*" and right is not TO_END
        expected = CapabilityState.LIMITED if limited else CapabilityState.MISSING
        assert {check.state for check in checks.values()} <= {expected}
    read = next(right for right in TO_LOOK if str(right) == f"READ on topic {STATE}")
    assert found(tried(WHOLE, read, TrialVerdict.REFUSED))["log_history"].state is CapabilityState.MISSING


def test_a_name_of_the_scope_that_is_refused_limits_where_another_is_granted() -> None:
    read = next(right for right in TO_LOOK if str(right) == "READ on topic *")
    orders, pay = (read._replace(name=name) for name in ("orders", "pay"))
    rights = {right: trial for right, trial in WHOLE.rights.items() if right is not read}
    scoped = replace(WHOLE, rights={**rights, orders: RightTrial(TrialVerdict.GRANTED)})
    assert found(scoped) == {}
    limited = found(tried(scoped, pay, TrialVerdict.REFUSED))["marker_history"]
    assert limited.state is CapabilityState.LIMITED
    assert limited.why.startswith("no READ on topic pay")
    neither = tried(tried(scoped, orders, TrialVerdict.REFUSED), pay, TrialVerdict.REFUSED)
    assert found(neither)["marker_history"].state is CapabilityState.MISSING


def test_what_could_not_be_tried_is_unknown() -> None:
    checks = found(tried(WHOLE, TO_END, TrialVerdict.INCONCLUSIVE, "not tried"))
    assert {name: check.state for name, check in checks.items()} == {"fence": CapabilityState.UNKNOWN}
    silent = found(replace(WHOLE, requests={1: None, 2: WHOLE.requests[2]}))
    assert len(silent) == len(CAPABILITIES)
    assert {check.state for check in silent.values()} == {CapabilityState.UNKNOWN}
    assert "no broker answers" in found(replace(WHOLE, requests={}))["partitions"].why
    forgotten = {right: trial for right, trial in WHOLE.rights.items() if right is not TO_END}
    assert found(replace(WHOLE, rights=forgotten))["fence"].state is CapabilityState.UNKNOWN


@pytest.mark.parametrize(("topic", "name"), [(STATE, "log_history"), (OFFSETS, "commit_times")])
def test_a_missing_topic_is_unknown_until_something_is_listed_that_belongs_in_it(
    topic: str, name: str
) -> None:
    absent = replace(WHOLE, topics={**WHOLE.topics, topic: False})
    assert set(found(absent)) == {name}
    assert found(absent)[name].state is CapabilityState.UNKNOWN
    kept_nowhere = replace(absent, listed={topic: 3})
    check = found(kept_nowhere)[name]
    assert (check.state, check.why.split(";")[0]) == (
        CapabilityState.MISSING, f"this broker keeps no {topic}"
    )  # fmt: skip


def test_what_is_missing_outweighs_what_is_unknown() -> None:
    both = tried(without(WHOLE, 26), TO_END, TrialVerdict.INCONCLUSIVE, "not tried")
    check = found(both)["fence"]
    assert check.state is CapabilityState.MISSING
    assert "not tried" in check.why
