"""Proves that sessions and tokens that expire in mid run are renewed without a gap: under the tail, under an
admin connection, and under a task of the sink between two of its records."""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from collectors.kafka.internal_topics import Tail
from tests.identity_provider import IdentityProvider
from tests.kafka.authentication import callbacks
from tests.kafka.authentication.conftest import TOPIC
from tests.kafka.authentication.test_sign_in import CALLBACK
from tests.kafka.test_tail import read_all
from tests.kafka.transactional_ids import initialise_ids
from tests.secured import Secured
from tests.spark.sink.queries import FakeQuery, read
from tests.waiting import wait_for
from transaction_admin.kafka_python import TransactionAdmin

pytestmark = pytest.mark.kafka


@pytest.fixture
def short_lived(provider: IdentityProvider) -> Iterator[IdentityProvider]:
    """Tokens that live for twelve seconds.

    A client signs in again after nine tenths of a session, behind a fetch that may wait for half a second:
    the last tenth must be longer, also on a busy machine (KIP-368).
    """
    usual, provider.life_s = provider.life_s, 12
    callbacks.PROVIDERS[:] = [provider]
    yield provider
    provider.life_s = usual


class Renewals:
    """The tokens that a client was given."""

    def __init__(self, properties: Mapping[str, str], provider: IdentityProvider) -> None:
        self._given: list[str] = callbacks.CALLS if "callback" in str(properties) else provider.issued
        self._life_s = provider.life_s

    def wait(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Return when every token of now has expired; others were given."""
        before, until = len(self._given), time.monotonic() + self._life_s + 1

        def expired() -> bool:
            meanwhile()
            return time.monotonic() > until

        wait_for(expired, "the tokens have expired", 60)
        assert len(self._given) > before


@pytest.fixture(params=["endpoint", pytest.param("callback", marks=pytest.mark.matrix)])
def properties(
    request: pytest.FixtureRequest, secured: Secured, short_lived: IdentityProvider
) -> Mapping[str, str]:
    # Another configuration is another cache of tokens: those before live for longer.
    if request.param == "endpoint":
        return secured.by_token() | {"sasl.oauthbearer.scope": uuid.uuid4().hex}
    return secured.by_callback(CALLBACK) | {"sasl.oauthbearer.config": uuid.uuid4().hex}


def test_tail_lists_and_a_task_of_the_sink_go_on_when_tokens_expire(
    secured: Secured, properties: Mapping[str, str], short_lived: IdentityProvider, tmp_path: Path
) -> None:
    initialise_ids(secured.bootstrap, ["before"])
    before = read(secured.bootstrap, TOPIC)
    renewals = Renewals(properties, short_lived)
    query = FakeQuery(tmp_path / "checkpoint", properties["bootstrap.servers"], TOPIC)
    query.options = {f"kafka.{key}": value for key, value in properties.items()}
    driver = query.driver(0)
    attempt = query.begin(driver, 0)
    with closing(TransactionAdmin(properties, 20)) as admin, closing(Tail(properties)) as tail:
        tail.seek("", {})

        def values() -> Iterator[str]:
            yield "before"
            renewals.wait(lambda: _see(admin, tail))
            yield "after"

        written = query.run_task(attempt, 0, values())
        assert written is not None
        driver.commit(attempt, [written])
        name = f"later-{uuid.uuid4().hex[:8]}"
        initialise_ids(secured.bootstrap, [name])
        assert name in read_all(tail)
        assert name in admin.list_transactions().entries
    assert sorted(read(secured.bootstrap, TOPIC)) == sorted([*before, "before", "after"])


@pytest.mark.matrix
def test_a_session_of_a_password_is_renewed_by_both_clients(secured: Secured) -> None:
    """The broker ends one that is not (KIP-368); an id that is made afterwards is seen by both."""
    properties = secured.by_password("PLAIN")
    initialise_ids(secured.bootstrap, ["session"])
    with closing(TransactionAdmin(properties, 20)) as admin, closing(Tail(properties)) as tail:
        tail.seek("", {})
        until = time.monotonic() + secured.session_ms / 1_000 + 1
        while time.monotonic() < until:
            _see(admin, tail)
        name = f"session-{uuid.uuid4().hex[:8]}"
        initialise_ids(secured.bootstrap, [name])
        assert name in read_all(tail)
        assert name in admin.list_transactions().entries


def _see(admin: TransactionAdmin, tail: Tail) -> None:
    tail.mark_saved(tail.poll(0.1))
    admin.list_transactions()
