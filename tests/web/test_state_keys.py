"""Proves that keys of a query's state are shown where a job has read them, only where they are configured,
to admins alone, and that whatever is wrong with the files is named with its remedy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from dashboard.config import Config
from dashboard.models import Cluster
from fenceline.spark.state_keys import (
    StateKeys,
    StateRow,
    state_keys_file,
    state_keys_folder,
    write_state_keys,
)
from tests.web import factories
from tests.web.roles import client_with_role, page_html

QUERY = f"/queries/prod/{factories.QUERY_ID}"
PAGE = f"{QUERY}/state-keys"
ROWS = (StateRow(0, '{"user":"<u-1>"}', '{"count":3}'), StateRow(1, '{"user":"u-2"}'))
KEYS = StateKeys(factories.QUERY_ID, 0, "stateStoreSave", "default", 41, 0, "key.user > 'u'", ROWS, True)


@pytest.fixture
def admin(prod: Cluster) -> Client:
    factories.operator_state(factories.query(prod), factories.state_chain())
    return client_with_role("admin")


@pytest.fixture
def folder(tmp_path: Path, settings: Any) -> Path:
    """Where the job leaves what it reads of the query."""
    settings.FENCELINE = Config(state_keys_url=tmp_path.as_uri())
    made = tmp_path / state_keys_folder("prod", factories.QUERY_ID)
    made.mkdir(parents=True)
    return made


def save(folder: Path, keys: StateKeys) -> None:
    (folder / state_keys_file(keys.operator_id, keys.store)).write_text(write_state_keys(keys))


def test_keys_are_shown_by_operator_and_store(admin: Client, folder: Path) -> None:
    save(folder, KEYS)
    save(folder, replace(KEYS, store="left-keyToNumValues", rows=(), has_more=False))
    assert "data-state-keys" in page_html(admin, QUERY)
    text = page_html(admin, PAGE)
    assert text.count("data-keys-of=") == 2
    assert text.count("data-key>") == 2
    assert "&lt;u-1&gt;" in text
    assert "<u-1>" not in text


def test_nothing_was_read_yet(admin: Client, folder: Path) -> None:
    text = page_html(admin, PAGE)
    assert "data-keys-of=" not in text
    assert "spark_pipeline/state_keys.py --cluster prod" in text
    folder.rmdir()
    assert "data-trouble" not in page_html(admin, PAGE)


def test_keys_are_off_until_a_folder_is_configured(admin: Client) -> None:
    assert "data-state-keys" not in page_html(admin, QUERY)
    assert admin.get(PAGE).status_code == 404


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_keys_take_a_permission_of_their_own(admin: Client, folder: Path, role: str) -> None:
    save(folder, KEYS)
    client = client_with_role(role)
    assert "data-state-keys" not in page_html(client, QUERY)
    answer = client.get(PAGE)
    assert answer.status_code == 403
    assert "u-2" not in answer.content.decode()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is torn"),
        ('{"format": 2}', "its format is 2"),
        (write_state_keys(replace(KEYS, batch_id="41")), "batch_id has a value of another type"),  # type: ignore[arg-type]
        (write_state_keys(KEYS).replace('"has_more"', '"hasMore"'), "hasMore"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(admin: Client, folder: Path, text: str, reason: str) -> None:
    save(folder, replace(KEYS, operator_id=1))
    (folder / "operator=0.store=default.json").write_text(text)
    page = page_html(admin, PAGE)
    assert page.count("data-trouble") == 1
    assert reason in page
    assert "operator=0.store=default.json" in page
    assert page.count("data-keys-of=") == 1, "the other file is shown"


def test_a_store_that_cannot_be_opened_is_named(admin: Client, settings: Any) -> None:
    settings.FENCELINE = Config(state_keys_url="nowhere://bucket/x")
    assert "[state_keys] url" in page_html(admin, PAGE)
