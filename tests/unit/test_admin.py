"""Proves what is asked of brokers: nothing about ids outside of the scope; which rights a scope takes; what
is said of a cluster by what it offers; and that a refused or closed connection leaves nothing behind."""

import gc
import os
import re
import selectors
import socket
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.errors import KafkaConnectionError
from kafka.net.inet import create_connection
from kafka.net.selector import NetworkSelector

from collectors.kafka.reconcile import PreviousTransactionState, Reconciler
from fenceline.decode.text import escape_bytes
from fenceline.facts import Tombstone, TransactionState
from fenceline.kafka.acls import (
    TO_END,
    TO_LOOK,
    TO_WRITE_MARKERS,
    Resource,
    Right,
    RightTrial,
    TrialVerdict,
    rights_within,
)
from fenceline.kafka.capabilities import (
    CAPABILITIES,
    CapabilityCheck,
    CapabilityState,
    ClusterSight,
    check_capabilities,
)
from fenceline.kafka.reconcile import Correction, KnownTransaction, Listed, NotDescribed, Obstacle
from fenceline.kafka.scope import EVERYTHING, Scope
from fenceline.plans.producers import undescribed_refusal
from sandbox.ports import HOST
from tests.cases import cases
from transaction_admin import acl_probe, connection, kafka_python
from transaction_admin.acl_probe import Trials
from transaction_admin.api import Cost, TransactionListing
from transaction_admin.kafka_python import TransactionAdmin

_TIMES = 20


@pytest.fixture
def net() -> Iterator[NetworkSelector]:
    """Run kafka-python's loop without garbage collections."""
    gc.collect()
    gc.disable()
    net = NetworkSelector()
    net.start()
    yield net
    net.stop()
    gc.enable()


def test_a_refused_connection_leaves_no_socket_open(net: NetworkSelector) -> None:
    with socket.socket() as closed:
        closed.bind((HOST, 0))
        port = closed.getsockname()[1]
        before = len(os.listdir("/dev/fd"))
        for _ in range(_TIMES):
            with pytest.raises(KafkaConnectionError):
                net.run(create_connection, net, HOST, port, (), connection._DEFAULTS["proxy_url"])
        # Threads of other tests may open a file or two meanwhile; a leak is one for each connection.
        assert len(os.listdir("/dev/fd")) - before < _TIMES // 2


def test_a_selector_finds_a_closed_socket_and_no_unknown_one() -> None:
    with connection.BriefSelector() as selector, socket.socket() as known, socket.socket() as unknown:
        selector.register(known, selectors.EVENT_READ)
        with pytest.raises(KeyError):
            selector.get_key(unknown)
        known.close()
        assert selector.get_key(known).fileobj is known
        selector.unregister(known)
        assert not selector.get_map()


class SilentConnection:
    """A connection over which nothing may be asked."""

    def __init__(self, *_: object) -> None:
        self.principal = "User:fenceline"

    def run(self, question: object, *_: object) -> Any:
        raise AssertionError(f"asked: {question}")


def test_an_id_outside_of_the_scope_is_refused_by_name_and_not_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_python, "AdminConnection", SilentConnection)
    admin = TransactionAdmin({}, scope=Scope(transactional_ids=("pay-*",)))
    answer = admin.describe_transactions(["orders-1"], listed=True)["orders-1"]
    assert isinstance(answer, NotDescribed)
    assert answer.obstacle is Obstacle.FORBIDDEN
    assert "orders-1 cannot be seen: it is outside the configured scope" in str(
        undescribed_refusal("orders-1", answer)
    )


@pytest.mark.parametrize(("code", "exists"), [(0, True), (3, False), (5, None), (29, None)])
def test_only_a_broker_that_says_so_proves_that_a_topic_is_missing(
    monkeypatch: pytest.MonkeyPatch, code: int, exists: bool | None
) -> None:
    class Answer:
        topics = (type("Topic", (), {"error_code": code}),)

    monkeypatch.setattr(acl_probe, "AdminConnection", SilentConnection)
    trials = Trials({})
    monkeypatch.setattr(trials, "_ask", lambda _: Answer)
    assert trials.topic_exists("__transaction_state") is exists


def test_rows_outside_of_the_scope_are_removed() -> None:
    row = KnownTransaction(TransactionState.ONGOING, 7, 12)
    rows = {"pay-1": row, "orders-1": row}
    listing = TransactionListing({"pay-1": Listed(TransactionState.ONGOING, 7)}, (), "")
    admin = SimpleNamespace(cost=Cost(0, 0.0), list_transactions=lambda _: listing)
    ours = SimpleNamespace(
        without_tail=lambda: False, read_through_ms=lambda: 1, all_rows=lambda: iter(rows.items())
    )
    for patterns, outside in (("*",), ()), (("pay-*",), (Correction(Tombstone("orders-1"), row, True),)):
        reconciler = Reconciler(cast(TransactionAdmin, admin), pytest.fail, Scope(transactional_ids=patterns))
        found = reconciler.poll(1, cast(PreviousTransactionState, ours))
        assert (found.corrections, found.outside) == ((), outside)


NARROW = Scope(topics=("orders", "pay-*"), groups=("billing-*",), transactional_ids=("pay-*", "a.b"))


@cases(("orders", True), ("orders-2", False), ("pay-", True), ("pay-1", True), ("pa", False), ("*", False))
def test_a_pattern_is_a_name_or_a_beginning(name: str, inside: bool) -> None:
    assert NARROW.has_topic(name) is inside
    for topic in (name, "__transaction_state", "__consumer_offsets"):
        assert EVERYTHING.has_topic(topic)
        assert NARROW.has_topic(topic) or topic == name


@pytest.mark.parametrize("name", ["pay-1", "a.b", "axb", "pay", "", "x-pay-1", "pay-\n"])
def test_the_pattern_for_brokers_matches_what_is_inside(name: str) -> None:
    assert NARROW.id_pattern is not None
    assert bool(re.fullmatch(NARROW.id_pattern, name, re.DOTALL)) is NARROW.has_id(name)


@pytest.mark.parametrize("name", ["orders 1", "b\u00e4r-1", "a'b", "back\\slash-1", "tab\t-1", "(x|y)-1"])
def test_a_name_of_any_characters_is_inside_by_its_escaped_text(name: str) -> None:
    for pattern in name, f"{name[:-1]}*":
        scope = Scope(groups=(pattern,), transactional_ids=(pattern,))
        assert scope.has_id(escape_bytes(name.encode()))
        assert scope.has_group(escape_bytes(name.encode()))
        assert scope.id_pattern is not None
        assert re.fullmatch(scope.id_pattern, name)


def test_everything_needs_no_pattern_and_a_whole_cluster_lacks_nothing() -> None:
    assert (EVERYTHING.id_pattern, EVERYTHING.has_all_ids, str(EVERYTHING)) == (None, True, "")
    assert not NARROW.has_all_ids
    assert str(NARROW) == "topics orders, pay-*; groups billing-*; transactional ids pay-*, a.b"
    assert found(WHOLE) == {}
    assert all(each.why == "" == "".join(each.remedies) for each in found(WHOLE, all_of_them=True).values())


def test_rights_are_those_on_what_is_inside() -> None:
    assert rights_within(TO_LOOK, EVERYTHING.patterns) == list(TO_LOOK)
    rights = rights_within(TO_LOOK, NARROW.patterns)
    options = {f"{right.operation} {right.resource_option}" for right in rights}
    assert options >= {
        "READ --topic orders", "READ --topic pay- --resource-pattern-type prefixed",
        "READ --topic __transaction_state", "DESCRIBE --transactional-id a.b", "DESCRIBE --cluster",
    }  # fmt: skip
    assert not any("'*'" in option for option in options)
    assert all(right.resource is not Resource.GROUP or right.name != "*" for right in rights)


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


@cases(
    (61, {"blockers", "abort_markers"}),
    (65, {"transactions", "marker_history", "blockers"}),
    (66, {"transactions"}),
    (27, {"abort_markers"}),
    (26, {"fence"}),
    (90, {"share_groups"}),
    (9, {"groups"}),
)
def test_a_request_that_a_broker_does_not_offer_is_named_with_the_broker(key: int, lacking: set[str]) -> None:
    checks = found(without(WHOLE, key))
    assert set(checks) == lacking
    for check in checks.values():
        assert check.state is CapabilityState.MISSING
        assert check.why.startswith("broker 1 does not offer ")
        assert "Apache Kafka offers" in check.remedies[0]
    # Brokers without share groups lack nothing that tells of them.
    assert found(without(without(without(WHOLE, 90), 76), 76, broker=2)) == {}
    # An old version is as good as none.
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


def test_what_could_not_be_tried_is_unknown_which_what_is_missing_outweighs() -> None:
    untried = tried(WHOLE, TO_END, TrialVerdict.INCONCLUSIVE, "not tried")
    checks = found(untried)
    assert {name: check.state for name, check in checks.items()} == {"fence": CapabilityState.UNKNOWN}
    silent = found(replace(WHOLE, requests={1: None, 2: WHOLE.requests[2]}))
    assert len(silent) == len(CAPABILITIES)
    assert {check.state for check in silent.values()} == {CapabilityState.UNKNOWN}
    assert "no broker answers" in found(replace(WHOLE, requests={}))["partitions"].why
    forgotten = {right: trial for right, trial in WHOLE.rights.items() if right is not TO_END}
    assert found(replace(WHOLE, rights=forgotten))["fence"].state is CapabilityState.UNKNOWN
    missing = found(without(untried, 26))["fence"]
    assert (missing.state, "not tried" in missing.why) == (CapabilityState.MISSING, True)


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
