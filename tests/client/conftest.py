"""A live dashboard on the loopback, tokens for it, and the command line with an empty home."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dashboard.config import ClusterConfig, Config
from dashboard.models import Cluster, Token
from dashboard.system.tokens import token_digest
from fenceline_client.cli import run
from tests.client.program import Finished
from tests.web import factories
from tests.web.conftest import sent

__all__ = ["sent"]

#: A command that ran in this process, by its arguments.
Fenceline = Callable[..., Finished]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without settings of the user, and the file of their tokens."""
    for name in ("FENCELINE_URL", "FENCELINE_TOKEN", "FENCELINE_INSECURE_HTTP", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "fenceline" / "servers.json"


@pytest.fixture
def fenceline(capsys: pytest.CaptureFixture[str]) -> Fenceline:
    """Run a command in this process, without a terminal."""

    def ran(*arguments: str) -> Finished:
        capsys.readouterr()
        status = run(arguments)
        return Finished(status, *capsys.readouterr())

    return ran


@pytest.fixture
def server(live_server: Any, settings: Any) -> str:
    """The URL of a dashboard that watches `prod`, and may watch `staging`; no broker is there."""
    nowhere = {"bootstrap.servers": "127.0.0.1:1"}
    settings.FENCELINE = Config(clusters={name: ClusterConfig(name, nowhere) for name in ("prod", "staging")})
    return str(live_server.url)


@pytest.fixture
def prod(server: str) -> Cluster:
    """A cluster all of whose collectors are up to date."""
    return factories.watched_cluster()


@pytest.fixture
def signed_in(prod: Cluster, server: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Let the commands that follow send the token of a role; return it."""

    def signed_in(role: str) -> str:
        secret = make_token(role)
        monkeypatch.setenv("FENCELINE_URL", server)
        monkeypatch.setenv("FENCELINE_TOKEN", secret)
        return secret

    return signed_in


@pytest.fixture
def viewer(signed_in: Callable[[str], str]) -> str:
    """The token of a viewer, which the commands of the test send."""
    return signed_in("viewer")


@pytest.fixture
def operator(signed_in: Callable[[str], str]) -> str:
    """The token of an operator, which the commands of the test send."""
    return signed_in("operator")


def make_token(role: str) -> str:
    """Return a new token; its use is not noted, since server and test share one connection."""
    secret = f"secret-of-the-{role}"
    later = datetime.now(UTC) + timedelta(hours=1)
    Token.objects.create(name=f"ci-{role}", role=role, digest=token_digest(secret), last_used_at=later)
    return secret
