"""Proves that a stateful query's page shows its state files, and names a chain that a restart cannot load."""

import re

import pytest
from django.test import Client

from dashboard.models import Cluster
from tests.web import factories
from tests.web.roles import query_tab, text_of

pytestmark = pytest.mark.django_db


def stores(html: str) -> list[list[str]]:
    """Return the cells of each store that a page lists, as text, without the labels of narrow pages."""
    html = re.sub(r'<span class="narrow-only">[^<]*</span>', "", html)
    rows = re.findall(r"<tr data-store>(.*?)</tr>", html, re.S)
    return [[text_of(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)] for row in rows]


def test_each_store_has_versions_files_and_what_a_restart_loads(page: Client, prod: Cluster) -> None:
    row = factories.query(prod)
    empty = factories.state_chain(1, store="left", base=0, snapshots=0, needed=3, oldest=1, newest=3)
    fresh = factories.state_chain(2, oldest=None, newest=None, needed=None, base=None)
    factories.operator_state(row, factories.state_chain(0), empty, fresh)
    html = query_tab(page, "state")
    first, second, third = stores(html)
    assert first[0] == "0"
    assert "1,100 to 1,204" in first[1]
    assert first[-1] == "version 1,204: snapshot 1,194 and 10 deltas"
    assert second[0] == "1 · left"
    assert second[-1] == "version 3: no snapshot and 3 deltas"
    assert third[-1] == "nothing: no batch is committed"
    assert "data-broken-state" not in html


def test_a_broken_chain_is_named_and_comes_first(page: Client, prod: Cluster) -> None:
    row = factories.query(prod)
    chains = [factories.state_chain(n) for n in range(12)]
    chains[11] = chains[11]._replace(missing=(1_200, 1_203), missing_count=2)
    factories.operator_state(row, *chains)
    html = query_tab(page, "state")
    (named,) = re.findall(r"data-broken-state>(.*?)</div>", html, re.S)
    assert "partition 11: versions 1,200, 1,203 are missing to load version 1,204" in text_of(named)
    listed = stores(html)
    assert [each[0] for each in listed[:2]] == ["11", "0"]
    assert listed[0][-1] == "broken"
    assert len(listed) == 12
    assert html.split('id="more-stores-0"')[1].count("data-store>") == 4


def test_rows_come_from_progress_where_one_operator_has_the_name(page: Client, prod: Cluster) -> None:
    row = factories.query(prod)
    factories.operator_state(row, factories.state_chain())
    counted = {
        "name": "stateStoreSave", "rows_total": 1_204_311, "rows_updated": 8, "rows_removed": 7,
        "memory_bytes": 431, "rows_dropped_by_watermark": 0, "commit_ms": 88, "custom": {},
    }  # fmt: skip
    factories.batch(row, 1_203, operators=[counted])
    heading = re.search(r"State of stateStoreSave.*?</h2>", query_tab(page, "state"), re.S)
    assert heading
    assert "1,204,311 rows" in text_of(heading[0])


def test_what_was_not_listed_is_named(page: Client, prod: Cluster) -> None:
    factories.operator_state(factories.query(prod), unread="permission denied")
    html = query_tab(page, "state")
    (unread,) = re.findall(r"data-unread>(.*?)</p>", html, re.S)
    assert "permission denied" in unread
    assert not stores(html)


def test_a_query_without_state_has_no_such_section(page: Client, prod: Cluster) -> None:
    factories.query(prod)
    assert "data-operator-state" not in query_tab(page, "state")
