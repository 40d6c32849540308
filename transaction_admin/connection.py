"""A connection to a cluster through kafka-python: open, request, count, close; errors in our words.

kafka-python's public admin client raises at the first broker or id that refuses, and leaves its thread behind
if a cluster cannot be reached. So this module sends its message classes through its connection manager
(docs/design/kafka.md §3). The version is pinned: only this module and `sockets` depend on the library's
internals.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import kafka.errors as errors
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector, TaskState
from kafka.protocol.metadata import MetadataRequest

from fenceline.authentication.mechanisms import what_to_check
from fenceline.decode import text
from transaction_admin.api import AdminUnavailable, Cost
from transaction_admin.authentication.kafka_python import NoToken
from transaction_admin.properties import kafka_python
from transaction_admin.sockets import BriefSelector, DirectSocket

T = TypeVar("T")

#: ListTransactions answers without pages: 20 million ids fit.
_LARGEST_ANSWER = 1024**3
_DEFAULTS: Mapping[str, Any] = {
    "client_id": "fenceline",
    "reconnect_backoff_max_ms": 1_000,
    "receive_message_max_bytes": _LARGEST_ANSWER,
    "proxy_url": f"{DirectSocket.SCHEMES[0]}://",
}
#: kafka-python allows five requests in flight to one broker; one is left to its own metadata.
_IN_FLIGHT = 4
#: Maximum bytes of the ids in one request: one id may have 32 kB.
_MOST_BYTES = 1024 * 1024
#: Maximum brokers to try for a request that any of them can answer.
_TRIES = 3
#: Seconds without an answer before checking whether the cluster still lists the broker.
_MISSED_S = 1.0
#: Seconds between two checks of a throttled connection.
_PAUSE_S = 0.01


class AdminConnection:
    """Connections to the brokers of one cluster, on their own thread.

    `properties` are librdkafka's. Raises `CannotTranslate` for those without an equivalent in kafka-python,
    and `AdminUnavailable` if no broker can be reached within `timeout_s`.
    """

    def __init__(
        self, properties: Mapping[str, str], timeout_s: float, purpose: str = "ask the coordinators"
    ) -> None:
        self._purpose = purpose
        self.where = properties["bootstrap.servers"]
        self._principal = properties.get("sasl.username", "")
        self._check = what_to_check(properties)
        self._timeout_s = timeout_s
        self._requests, self._broker_s = 0, 0.0
        timeout_ms = int(timeout_s * 1_000)
        settings = {
            **_DEFAULTS,
            **kafka_python(properties),
            "request_timeout_ms": timeout_ms,
            "socket_connection_setup_timeout_ms": timeout_ms,
        }
        # Decoding a long list exceeds the library's limit for a task: disable that warning.
        self._net = NetworkSelector(
            client_id=settings["client_id"], selector=BriefSelector, slow_task_threshold_secs=0
        )
        self._manager = KafkaConnectionManager(self._net, **settings)
        self._net.start()
        try:
            self.run(self._open, timeout_ms)
        except BaseException:
            self.close()
            raise

    @property
    def principal(self) -> str:
        """The principal in Kafka's notation; an unknowable part is left open."""
        return f"User:{self._principal or '…'}"

    @property
    def cost(self) -> Cost:
        """The requests so far."""
        return Cost(self._requests, self._broker_s * 1_000)

    @property
    def brokers(self) -> Mapping[int, tuple[str, int]]:
        """The host and port of each broker by its id, from the cluster's last metadata."""
        return {broker.node_id: (broker.host, broker.port) for broker in self._manager.cluster.brokers()}

    def close(self) -> None:
        """Close every connection and end the thread."""
        self._manager.close()
        self._net.close()

    def run(self, question: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run a coroutine on the thread of the connections; Kafka's errors become `AdminUnavailable`."""
        try:
            answer: T = self._manager.run(question, *arguments)
        except errors.KafkaError as error:
            raise self._refused(explain_error(error, self._check), passing=_is_passing(error)) from error
        return answer

    async def send_request(self, request: Any, broker: int | str) -> Any:
        """Send a request to a broker and return its answer; count both."""
        return await (await self._sent(request, broker))

    async def _sent(self, request: Any, broker: int | str) -> Any:
        """Send a request and return the future of its answer. A broker's answers come in order."""
        self._requests += 1
        await self._until_unpaused(broker)
        begun = time.monotonic()
        future = self._manager.send(request, node_id=broker)
        future.add_both(lambda _: self._count(begun))
        return future

    async def send_then(self, request: Any, broker: int, done: Callable[[Any], None]) -> None:
        """Send a request; call `done` with its answer or the KafkaError, on the thread of the connections."""
        try:
            (await self._sent(request, broker)).add_both(done)
        except errors.KafkaError as error:
            done(error)

    def _count(self, begun: float) -> None:
        self._broker_s += time.monotonic() - begun

    def is_held_back(self, broker: int | None = None) -> bool:
        """Whether a quota, or requests in flight, now delay requests to a broker, or to any."""
        connections = list(self._manager._conns.items())
        return any(link.paused for number, link in connections if broker in (None, number))

    async def _until_unpaused(self, broker: int | str) -> None:
        """Wait while a quota, or requests in flight, pause a connection: the library would refuse."""
        connection = await self._connection_to(broker)
        until = time.monotonic() + self._timeout_s
        while connection.paused:
            if time.monotonic() > until:
                raise errors.ThrottlingQuotaExceededError
            await self._net.sleep(_PAUSE_S)

    async def _connection_to(self, broker: int | str) -> Any:
        """Return a connection; an unknown broker has returned since it was listed."""
        try:
            return self._manager.get_connection(broker)
        except errors.UnknownBrokerIdError:
            await self._manager.cluster.request_update()
            return self._manager.get_connection(broker)

    async def pause(self, seconds: float) -> None:
        """Wait a moment while other requests continue."""
        await self._net.sleep(seconds)

    async def send_to_any(self, make: Callable[[], Any]) -> Any:
        """Send a request that any broker answers; try other brokers if the first is unreachable."""
        for left in reversed(range(_TRIES)):
            broker = await self._any_broker()
            try:
                return await self.send_request(make(), broker)
            except errors.KafkaError:
                if not left:
                    raise

    async def _any_broker(self) -> Any:
        """Return a broker that accepts a request; wait while a quota delays all of them."""
        until = time.monotonic() + self._timeout_s
        while (broker := self._manager.least_loaded_node()) is None and self.is_held_back():
            if time.monotonic() > until:
                raise errors.ThrottlingQuotaExceededError
            await self._net.sleep(_PAUSE_S)
        return broker

    async def send_each(self, questions: Sequence[tuple[Any, int]]) -> list[Any]:
        """Send (request, broker) pairs; return an answer or a KafkaError for each.

        A broker gets four requests at a time and answers in order; no broker waits for another.
        """
        lines: dict[int, list[int]] = {}
        for number, (_, broker) in enumerate(questions):
            lines.setdefault(broker, []).append(number)
        answers: list[Any] = [None] * len(questions)
        asked = [
            self._manager.call_soon(self._ask_in_line, questions, numbers, answers)
            for numbers in lines.values()
        ]
        for address in asked:
            await address
        return answers

    async def _ask_in_line(
        self, questions: Sequence[tuple[Any, int]], numbers: Sequence[int], answers: list[Any]
    ) -> None:
        on_their_way: deque[tuple[int, int, Any]] = deque()
        for number in numbers:
            if len(on_their_way) == _IN_FLIGHT:
                await self._take(*on_their_way.popleft(), answers)
            try:
                request, broker = questions[number]
                on_their_way.append((number, broker, await self._sent(request, broker)))
            except errors.KafkaError as error:
                answers[number] = error
        while on_their_way:
            await self._take(*on_their_way.popleft(), answers)

    async def _take(self, number: int, broker: int, future: Any, answers: list[Any]) -> None:
        watch = self._net.call_later(_MISSED_S, partial(self._fail_if_missed, future, broker))
        try:
            answers[number] = await future
        except errors.KafkaError as error:
            answers[number] = error
        finally:
            if watch.state is TaskState.SCHEDULED:
                self._net.cancel(watch)

    async def _fail_if_missed(self, future: Any, broker: int) -> None:
        """Fail a request once the cluster no longer lists its broker, which may be paused."""
        while not future.is_done:
            with suppress(errors.KafkaError):
                cluster = await self.send_to_any(partial(MetadataRequest, topics=MetadataRequest.NO_TOPICS))
                if broker not in {listed.node_id for listed in cluster.brokers} and not future.is_done:
                    future.failure(errors.BrokerNotAvailableError())
            await self._net.sleep(_MISSED_S)

    async def learn_brokers(self, cluster: Any) -> None:
        """Register brokers that have joined or moved, from an answer to a metadata request."""
        known = {(broker.node_id, broker.host, broker.port) for broker in self._manager.cluster.brokers()}
        if known != {(broker.node_id, broker.host, broker.port) for broker in cluster.brokers}:
            with suppress(errors.KafkaError):
                await self._manager.cluster.request_update()

    async def _open(self, timeout_ms: int) -> None:
        """Connect to the first server that answers; the library's own bootstrap hides why others failed."""
        reasons = {}
        passing = False
        for server in self._manager.cluster.bootstrap_brokers():
            sign_in = _SignIn(self._manager.get_connection(server.node_id))
            try:
                await self.send_request(MetadataRequest(topics=MetadataRequest.NO_TOPICS), server.node_id)
            except errors.KafkaError as error:
                reasons[f"{server.host}:{server.port}"] = sign_in.explain(error, self._check)
                passing = passing or _is_passing(error)
            else:
                # The library keeps this connection; while a quota delays it, it would drop it for another,
                # equally delayed one.
                await self._until_unpaused(server.node_id)
                await self._manager.bootstrap_async(timeout_ms)
                return
        text = "; ".join(f"{server}: {reason}" for server, reason in reasons.items())
        raise self._refused(text, passing=passing)

    def _refused(self, reason: str, *, passing: bool) -> AdminUnavailable:
        return AdminUnavailable(f"cannot {self._purpose} at {self.where}: {reason}", passing=passing)


class _SignIn:
    """Marks a new connection as authenticating until the loop's next turn begins the authentication.

    A refusing broker hangs up right after its answer, and the library then drops the answer.
    """

    def __init__(self, connection: Any) -> None:
        self._begun = connection._sasl_authenticate
        self._lasts = False
        connection._sasl_authenticate = self._noted

    async def _noted(self, *arguments: Any) -> None:
        self._lasts = True
        await self._begun(*arguments)
        self._lasts = False

    def explain(self, error: Exception, check: str) -> str:
        """Return the meaning of an error on this connection; `check` is the remedy for a failed sign-in."""
        if self._lasts and isinstance(error, errors.KafkaConnectionError):
            return f"it hung up during the sign-in: {check}"
        return explain_error(error, check)


def wire_form(name: str) -> str:
    """Return an id in kafka-python's form, from its escaped text."""
    # Java decodes invalid UTF-8 in the same way, before it hashes and looks up.
    return text.unescape_text(name).decode(errors="replace")


def text_form(wire: str) -> str:
    """Return the escaped text of an id from kafka-python's form."""
    return text.escape_bytes(wire.encode())


def split_ids(ids: Iterable[str], most: int) -> Iterator[list[str]]:
    """Yield ids in portions for one request: a maximum number, and at most a mebibyte."""
    portion: list[str] = []
    size = 0
    for name in ids:
        length = len(name.encode())
        if portion and (len(portion) == most or size + length > _MOST_BYTES):
            yield portion
            portion, size = [], 0
        portion.append(name)
        size += length
    if portion:
        yield portion


#: For an unknown mechanism.
_CHECK_SIGN_IN = what_to_check({})


def error_name(error: Any) -> str:
    """Return Kafka's own name of an error."""
    return str(getattr(error, "message", None) or error.__name__)


def _is_passing(error: errors.KafkaError) -> bool:
    """Whether the same request may succeed later without a change on our side."""
    if isinstance(error, errors.KafkaConnectionError) and "SSL" in str(error):
        return False
    return not isinstance(error, _FINAL)


def explain_error(error: Exception, check: str = _CHECK_SIGN_IN) -> str:
    """Return the meaning of a kafka-python error, and what to do about it."""
    detail = str(error.args[0]) if error.args else ""
    if isinstance(error, errors.KafkaConnectionError) and "SSL" in detail:
        return f"TLS failed ({detail}): {_CHECK_TLS}"
    for kind, meaning in _MEANINGS:
        if isinstance(error, kind):
            return meaning.format(detail=detail, check=check).replace(" ()", "")
    return f"{type(error).__name__}: {detail}" if detail else type(error).__name__


_FINAL = (
    errors.SaslAuthenticationFailedError, errors.UnsupportedSaslMechanismError,
    errors.IncompatibleBrokerVersion, errors.AuthorizationError,
)  # fmt: skip
_CHECK_TLS = 'check "ssl.ca.location", "ssl.certificate.location" and "security.protocol"'
_MEANINGS: tuple[tuple[type[Exception], str], ...] = (
    (NoToken, "{detail}"),
    (errors.SaslAuthenticationFailedError, "the sign-in was refused ({detail}): {check}"),
    (errors.UnsupportedSaslMechanismError, 'the broker does not take this "sasl.mechanism" ({detail})'),
    (errors.IncompatibleBrokerVersion,
     "it does not list transactions: Kafka does from 3.0 on, and compatible brokers may not"),
    (errors.RequestTimedOutError, "no answer in time"),
    (errors.KafkaTimeoutError, "no answer in time"),
    (errors.BrokerNotAvailableError, "the cluster no longer lists it"),
    (errors.ThrottlingQuotaExceededError,
     "it held us back for too long: a quota of this client (request_percentage) is used up"),
    (errors.NodeNotReadyError, "it was gone a moment ago and is not back yet"),
    (errors.KafkaConnectionError,
     "no connection ({detail}): check that it runs, that the address is right and that "
     '"security.protocol" is the listener\'s'),
)  # fmt: skip
