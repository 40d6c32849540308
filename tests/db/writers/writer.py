"""What writes one thing more at each call."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from dashboard.runtime import leases
from dashboard.runtime.leases import Lease
from tests.db.conftest import NOW_MS

#: Queries, groups and partitions that are written again and again.
FEW = 4


def lease(name: str) -> Lease:
    """Take a lease that must be free."""
    taken = leases.acquire("prod", name, holder="test", now_ms=NOW_MS, ttl=leases.TTL * 1_000)
    assert taken is not None, f"the lease of {name} is not free"
    return taken


@dataclass
class Writer(ABC):
    """Writes once when called; `number` says how often it has."""

    number: int = field(default=0, init=False)

    def __call__(self) -> None:
        self.write(self.number)
        self.number += 1

    @abstractmethod
    def write(self, number: int) -> None:
        """Write what comes next."""

    def lost(self) -> object:
        """Return what is missing of all that was written; something false where nothing is."""
        return None

    @property
    def now_ms(self) -> int:
        """Return a clock that advances with each write."""
        return NOW_MS + self.number * 1_000
