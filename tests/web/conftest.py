"""A signed-in client, a cluster that is watched, and a configuration with two."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from dashboard.celery import app
from dashboard.config import CheckpointRoot, ClusterConfig, Config
from dashboard.models import Cluster
from sandbox.scenes.player import ScenePlayer
from tests.receivers import Receiver
from tests.web import factories
from tests.web.compact_html import CompactClient
from tests.web.roles import client_with_role, give_role, open_session


@pytest.fixture
def client() -> Client:
    """A client whose pages come without the white space that a browser drops."""
    return CompactClient()


@pytest.fixture
def user(db: None) -> User:
    viewer = User.objects.create_user("operator", password="let me in, please")
    give_role(viewer, "viewer")
    return viewer


@pytest.fixture
def page(client: Client, user: User) -> Client:
    """A client that is signed in."""
    open_session(client, user)
    return client


@pytest.fixture
def admin(db: None) -> Client:
    """A client of its own, signed in as an admin."""
    return client_with_role("admin")


@pytest.fixture
def root(db: None) -> Client:
    """A client of its own, signed in as a superuser."""
    found = CompactClient()
    found.force_login(User.objects.create_superuser("root"))
    return found


@pytest.fixture
def operator(db: None) -> Client:
    """A client of its own, signed in as an operator."""
    return client_with_role("operator")


@pytest.fixture
def prod(page: Client) -> Cluster:
    """A cluster all of whose collectors are up to date; the client of pages is signed in."""
    return factories.watched_cluster()


@pytest.fixture(autouse=True)
def configured(settings: Any) -> None:
    """The configuration names `prod` and `staging`; the database says which of them exist."""
    properties = {"bootstrap.servers": "127.0.0.1:9092", "sasl.password": "hunter2 in clear"}
    names = ("prod", "staging")
    settings.FENCELINE = Config(
        clusters={name: ClusterConfig(name, properties) for name in names},
        checkpoints=[CheckpointRoot("file:///checkpoints", name) for name in names],
    )


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would have been sent to a worker: no Redis runs here."""
    found: list[Any] = []
    monkeypatch.setattr(app, "send_task", lambda *args, **options: found.append((args, options)))
    return found


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver on this machine that takes every message."""
    with Receiver() as there:
        yield there


@pytest.fixture
def sandbox(settings: Any, tmp_path: Path) -> ScenePlayer:
    """The part that plays scenes in a sandbox of one broker with the demo: elsewhere scenes have no page."""
    settings.DATA = tmp_path
    return ScenePlayer(tmp_path, 1, demo=True)
