"""A Redis of a test's own, at an address that stays: it may be killed and comes back."""

import subprocess
from pathlib import Path
from typing import Self

import redis as clients

from sandbox import redis
from tests.waiting import wait_for


class RedisServer:
    """Runs from the start on, until it is killed."""

    def __init__(self, folder: Path) -> None:
        self._server = redis.Server(folder / "redis")
        self.url = self._server.url
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._process = subprocess.Popen(self._server.command(), stdout=subprocess.DEVNULL)
        wait_for(self._server.is_ready, "Redis answers")
        self.client = clients.Redis.from_url(self.url)

    def kill(self) -> None:
        """Kill -9."""
        self._process.kill()
        self._process.wait()
