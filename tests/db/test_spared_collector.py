"""Proves that what tails leave behind is freed, however often one is opened in vain, and that a tail is one
slice's at a time."""

import gc
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from dashboard.tasks import tails


@pytest.fixture(autouse=True)
def _gc_as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


class _Rest:
    """What lies in a cycle."""

    left = 0

    def __init__(self) -> None:
        self.itself = self
        _Rest.left += 1

    def __del__(self) -> None:
        _Rest.left -= 1


def test_the_rest_of_a_closed_tail_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    topic: Any = SimpleNamespace(name="topic")
    lease: Any = SimpleNamespace(cluster="one", shard=0)
    monkeypatch.setattr(tails, "_tails", {})
    tails._tune_garbage_collector()
    for _ in range(3):
        rest = _Rest()
        tails._tails["one", "topic", 0] = SimpleNamespace(close=lambda: None, rest=rest)  # type: ignore[assignment]
        del rest
        # Another tail is opened meanwhile.
        tails._tune_garbage_collector()
        tails._cool(topic, lease)
    assert _Rest.left == 0


def test_two_slices_in_one_process_use_a_tail_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most = [0], [0]

    class Slice:
        def __init__(self, *_: object) -> None: ...

        def read(self) -> None:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.02)
            inside[0] -= 1

    monkeypatch.setattr(tails, "_TailSlice", Slice)
    lease: Any = SimpleNamespace(cluster="one", shard=0)
    slices = [
        threading.Thread(target=tails.read_until, args=(lease, time.monotonic() + 0.1)) for _ in range(3)
    ]
    for each in slices:
        each.start()
    for each in slices:
        each.join(10)
    assert most == [1]
