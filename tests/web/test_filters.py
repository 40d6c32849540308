"""Proves that each list's filters take every word there is, and that a page takes only what it shows."""

from collections.abc import Iterable

import pytest

from dashboard.actions.store import ActionCriteria
from dashboard.alerts.queries import AlertCriteria, DeliveryCriteria
from dashboard.groups.queries import GroupCriteria
from dashboard.history.events import EventCriteria
from dashboard.labels.transition import NOTABLE
from dashboard.models import Action, Alert, Delivery
from dashboard.partitions.queries import PartitionCriteria
from dashboard.recoveries.queries import RecoveryCriteria
from dashboard.runtime.criteria import Criteria, parameter_choices
from dashboard.streaming.queries import SINKS, QueryCriteria
from dashboard.system.audit import FAMILIES, AuditCriteria, Event
from dashboard.transactions.queries import SORTS, SortedTransactions
from dashboard.web.forms.lists import ListQuery, parse_query
from dashboard.web.pages.actions import ActionListQuery
from dashboard.web.pages.events import EventListQuery
from dashboard.web.pages.groups import GroupListQuery
from dashboard.web.pages.partitions import PartitionListQuery
from dashboard.web.pages.recoveries import RecoveryListQuery
from dashboard.web.pages.transactions import TransactionListQuery
from fenceline.facts import ABORTS, Severity, TransactionState
from fenceline.kafka.groups import GroupStatus
from fenceline.kafka.partitions import PartitionVerdict
from fenceline.losses.recoveries import RecoveryOutcome
from fenceline.plans.plan import Act
from fenceline.spark.records import QueryState


@pytest.mark.parametrize(
    ("criteria", "parameter", "words"),
    [
        (ActionCriteria, "act", Act),
        (ActionCriteria, "state", Action.State),
        (AlertCriteria, "severity", Severity),
        (AlertCriteria, "state", (*Alert.State, "active", "all")),
        (AuditCriteria, "event", (*FAMILIES, *Event)),
        (DeliveryCriteria, "origin", Delivery.Origin),
        (DeliveryCriteria, "state", Delivery.State),
        (EventCriteria, "kind", NOTABLE),
        (GroupCriteria, "status", (*GroupStatus, "pending")),
        (PartitionCriteria, "verdict", (*PartitionVerdict, "blocked", "pinned")),
        (QueryCriteria, "sink", SINKS),
        (QueryCriteria, "state", (*QueryState, "prepared")),
        (RecoveryCriteria, "cause", ABORTS & set(NOTABLE)),
        (RecoveryCriteria, "outcome", RecoveryOutcome),
        (SortedTransactions, "sort", (*SORTS, "attention")),
        (SortedTransactions, "state", (*TransactionState, "open")),
    ],
)
def test_every_word_there_is_can_be_asked_for(
    criteria: type[Criteria], parameter: str, words: Iterable[str]
) -> None:
    assert set(parameter_choices(criteria, parameter)) == set(map(str, words))


def test_a_page_takes_no_parameter_that_it_does_not_show() -> None:
    query = {"topic": "orders", "transactional_id": "a", "actor": "ada", "ignored": "x", "filter": "x"}
    for form in (PartitionListQuery, RecoveryListQuery, ActionListQuery):
        wanted = parse_query(query, form, "", ["prod"])
        assert wanted == form(ignored=wanted.ignored)
        assert [text.split()[0] for text in wanted.ignored] == [f"“{name}”" for name in query]
        assert not wanted.narrowed


def test_an_unknown_parameter_is_named_with_the_nearest() -> None:
    wanted = parse_query({"stat": "ongoing", "from": "2026-01-01"}, TransactionListQuery, "", [])
    assert wanted.ignored == ("“stat” is not a parameter of this list (nearest: state)",)


@pytest.mark.parametrize(
    ("form", "asked", "said"),
    [
        (TransactionListQuery, {"page": "-1"}, "page “-1” is not a page number"),
        # Superscript two is a digit to Python.
        (TransactionListQuery, {"page": "²"}, "page “²” is not a page number"),
        (TransactionListQuery, {"page": "99999999999999999999"}, "is not a page number"),
        (TransactionListQuery, {"size": "7"}, "size “7” is none of 50, 100, 200"),
        (TransactionListQuery, {"min_age_s": "nan"}, "min_age_s “nan” is not a number of seconds"),
        (TransactionListQuery, {"min_age_s": "inf"}, "is not a number of seconds"),
        (TransactionListQuery, {"min_age_s": "-5"}, "is not a number of seconds"),
        (TransactionListQuery, {"state": "\0\x1b"}, "state “�” is none of open"),
        (EventListQuery, {"before": "1-1-99999999999999999999999"}, "is not a place"),
    ],
)
def test_a_value_beyond_what_can_be_is_ignored_and_named(
    form: type[ListQuery], asked: dict[str, str], said: str
) -> None:
    (problem,) = parse_query(asked, form, "", []).ignored
    assert said in problem


def test_a_parameter_has_the_name_that_addresses_use() -> None:
    assert parse_query({"who": "ada"}, ActionListQuery, "", []).actor == "ada"


def test_the_order_follows_what_is_asked() -> None:
    assert parse_query({"state": "open"}, TransactionListQuery, "", []).sort == "started"
    assert parse_query({"state": "Empty"}, TransactionListQuery, "", []).sort == "attention"
    assert parse_query({"sort": "lag"}, GroupListQuery, "", []).descending
    assert not parse_query({"sort": "lag", "dir": "asc"}, GroupListQuery, "", []).descending
    assert not parse_query({"sort": "name"}, GroupListQuery, "", []).descending


def test_one_wrong_value_leaves_the_others_as_they_are() -> None:
    wanted = parse_query(
        {"state": "x", "sort": "epoch", "page": "0", "q": " a "}, TransactionListQuery, "", []
    )
    assert (wanted.state, wanted.sort, wanted.page, wanted.q) == ("", "epoch", 1, "a")
    assert [problem.split()[0] for problem in wanted.ignored] == ["state", "page"]
