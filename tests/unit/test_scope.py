"""Proves what is inside a scope, and which rights it takes."""

import re

import pytest

from fenceline.decode.text import escape_bytes
from fenceline.kafka.acls import TO_LOOK, Resource, rights_within
from fenceline.kafka.scope import EVERYTHING, Scope

NARROW = Scope(topics=("orders", "pay-*"), groups=("billing-*",), transactional_ids=("pay-*", "a.b"))


@pytest.mark.parametrize(
    ("name", "inside"),
    [("orders", True), ("orders-2", False), ("pay-", True), ("pay-1", True), ("pa", False), ("*", False)],
)
def test_a_pattern_is_a_name_or_a_beginning(name: str, inside: bool) -> None:
    assert NARROW.has_topic(name) is inside
    assert EVERYTHING.has_topic(name)


def test_the_coordinators_topics_are_inside() -> None:
    assert Scope(topics=("orders",)).has_topic("__transaction_state")
    assert Scope(topics=("orders",)).has_topic("__consumer_offsets")


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


def test_everything_needs_no_pattern() -> None:
    assert (EVERYTHING.id_pattern, EVERYTHING.has_all_ids, str(EVERYTHING)) == (None, True, "")
    assert not NARROW.has_all_ids
    assert str(NARROW) == "topics orders, pay-*; groups billing-*; transactional ids pay-*, a.b"


def test_rights_are_those_on_what_is_inside() -> None:
    assert rights_within(TO_LOOK, EVERYTHING.patterns) == list(TO_LOOK)
    rights = rights_within(TO_LOOK, NARROW.patterns)
    options = {f"{right.operation} {right.resource_option}" for right in rights}
    assert "READ --topic orders" in options
    assert "READ --topic pay- --resource-pattern-type prefixed" in options
    assert "READ --topic __transaction_state" in options
    assert "DESCRIBE --transactional-id a.b" in options
    assert "DESCRIBE --cluster" in options
    assert not any("'*'" in option for option in options)
    assert all(right.resource is not Resource.GROUP or right.name != "*" for right in rights)
