"""Proves that a lease has one holder, and that its token fences off a former one."""

import os
import socket
from datetime import timedelta

import pytest
from django.db.models.functions import Now

from dashboard.models import Collector
from dashboard.runtime import leases
from dashboard.runtime.leases import Lease, LeaseLost
from tests.db.conftest import Take

pytestmark = pytest.mark.sql


def expire(lease: Lease) -> None:
    leases.collector_row(lease).update(expires_at=Now() - timedelta(seconds=1))


def test_a_live_lease_is_not_given_twice(take: Take) -> None:
    take()
    assert leases.acquire("prod", "transaction_state", holder="other", now_ms=0) is None


def test_an_expired_lease_is_given_with_a_greater_token(take: Take) -> None:
    first = take()
    expire(first)
    assert take().token > first.token


def test_the_next_slice_takes_over_by_the_former_token(take: Take) -> None:
    first = take()
    assert take(previous=first.token).token == first.token + 1


def test_an_outdated_token_takes_nothing_over(take: Take) -> None:
    first = take()
    take(previous=first.token)
    late = leases.acquire("prod", "transaction_state", holder="late", now_ms=0, previous=first.token)
    assert late is None


def test_a_fenced_holder_can_neither_renew_nor_release(take: Take) -> None:
    paused = take()
    expire(paused)
    current = take()
    with pytest.raises(LeaseLost):
        leases.renew(paused)
    leases.release(paused)
    assert leases.unheld_clusters("transaction_state", "groups") == {
        "transaction_state": [],
        "groups": ["prod"],
    }
    leases.renew(current)


def test_a_released_lease_is_free_at_once(take: Take) -> None:
    leases.release(take())
    assert leases.unheld_clusters("transaction_state") == {"transaction_state": ["prod"]}
    take()


def test_an_expired_holder_without_a_successor_may_renew(take: Take) -> None:
    lease = take()
    expire(lease)
    leases.renew(lease)
    assert Collector.objects.filter(expires_at__gt=Now()).count() == 1


def test_a_holder_is_named_by_its_host_and_process() -> None:
    host, _, process = leases.holder_name().partition(":")
    assert host == socket.gethostname()
    assert int(process.partition("/")[0]) == os.getpid()
