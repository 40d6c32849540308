"""Proves that the last transitions of an id are in its row, and by themselves once it is forgotten."""

from collections.abc import Callable, Sequence

import pytest

from dashboard.models import Cluster, Recent, Transaction
from dashboard.transactions import store
from dashboard.transactions.sql import read_priors, recent_ring, recent_rings
from fenceline.facts import NOT_FROM_LOG, Tombstone, TransactionRecord, TransactionState
from fenceline.kafka.fold import transition_ring
from fenceline.kafka.transactional_ids import key_of
from tests.db.conftest import NOW_MS, Take
from tests.factories import tail_batch
from tests.transaction_state_records import encode_key

pytestmark = pytest.mark.sql

KEY, PARTITION = key_of(b"a"), 3


@pytest.fixture
def save(take: Take) -> Callable[..., None]:
    """Save records of one partition, the next ones behind those of before."""
    lease, ends = take(), [0]

    def save(*facts: TransactionRecord | Tombstone) -> None:
        previous = ends[-1] or None
        ends.append(ends[-1] + len(facts))
        batch = tail_batch(PARTITION, *facts, previous=previous, end=ends[-1], seen_through_ms=NOW_MS)
        store.save_batch(lease, batch, topic_id="topic-1", rate=1.0, now_ms=NOW_MS)

    return save


def record(state: TransactionState, epoch: int = 0) -> TransactionRecord:
    return TransactionRecord("a", state, 7, epoch, 60_000, (), NOW_MS, None, 2)


def kinds() -> Sequence[str]:
    """Return the kinds of the last transitions, oldest first."""
    ring = recent_ring(Cluster.objects.get().pk, KEY)
    transitions = transition_ring.unpack_ring(ring.packed, PARTITION) if ring else ()
    return [transition.kind.value for transition in reversed(transitions)]


def test_an_id_that_is_forgotten_and_returns_keeps_its_last_transitions(save: Callable[..., None]) -> None:
    save(record(TransactionState.EMPTY))
    assert not Recent.objects.exists()
    assert kinds() == ["init"]
    save(Tombstone("a", NOW_MS))
    assert Recent.objects.get().expired_ms == NOW_MS
    assert kinds() == ["init", "expiry"]
    save(record(TransactionState.EMPTY, 1))
    ring = recent_ring(Cluster.objects.get().pk, KEY)
    assert ring is not None
    assert ring.expired_ms is None
    assert bytes(Transaction.objects.get().recent) == ring.packed
    assert kinds()[:2] == ["init", "expiry"]
    save(Tombstone("a", NOW_MS + 1))
    assert kinds()[-1] == "expiry"
    assert Recent.objects.get().expired_ms == NOW_MS + 1


def test_an_id_that_only_a_list_names_again_has_the_transitions_from_before(
    save: Callable[..., None],
) -> None:
    save(record(TransactionState.EMPTY), record(TransactionState.EMPTY, 1))
    row = Transaction.objects.get()
    save(Tombstone("a", NOW_MS))
    before = kinds()
    row.pk, row.recent, row.log_offset = None, b"", NOT_FROM_LOG
    row.save()
    assert kinds() == before
    prior = read_priors(row.cluster_id, {PARTITION: [encode_key("a")]})[PARTITION][encode_key("a")]
    assert prior.state is TransactionState.EMPTY
    assert prior.record is None
    assert len(prior.packed) == len(before) * transition_ring.SIZE


def test_ids_without_transitions_are_left_out(save: Callable[..., None]) -> None:
    save(record(TransactionState.EMPTY))
    assert recent_rings(Cluster.objects.get().pk, [KEY, key_of(b"b")]).keys() == {KEY}


def test_lists_do_not_read_them(save: Callable[..., None]) -> None:
    save(record(TransactionState.EMPTY))
    assert Transaction.objects.get().get_deferred_fields() == {"recent"}
