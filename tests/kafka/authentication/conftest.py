"""A broker that asks who is there in every way at once, and the identity provider that it trusts."""

from collections.abc import Iterator

import pytest

from tests.brokers import PROPERTIES, create_topics
from tests.identity_provider import IdentityProvider
from tests.receivers import Authority
from tests.secured import Secured

TOPIC = "secured"


@pytest.fixture(scope="package")
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as provider:
        yield provider


@pytest.fixture(scope="package")
def secured(tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider) -> Iterator[Secured]:
    """Sessions last twelve seconds there, or as long as their token."""
    folder = tmp_path_factory.mktemp("kafka-secured")
    authority = Authority(tmp_path_factory.mktemp("authority"))
    made = Secured(
        folder,
        properties=PROPERTIES,
        authorizer=True,
        authority=authority,
        provider=provider,
        session_ms=12_000,
    )
    with made as broker:
        broker.let_in()
        create_topics(broker.bootstrap, TOPIC, partitions=2)
        yield broker
