"""A relay in front of brokers that cuts connections in the middle of an answer, or holds all answers back.

Brokers advertise it on a listener of their own, so that only who uses that listener passes it.
"""

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self

from sandbox.cluster import KafkaCluster
from sandbox.kafka import Broker
from sandbox.ports import HOST, free_port

_LISTENER = "PROXIED"


class CuttingProxy:
    """Make it before the brokers start: it gives each a listener."""

    def __init__(self, cluster: KafkaCluster, seed: int) -> None:
        self._dice = random.Random(seed)
        self._routes = {free_port(): free_port() for _ in cluster.brokers}
        for broker, (own, upstream) in zip(cluster.brokers, self._routes.items(), strict=True):
            broker.properties = {**broker.properties, **_listeners(broker, own, upstream)}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        #: Of a hundred pieces of answers so many end their connection half-way.
        self._cut_share = 0.0
        self._flows = asyncio.Event()
        self._open: set[asyncio.Task[None]] = set()

    @property
    def bootstrap(self) -> str:
        """The listeners, as clients take them."""
        return ",".join(f"{HOST}:{port}" for port in self._routes)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @contextmanager
    def cutting(self, share: float) -> Iterator[None]:
        """Cut this share of the answers while inside."""
        self._cut_share = share
        try:
            yield
        finally:
            self._cut_share = 0.0

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Hold every answer back while inside; connections stay open."""
        self._loop.call_soon_threadsafe(self._flows.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._flows.set)

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _listen(self) -> None:
        self._flows.set()
        self._servers = [
            await asyncio.start_server(self._serving(upstream), HOST, own)
            for own, upstream in self._routes.items()
        ]

    def _serving(self, upstream: int) -> Any:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._open.add(task)
            try:
                with suppress(OSError, asyncio.CancelledError):
                    await self._relay(upstream, reader, writer)
            finally:
                self._open.discard(task)
                writer.transport.abort()

        return serve

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _relay(self, upstream: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker_reader, broker_writer = await asyncio.open_connection(HOST, upstream)
        tasks = [
            asyncio.create_task(self._ask(reader, broker_writer)),
            asyncio.create_task(self._answer(broker_reader, writer)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            broker_writer.transport.abort()

    async def _ask(self, reader: asyncio.StreamReader, broker: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            broker.write(data)
            await broker.drain()

    async def _answer(self, broker: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await broker.read(65_536):
            await self._flows.wait()
            if self._dice.random() < self._cut_share:
                writer.write(data[: self._dice.randrange(len(data))])
                await writer.drain()
                return
            writer.write(data)
            await writer.drain()


def _listeners(broker: Broker, own: int, upstream: int) -> dict[str, str]:
    """Return the settings of a broker with a listener that it advertises at the proxy."""
    plain, controller = f"PLAINTEXT://{broker.bootstrap}", f"CONTROLLER://{HOST}:{broker.controller_port}"
    names = ("PLAINTEXT", "CONTROLLER", _LISTENER)
    return {
        "listeners": f"{plain},{controller},{_LISTENER}://{HOST}:{upstream}",
        "advertised.listeners": f"{plain},{_LISTENER}://{HOST}:{own}",
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
    }
