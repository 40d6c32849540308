"""Stores that each test finds empty."""

from collections.abc import Iterator

import fsspec
import pytest

from collectors import polling
from collectors.checkpoints import collector as checkpoint_collector
from tests.unit.checkpoints.factories import FaultyFileSystem


@pytest.fixture
def empty_stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Every look searches, unless a test says otherwise.
    monkeypatch.setattr(checkpoint_collector, "SEARCH_EVERY_S", 0.0)
    monkeypatch.setattr(polling, "SHARE", 0)
    FaultyFileSystem.forget()
    yield
    FaultyFileSystem.forget()
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
