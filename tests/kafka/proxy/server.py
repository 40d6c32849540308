"""The proxy itself: listeners on 127.0.0.1 that show one real broker as two, and rewrite its answers.

    with KafkaProxy(kafka.port) as proxy:
        proxy.restrict(Restrictions(absent=frozenset({TRANSACTION_STATE})))

Clients stay behind it: every answer that names a broker names the proxy's listeners. With `latency_s` each
answer comes so much later.
"""

import asyncio
import struct
import threading
from collections import deque
from contextlib import suppress
from typing import Any, NamedTuple, Self

from kafka.protocol import admin, consumer, metadata
from kafka.protocol.api_header import RequestHeader, ResponseClassRegistry

from sandbox.ports import HOST, free_port
from tests.kafka.proxy.restrictions import (
    FIND_COORDINATOR,
    METADATA,
    NODES,
    Restrictions,
    Rewriter,
    rewriters,
)

#: Their answers are only decoded once they are imported.
__all__ = ["KafkaProxy", "admin", "consumer"]

#: Requests whose answer depends on what was asked.
_REQUESTS = {METADATA: metadata.MetadataRequest, FIND_COORDINATOR: metadata.FindCoordinatorRequest}


class _Asked(NamedTuple):
    """A request that is on its way to the broker."""

    key: int
    version: int
    request: Any


class KafkaProxy:
    """A proxy in front of the broker at a port of this machine."""

    def __init__(self, upstream: int, *, latency_s: float = 0.0) -> None:
        self._upstream, self._latency_s = upstream, latency_s
        self._ports = {node: free_port() for node in NODES}
        self._rewriter = Rewriter(self._ports)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._servers: list[asyncio.Server] = []
        self._open: set[asyncio.Task[None]] = set()
        self._failures: list[Exception] = []

    @property
    def bootstrap(self) -> str:
        """The listeners, as clients take them."""
        return ",".join(f"{HOST}:{port}" for port in self._ports.values())

    def __enter__(self) -> Self:
        self._thread.start()
        for node in NODES:
            self._run(self._listen(node))
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        assert self._failures == []

    def restrict(self, restrictions: Restrictions) -> None:
        """Take these things away; where a request becomes unknown, or known again, clients connect anew."""
        renews = restrictions.unknown != self._rewriter.restrictions.unknown
        self._rewriter.restrictions = restrictions
        if renews:
            self._run(self._drop_connections())

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _listen(self, node: int) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._open.add(task)
            try:
                with suppress(OSError, asyncio.CancelledError):
                    await self._relay(node, reader, writer)
            finally:
                self._open.discard(task)
                writer.close()

        self._servers.append(await asyncio.start_server(serve, HOST, self._ports[node]))

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        await self._drop_connections()

    async def _drop_connections(self) -> None:
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _relay(self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker_reader, broker_writer = await asyncio.open_connection(HOST, self._upstream)
        asked: deque[_Asked] = deque()
        tasks = [
            asyncio.create_task(self._ask(reader, broker_writer, asked)),
            asyncio.create_task(self._answer(node, broker_reader, writer, asked)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            self._failures += [
                error for error in ended if isinstance(error, Exception) and not _is_end(error)
            ]
            broker_writer.close()

    async def _ask(
        self, reader: asyncio.StreamReader, broker: asyncio.StreamWriter, asked: deque[_Asked]
    ) -> None:
        while True:
            frame = await _frame(reader)
            key, version = struct.unpack_from(">hh", frame)
            if key in self._rewriter.restrictions.unknown:
                return  # As brokers do with what they do not know.
            kind = _REQUESTS.get(key)
            request = kind[version].decode(frame, header=True) if kind else None
            asked.append(_Asked(key, version, request))
            broker.write(_framed(frame))

    async def _answer(
        self, node: int, broker: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: deque[_Asked]
    ) -> None:
        while True:
            frame = await _frame(broker)
            await asyncio.sleep(self._latency_s)
            writer.write(_framed(self._rewritten(asked.popleft(), frame, node)))
            await writer.drain()

    def _rewritten(self, asked: _Asked, frame: bytes, node: int) -> bytes:
        if asked.key not in rewriters:
            return frame
        header = RequestHeader(
            request_api_key=asked.key, request_api_version=asked.version, correlation_id=0, client_id=""
        )
        answer = ResponseClassRegistry.get_response_class(header).decode(frame, header=True)
        self._rewriter.rewrite(asked.key, asked.request, answer, node)
        encoded: bytes = answer.encode(header=True)
        return encoded


def _is_end(error: Exception) -> bool:
    """Whether a side hung up."""
    return isinstance(error, OSError | asyncio.IncompleteReadError)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def _framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame
