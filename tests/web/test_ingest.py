"""Proves who may post events of queries, and that no body does harm or refuses its neighbours."""

import gzip
import json
import tracemalloc
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

from dashboard.api import ingest
from dashboard.models import Batch, Query, Token
from dashboard.runtime import collector_store
from dashboard.system.tokens import token_digest
from tests.cases import cases
from tests.db.listener_posts import OTHER_QUERY, batch_event, listener_event, listener_post

SENT_MS = 1_795_000_000_000
BOMB = gzip.compress(b"[" + b" " * (65 * 2**20), compresslevel=1)


@pytest.fixture(autouse=True)
def tokens(db: None) -> None:
    collector_store.sync_clusters(["prod"])
    for role in Token.Role.values:
        Token.objects.create(name=role, role=role, digest=token_digest(f"token of {role}"))


@pytest.fixture(autouse=True)
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How many seconds answers were held back; no test waits for that."""
    seconds: list[float] = []
    monkeypatch.setattr(ingest.time, "sleep", seconds.append)
    return seconds


def post(client: Client, body: Any, *, role: str = "ingest", **headers: str) -> Any:
    """Post a document, or bytes as they are; return status and JSON."""
    if not isinstance(body, bytes):
        headers = {"Content-Encoding": "gzip"} | headers
        body = gzip.compress(json.dumps(body).encode())
    headers = {"Authorization": f"Bearer token of {role}"} | headers
    answer = client.post("/ingest/v1/progress", body, content_type="application/json", headers=headers)
    return answer.status_code, json.loads(answer.content)


def sent(*events: object) -> dict[str, Any]:
    return listener_post(*events, sent_ms=SENT_MS)


def test_events_are_taken_and_counted(client: Client) -> None:
    body = sent(
        listener_event("started", SENT_MS), batch_event(0, SENT_MS), batch_event(1, SENT_MS), {"seq": 9}
    )
    refused = [{"seq": 9, "reason": "at_ms is no time"}]
    answer = {"accepted": 3, "duplicates": 0, "refused": refused, "unread": {}}
    assert post(client, body) == (200, answer)
    assert post(client, body) == (200, answer | {"accepted": 0, "duplicates": 3})
    assert Batch.objects.count() == 2


def test_a_body_need_not_be_compressed(client: Client) -> None:
    assert post(client, json.dumps(sent(batch_event(0, SENT_MS))).encode())[0] == 200


@cases("", "Bearer", "Bearer nobody's", "Basic token of ingest", "Bearer \u00fc")
def test_an_unknown_token_is_refused_with_the_remedy(client: Client, header: str) -> None:
    status, problem = post(client, sent(), Authorization=header)
    assert status == 401
    assert "create_token NAME --role ingest" in problem["detail"]


@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
def test_a_token_of_another_role_may_not_ingest(client: Client, role: str) -> None:
    status, problem = post(client, sent(batch_event(0, SENT_MS)), role=role)
    assert status == 403
    assert f"role {role} may not ingest" in problem["detail"]
    assert not Query.objects.exists()


@cases(
    (b"", {}, 400),
    (b"{", {}, 400),
    (b"[]", {}, 400),
    (b"[" * 100_000, {}, 400),
    (b'{"events": 5}', {}, 400),
    (b"\xff\xfe", {}, 400),
    (b"no gzip", {"Content-Encoding": "gzip"}, 400),
    (gzip.compress(b"{}" * 9_000)[:40], {"Content-Encoding": "gzip"}, 400),
    (BOMB, {"Content-Encoding": "gzip"}, 413),
    (b" " * (8 * 2**20 + 1), {}, 413),
    # Named: gzip writes the time into its bytes, and both of pytest's workers must find the same tests.
    ids=[
        "nothing",
        "torn JSON",
        "no object",
        "too deep",
        "events no list",
        "not UTF-8",
        "not gzip",
        "torn gzip",
        "a bomb",
        "too large",
    ],
)
def test_a_body_that_cannot_be_used_is_a_problem(
    client: Client, body: bytes, headers: dict[str, str], status: int
) -> None:
    found, problem = post(client, body, **headers)
    assert found == status
    assert problem["status"] == status
    assert problem["detail"]


def _unpacked_mb(client: Client, text: bytes, status: int) -> float:
    """Post some text in gzip and return the most memory that its answer took, in MB."""
    body = gzip.compress(text, 1)
    tracemalloc.start()
    try:
        found, said = post(client, body, **{"Content-Encoding": "gzip"})
        most = tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
    assert found == status, said
    assert status == 200 or "A post has at most" in said["detail"]
    return most


@cases(
    b'{"events":[' + b"1," * 3_000_000 + b"1]}",
    b'{"events":[' + b"[]," * 1_000_000 + b"1]}",
    b'{"events":[' + b'{"a":1},' * 400_000 + b"1]}",
    b'{"events":[{"progress":[' + b"{}," * 1_000_000 + b"1]}]}",
    b'{"events":[],"report":{' + b'"a":1,' * 800_000 + b'"a":1}}',
    b'{"events":' + b" " * (13 * 2**20) + b"[]}",
    b'{"events":[],"a":"' + b"\\ud83d" * (5 * 2**19) + b'"}',
    ids=["numbers", "lists", "objects", "in an event", "in the report", "spaces", "one text"],
)
def test_a_bomb_is_refused_before_it_is_built(client: Client, text: bytes) -> None:
    assert _unpacked_mb(client, text, 413) < 45


@cases(
    b'{"events":[{"progress":{' + b'"a":1,' * 200_000 + b'"a":1}}]}',
    b'{"events":[' + b"1," * 4_990 + b"[" + b"[1.5]," * 110_000 + b"1]]}",
    b'{"events":[],"a":"' + b"x" * (11 * 2**20) + b'\\ud83d\\ude00"}',
    ids=["objects", "lists", "one text"],
)
def test_what_is_just_taken_stays_below_a_bound(client: Client, text: bytes) -> None:
    assert _unpacked_mb(client, text, 200) < 100


def test_too_many_events_are_too_large(client: Client) -> None:
    assert post(client, sent(*[{}] * 5_001))[0] == 413


@cases((BOMB, [1.0]), (b"no gzip", []), (gzip.compress(b"{}"), []), ids=["bomb", "torn", "small"])
def test_only_who_sends_a_bomb_waits_for_the_answer(
    client: Client, waited: list[float], text: bytes, rests: list[float]
) -> None:
    post(client, text, **{"Content-Encoding": "gzip"})
    assert waited == rests


@pytest.mark.sql
def test_what_no_database_holds_spoils_nothing_beside_it(client: Client) -> None:
    text = json.dumps(sent(batch_event(0, SENT_MS), batch_event(1, SENT_MS), batch_event(2, SENT_MS)))
    text = text.replace('"batchId": 1', f'"batchId": {"9" * 5_000}').replace('"orders"', '"a\\u0000\\ud800"')
    text = text.replace('"inputRowsPerSecond": 0.0', '"inputRowsPerSecond": NaN')
    status, answer = post(client, text.encode())
    assert (status, answer["accepted"]) == (200, 2)
    assert answer["refused"] == [{"seq": 2, "reason": "batchId is no batch's number"}]
    assert set(Batch.objects.values_list("batch_id", flat=True)) == {0, 2}
    assert Query.objects.get().name == "a\ufffd?"


def test_a_query_of_no_known_cluster_is_answered_with_their_names(client: Client) -> None:
    collector_store.sync_clusters(["prod", "staging"])
    status, problem = post(client, sent(batch_event(0, SENT_MS, query=OTHER_QUERY)))
    assert status == 422
    assert "cluster=" in problem["detail"]
    assert "prod, staging" in problem["detail"]


def test_while_the_database_is_away_nothing_is_taken(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr("dashboard.streaming.progress_store.save_progress", gone)
    status, problem = post(client, sent(batch_event(0, SENT_MS)))
    assert status == 503
    assert "Try again" in problem["detail"]
