"""Proves that the API answers what nobody should send, and ids that nobody should choose."""

import random
from typing import get_args
from urllib.parse import quote

import pytest

from dashboard.api.routers.events import NotableKind
from dashboard.models import Cluster, Transaction, TransitionRecord
from fenceline.decode import text
from fenceline.facts import EVERYDAY, Tombstone, TransactionState, TransitionKind
from tests.api.client import Ask, all_items
from tests.web import factories

pytestmark = pytest.mark.django_db


def test_a_cursor_of_the_other_order_is_refused(ask: Ask, prod: Cluster) -> None:
    for n in range(3):
        factories.takeover_history(prod, b"taken-%d" % n)
    newest = ask("transitions?limit=1")["next"]
    told = ask("transitions?limit=1&since_rev=0")["next"]
    ask(f"transitions?limit=1&since_rev=0&cursor={newest}", 400)
    ask(f"transitions?limit=1&cursor={told}", 400)


def test_every_notable_kind_can_be_asked_for_and_the_others_are_named_as_unknown(ask: Ask) -> None:
    assert {TransitionKind(kind) for kind in get_args(NotableKind)} == set(TransitionKind) - EVERYDAY
    for kind in get_args(NotableKind):
        ask(f"transitions?kind={kind}")
    for kind in ("commit", "TAKEOVER", "takeover,timeout", "%00"):
        assert "takeover" in ask(f"transitions?kind={kind}", 422)["detail"]


def test_since_rev_needs_a_cluster_where_there_are_several(ask: Ask) -> None:
    assert ask("transitions?since_rev=0")["items"] == []
    factories.cluster("other")
    problem = ask("transitions?since_rev=0", 400)
    assert "other" in problem["detail"]
    assert "prod" in problem["detail"]
    ask("transitions?since_rev=0&cluster=other")
    ask(f"transitions?since_rev={2**63 - 1}&cluster=prod")
    ask(f"transitions?since_rev={2**63}&cluster=prod", 422)


@pytest.mark.sql
@pytest.mark.parametrize("since", ["0001-01-01T00:00:00", "9999-12-31T23:59:59.999999-14:00", "0", "-1"])
def test_any_instant_can_be_asked_for(ask: Ask, since: str) -> None:
    ask(f"transitions?since={quote(since)}")


@pytest.mark.sql
@pytest.mark.parametrize(
    "raw", [*factories.HOSTILE_IDS, b"c" * 1_000, bytes(range(32)) * 30, b"\x7f\x80", b""]
)
def test_any_id_is_found_by_its_text_and_comes_back_byte_for_byte(
    ask: Ask, prod: Cluster, raw: bytes
) -> None:
    factories.takeover_history(prod, raw)
    written = quote(text.escape_bytes(raw), safe="")
    for path in (f"transitions?transactional_id={written}", "transitions?since_rev=0", "transactions?"):
        items = ask(path)["items"]
        assert {text.unescape_text(item["transactional_id"]) for item in items} == {raw}
    of = quote(items[0]["application"], safe="")
    assert ask(f"transitions?application={of}")["items"]
    assert len(ask(f"transactions?app={of}")["items"]) == 1
    if raw:
        found = ask(f"transactions/prod/{written}")
        assert text.unescape_text(found["transactional_id"]) == raw
        assert "takeover" in {each["kind"] for each in found["recent"]}


def test_what_is_left_of_an_expired_id_are_its_transitions(ask: Ask, prod: Cluster) -> None:
    gone = factories.TransactionHistory("gone-1", random.Random(1))
    gone.old = False
    gone.now_ms = factories.now_ms() - 60_000
    gone.init()
    gone.takeover()
    factories.save_histories(prod, [*gone.written, Tombstone("gone-1", factories.now_ms() - 1_000)])
    assert not Transaction.objects.exists()
    found = ask("transactions/prod/gone-1")
    assert (found["state"], found["application"], found["partitions"]) == ("Dead", "gone", [])
    assert [each["kind"] for each in found["recent"]][:1] == ["expiry"]
    assert found["offers"] == []
    ask("transactions/prod/never-1", 404)
    items = ask("transitions?transactional_id=gone-1")["items"]
    assert items[0]["kind"] == "expiry"
    assert {item["application"] for item in items} == {"gone"}
    assert all(item["evidence"] for item in items)


@pytest.mark.sql
def test_paging_over_equal_instants_loses_and_doubles_nothing(ask: Ask, prod: Cluster) -> None:
    for cluster in (prod, factories.watched_cluster("other")):
        for n in range(4):
            factories.takeover_history(cluster, b"taken-%d" % n)
    TransitionRecord.objects.update(at_ms=1_795_000_000_000)
    every = {(row.cluster.name, row.log_partition, row.log_offset) for row in TransitionRecord.objects.all()}
    for query in ("", "&kind=takeover", "&confidence=probable", "&application=taken"):
        items = all_items(ask, f"transitions?limit=1{query}")
        found = [(item["cluster"], item["partition"], item["offset"]) for item in items]
        assert len(found) == len(set(found)) > 0
        assert query or set(found) == every


@pytest.mark.sql
def test_ids_of_an_application_are_walked_through_whatever_their_length(ask: Ask, prod: Cluster) -> None:
    same = "x" * 250
    for of in (prod, factories.cluster("other")):
        for n in range(5):
            state = TransactionState.EMPTY if n == 4 else TransactionState.ONGOING
            factories.transaction(of, f"{same}-{n}", state, application="long")
        factories.transaction(of, "short-1", application="short")
    for query, wanted in (("", 10), ("&cluster=other", 5), ("&state=Empty", 2), ("&state=open", 8)):
        items = all_items(ask, f"transactions?app=long&limit=2{query}")
        found = [(item["cluster"], item["transactional_id"]) for item in items]
        assert len(found) == len(set(found)) == wanted
        assert found == sorted(found)
