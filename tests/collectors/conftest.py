"""Stores that each test finds empty."""

from __future__ import annotations

from collections.abc import Iterator

import fsspec
import pytest

from collectors.checkpoints import collector as module
from tests.collectors.faulty import FaultyFileSystem


@pytest.fixture
def empty_stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Every look searches, unless a test says otherwise.
    monkeypatch.setattr(module, "SEARCH_EVERY_S", 0.0)
    monkeypatch.setattr(module, "_PACE", 0)
    FaultyFileSystem.forget()
    yield
    FaultyFileSystem.forget()
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
