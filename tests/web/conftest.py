"""A signed-in client, and a configuration with two clusters."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from dashboard.config import ClusterConfig, Config


@pytest.fixture
def user(db: None, settings: Any) -> User:
    # The real hasher is slow by design; what is tested here is not its strength.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    return User.objects.create_user("operator", password="let me in, please")


@pytest.fixture
def page(client: Client, user: User) -> Client:
    """A client that is signed in."""
    client.force_login(user)
    return client


@pytest.fixture(autouse=True)
def configured(settings: Any) -> None:
    """The configuration names `prod` and `staging`; the database says which of them exist."""
    properties = {"bootstrap.servers": "127.0.0.1:9092", "sasl.password": "hunter2 in clear"}
    names = ("prod", "staging")
    settings.FENCELINE = Config(clusters={name: ClusterConfig(name, properties) for name in names})
