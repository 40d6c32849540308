"""Proves of the demo's receiver, alone: it takes what Fenceline signs and nothing else, counts the tries of a
message, refuses the first one on purpose, and shows what came to whoever has the address of its page.
"""

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from dashboard.alerts.senders import signature_header
from sandbox.ports import free_port
from sandbox.receiver.server import (
    MOST_KEPT,
    PAGE_TOKEN,
    REFUSE_ONE_IN,
    SIGNING_SECRET,
    TOLERANCE_S,
    ReceiverServer,
)
from tests.cases import cases

SECRET, OTHER = "whsec_dGhlIHNlY3JldCBvZiB0aGUgcmVjZWl2ZXI=", "whsec_YW5vdGhlciBzZWNyZXQsIG5vdCBpdHMgb3du"
TOKEN = "a-token"
FIRING = {
    "status": "firing",
    "notification_reason": "first_notification",
    "alerts": [{"labels": {"alertname": "late"}, "annotations": {"summary": "<b>it</b> is late"}}],
}


@dataclass
class Running:
    """A receiver that serves, and its folder."""

    data: Path
    port: int

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, str]:
        """Return status and text of one answer."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)) as connection:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def send(
        self, message_id: str, message: Any = FIRING, secret: str = SECRET, age_s: int = 0
    ) -> tuple[int, str]:
        """Send a message as the reference library signs it."""
        body, at_s = json.dumps(message), int(time.time()) - age_s
        signature = Webhook(secret).sign(message_id, datetime.fromtimestamp(at_s, UTC), body)
        headers = {"webhook-id": message_id, "webhook-timestamp": str(at_s), "webhook-signature": signature}
        return self.request("POST", "/hook", body.encode(), **headers)

    def listed(self) -> list[dict[str, Any]]:
        """Return the messages that it shows, the newest first."""
        return list(json.loads(self.request("GET", f"/{TOKEN}/messages.json")[1])["messages"])


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Running]:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / SIGNING_SECRET).write_text(f"{SECRET}\n")
    (tmp_path / "secrets" / PAGE_TOKEN).write_text(f"{TOKEN}\n")
    port = free_port()
    with ReceiverServer(tmp_path, port) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield Running(tmp_path, port)
        server.shutdown()
        thread.join()


def test_the_first_message_is_refused_once_and_taken_when_it_comes_again(receiver: Running) -> None:
    assert receiver.send("msg_1") == (503, "demo receiver: refused on purpose, so that a retry is seen\n")
    assert receiver.send("msg_1") == (200, "demo receiver: taken\n")
    again, first = receiver.listed()
    assert (first["message_id"], first["attempt"], first["signature"], first["answer"]) == (
        "msg_1", 1, "valid", 503,
    )  # fmt: skip
    assert (again["message_id"], again["attempt"], again["signature"], again["answer"]) == (
        "msg_1", 2, "valid", 200,
    )  # fmt: skip
    assert (again["status"], again["reason"]) == ("firing", "first_notification")


def test_one_new_message_in_so_many_is_refused(receiver: Running) -> None:
    answers = [receiver.send(f"msg_{number}")[0] for number in range(2 * REFUSE_ONE_IN)]
    assert answers == [503, *[200] * (REFUSE_ONE_IN - 1)] * 2


def test_a_test_of_the_channel_is_never_refused(receiver: Running) -> None:
    assert receiver.send("msg_1", FIRING | {"notification_reason": "test"})[0] == 200


@cases(
    ({"secret": OTHER}, "no signature fits the receiver's secret"),
    ({"age_s": TOLERANCE_S + 60}, "s old, more than 300 s"),
    ({"age_s": -TOLERANCE_S - 60}, "s ahead, more than 300 s"),
)
def test_what_is_not_signed_now_with_its_secret_is_not_taken(
    receiver: Running, how: dict[str, Any], why: str
) -> None:
    status, text = receiver.send("msg_1", **how)
    assert (status, why in text) == (401, True), text
    (shown,) = receiver.listed()
    assert (shown["attempt"], shown["answer"], shown["summary"]) == (0, 401, "")
    assert why in shown["signature"]


@pytest.mark.parametrize("missing", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_header_is_named(receiver: Running, missing: str) -> None:
    headers = {"webhook-id": "a", "webhook-timestamp": "1", "webhook-signature": "v1,x"}
    del headers[missing]
    assert receiver.request("POST", "/hook", b"{}", **headers) == (
        401, f"demo receiver: not taken: the header {missing} is missing\n",
    )  # fmt: skip


@pytest.mark.parametrize("timestamp", ["", "soon", "-1", "1e9", "9" * 40, "١٢٣"])
def test_a_timestamp_that_is_no_number_of_seconds_is_refused(receiver: Running, timestamp: str) -> None:
    headers = {"webhook-id": "a", "webhook-signature": "v1,x", "webhook-timestamp": timestamp}
    assert receiver.request("POST", "/hook", b"{}", **{n: v.encode() for n, v in headers.items()})[0] == 401  # type: ignore[arg-type]


def test_a_changed_secret_is_read_without_a_restart(receiver: Running) -> None:
    (receiver.data / "secrets" / SIGNING_SECRET).write_text(OTHER)
    receiver.send("msg_1", secret=OTHER)
    assert receiver.listed()[0]["signature"] == "valid"
    for broken in ("whsec_", "whsec_not base64", ""):
        (receiver.data / "secrets" / SIGNING_SECRET).write_text(broken)
        assert "own secret" in receiver.send("msg_2")[1]


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"\xff", b'{"alerts": []}', b'{"alerts": {"a": 1}}'])
def test_a_signed_body_of_any_shape_has_its_answer(receiver: Running, body: bytes) -> None:
    at_s = int(time.time())
    signature = signature_header([OTHER, SECRET], "msg_1", at_s, body)
    headers = {"webhook-id": "msg_1", "webhook-timestamp": str(at_s), "webhook-signature": signature}
    assert receiver.request("POST", "/hook", body, **headers)[0] == 503
    (shown,) = receiver.listed()
    assert (shown["signature"], shown["status"], shown["body_bytes"]) == ("valid", "", len(body))


@pytest.mark.parametrize("length", ["", "many", "-1", str(2**20 + 1)])
def test_a_body_without_a_bounded_length_is_not_read(receiver: Running, length: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", receiver.port, timeout=10)
    connection.putrequest("POST", "/hook")
    if length:
        connection.putheader("Content-Length", length)
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    assert receiver.listed() == []


def test_only_the_last_messages_are_kept(receiver: Running) -> None:
    for number in range(MOST_KEPT + 5):
        receiver.send(f"msg_{number}")
    listed = receiver.listed()
    assert len(listed) == MOST_KEPT
    assert listed[0]["message_id"] == f"msg_{MOST_KEPT + 4}"


def test_what_came_is_shown_escaped_and_to_whoever_has_the_address_alone(receiver: Running) -> None:
    receiver.send("msg_1")
    status, page = receiver.request("GET", f"/{TOKEN}/")
    assert status == 200
    assert "&lt;b&gt;it&lt;/b&gt; is late" in page
    assert "<b>it</b>" not in page
    assert receiver.request("GET", f"/{TOKEN}/page.css")[0] == 200
    for path in (
        "/",
        "/hook",
        "/messages.json",
        "/other/",
        f"/{TOKEN}",
        f"/{TOKEN}/x",
        f"/{TOKEN}/../secrets",
    ):
        assert receiver.request("GET", path)[0] == 404, path
    assert receiver.request("POST", f"/{TOKEN}/")[0] == 404


def test_without_its_token_nobody_sees_anything(receiver: Running) -> None:
    (receiver.data / "secrets" / PAGE_TOKEN).unlink()
    assert [receiver.request("GET", path)[0] for path in ("/", "//", f"/{TOKEN}/")] == [404] * 3
