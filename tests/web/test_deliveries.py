"""Proves that every message is found with what was sent and answered, and is sent again with the same id."""

import re
from typing import Any

import pytest
from django.test import Client

from dashboard.models import Delivery
from tests.web import factories
from tests.web.roles import page_html

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("prod")]


def numbers(page: Client, query: str = "") -> list[int]:
    return [
        int(each)
        for each in re.findall(r'href="/deliveries/(\d+)" data-row', page_html(page, f"/deliveries{query}"))
    ]


def test_the_address_decides_what_is_shown(page: Client) -> None:
    ops, pager = factories.channel("ops"), factories.channel("pager")
    done = factories.delivery(ops)
    failed = factories.delivery(pager, "failed")
    waits = factories.delivery(ops, "pending")
    test = factories.delivery(ops, origin="test")
    assert numbers(page) == [test.pk, waits.pk, failed.pk, done.pk]
    assert numbers(page, "?state=pending") == [waits.pk]
    assert numbers(page, "?state=failed") == [failed.pk]
    assert numbers(page, "?origin=test") == [test.pk]
    assert numbers(page, f"?channel={pager.pk}") == [failed.pk]
    assert numbers(page, "?channel=4711") == []
    assert "No matching deliveries" in page_html(page, "/deliveries?channel=4711")


def test_nothing_was_sent_so_far(page: Client) -> None:
    assert 'data-empty="none"' in page_html(page, "/deliveries")


def test_one_delivery_shows_all_that_went_over_the_wire(page: Client) -> None:
    alert = factories.alert(factories.cluster())
    over = factories.alert(factories.cluster(), "transaction:payments-8", "resolved")
    held = {
        "firing": [bytes(alert.fingerprint).hex()],
        "resolved": [bytes(over.fingerprint).hex(), "00" * 32],
    }
    row = factories.delivery(factories.channel(), "failed", held=held, attempts=12)
    text = page_html(page, f"/deliveries/{row.pk}")
    for words in (
        "1 firing, 2 resolved", "failed after 12 attempts", "try 12", "The newest 1 of 12 attempts.",
        "hooks.example.org answered 500. Check the receiver.", "&lt;b&gt;boom&lt;/b&gt;", "93.184.216.34",
        "webhook-signature", "content-type", "took 34 ms", "&quot;version&quot;: &quot;4&quot;",
        f'href="/alerts/{alert.pk}"', f'href="/alerts/{over.pk}"', "and 1 more", "first notification",
    ):  # fmt: skip
        assert words in text, words
    assert "<b>boom" not in text


def test_a_try_without_an_answer_says_so(page: Client) -> None:
    tried = {
        "at_ms": factories.now_ms(),
        "ms": 5_000,
        "request": {"url": "https://x", "headers": {}},
        "error": "no DNS",
    }
    row = factories.delivery(factories.channel(), "failed", tries=[tried])
    text = page_html(page, f"/deliveries/{row.pk}")
    assert "no answer" in text
    assert "no response" in text
    assert "no DNS" in text


def test_it_is_sent_again_with_the_same_id(operator: Client) -> None:
    row = factories.delivery(factories.channel(), "failed", held={"firing": [], "resolved": []})
    answer = operator.post(f"/deliveries/{row.pk}/again")
    assert answer.status_code == 303
    again = Delivery.objects.exclude(pk=row.pk).get()
    assert answer["Location"] == f"/deliveries/{again.pk}"
    assert (again.message_id, again.payload, again.origin) == (row.message_id, row.payload, "again")
    assert f'Sent again from <a href="/deliveries/{row.pk}"' in page_html(operator, f"/deliveries/{again.pk}")
    assert f'href="/deliveries/{again.pk}"' in page_html(operator, f"/deliveries/{row.pk}")


@pytest.mark.parametrize(
    ("state", "channel", "said"),
    [
        ("failed", {"enabled": False}, "The channel ops is disabled: enable it"),
        ("pending", {}, "This message is still being sent"),
    ],
)
def test_what_cannot_be_sent_again_says_why(
    operator: Client, state: str, channel: dict[str, Any], said: str
) -> None:
    row = factories.delivery(factories.channel(**channel), state)
    operator.post(f"/deliveries/{row.pk}/again")
    assert said in page_html(operator, f"/deliveries/{row.pk}")
    assert Delivery.objects.count() == 1
