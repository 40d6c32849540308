"""Functions that a configuration names for its tokens, good ones and bad ones."""

import time

from tests.identity_provider import IdentityProvider

#: The provider that `signed` asks, and what it was called with.
PROVIDERS: list[IdentityProvider] = []
CALLS: list[str] = []
NO_FUNCTION = "text"


def signed(config: str) -> tuple[str, float]:
    """Return a token that lives as long as the provider says."""
    CALLS.append(config)
    provider = PROVIDERS[-1]
    return provider.token("collector"), time.time() + provider.life_s


def expired(_: str) -> tuple[str, float]:
    """Return a token that its own life does not cover any more."""
    return PROVIDERS[-1].token("collector", life_s=-60), time.time() - 60


def lying(_: str) -> tuple[str, float]:
    """Return a token that has expired, and that it has not."""
    return PROVIDERS[-1].token("collector", life_s=-60), time.time() + 60


def raising(_: str) -> tuple[str, float]:
    """Fail as a function of a user's may."""
    raise RuntimeError("the vault is sealed")


def odd(_: str) -> str:
    """Return what is no token."""
    return "a token alone"
