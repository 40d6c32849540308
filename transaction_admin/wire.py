"""A connection to a cluster through kafka-python: opened, asked, counted, closed; errors in our words.

kafka-python's public admin client raises at the first broker or id that says no, and leaves its thread
behind when a cluster cannot be reached. So its message classes are sent through its connection manager
(kafka.md §3). The version is pinned: this is the one module that leans on its inner parts.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import kafka.errors as errors
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import MetadataRequest

from transaction_admin.api import CannotAdminister, Cost
from transaction_admin.properties import kafka_python

T = TypeVar("T")

#: ListTransactions answers without pages: 20 million ids fit.
_LARGEST_ANSWER = 1024**3
_DEFAULTS: Mapping[str, Any] = {
    "client_id": "fenceline",
    "reconnect_backoff_max_ms": 1_000,
    "receive_message_max_bytes": _LARGEST_ANSWER,
}
#: kafka-python takes five requests in flight to one broker; one is left to its own metadata.
_IN_FLIGHT = 4
#: How many brokers are tried for a question that any of them can answer.
_TRIES = 3


class Wire:
    """Connections to the brokers of one cluster, on a thread of their own.

    `properties` are librdkafka's. Raises `CannotTranslate` for those that kafka-python has no like of, and
    `CannotAdminister` when no broker can be reached within `timeout_s`.
    """

    def __init__(self, properties: Mapping[str, str], timeout_s: float) -> None:
        self.where = properties["bootstrap.servers"]
        self._principal = properties.get("sasl.username", "")
        self._requests, self._broker_s = 0, 0.0
        timeout_ms = int(timeout_s * 1_000)
        settings = {
            **_DEFAULTS,
            **kafka_python(properties),
            "request_timeout_ms": timeout_ms,
            "socket_connection_setup_timeout_ms": timeout_ms,
        }
        # Decoding a long list takes longer than what the library thinks a task should: no warning for that.
        self._net = NetworkSelector(client_id=settings["client_id"], slow_task_threshold_secs=0)
        self._manager = KafkaConnectionManager(self._net, **settings)
        self._net.start()
        try:
            self.run(self._open, timeout_ms)
        except BaseException:
            self.close()
            raise

    @property
    def principal(self) -> str:
        """The principal in Kafka's notation; one that we cannot know is left open."""
        return f"User:{self._principal or '…'}"

    @property
    def cost(self) -> Cost:
        """What was asked so far."""
        return Cost(self._requests, self._broker_s * 1_000)

    def close(self) -> None:
        """Close every connection and end the thread."""
        self._manager.close()
        self._net.close()

    def run(self, question: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run a coroutine on the thread of the connections; what Kafka's errors say is `CannotAdminister`."""
        try:
            answer: T = self._manager.run(question, *arguments)
        except errors.KafkaError as error:
            raise self._refused(explain(error)) from error
        return answer

    async def ask(self, request: Any, broker: int | str) -> Any:
        """Send a request to a broker and return its answer; counts both."""
        self._requests += 1
        begun = time.monotonic()
        try:
            return await self._manager.send(request, node_id=broker)
        finally:
            self._broker_s += time.monotonic() - begun

    async def ask_any(self, make: Callable[[], Any]) -> Any:
        """Send a request that any broker answers, to another one when the first cannot be reached."""
        for left in reversed(range(_TRIES)):
            try:
                return await self.ask(make(), self._manager.least_loaded_node())
            except errors.KafkaError:
                if not left:
                    raise

    async def ask_each(self, questions: Sequence[tuple[Any, int]]) -> list[Any]:
        """Send (request, broker) pairs, four at a time; return an answer or a KafkaError for each."""
        answers: list[Any] = []
        for start in range(0, len(questions), _IN_FLIGHT):
            wave = [
                self._manager.call_soon(self.ask, *each) for each in questions[start : start + _IN_FLIGHT]
            ]
            for future in wave:
                try:
                    answers.append(await future)
                except errors.KafkaError as error:
                    answers.append(error)
        return answers

    async def _open(self, timeout_ms: int) -> None:
        """Find one server that answers: the library's own bootstrap would only say that none did."""
        reasons = {}
        for server in self._manager.cluster.bootstrap_brokers():
            sign_in = _SignIn(self._manager.get_connection(server.node_id))
            try:
                await self.ask(MetadataRequest(topics=MetadataRequest.NO_TOPICS), server.node_id)
            except errors.KafkaError as error:
                reasons[f"{server.host}:{server.port}"] = sign_in.explain(error)
            else:
                await self._manager.bootstrap_async(timeout_ms)
                return
        raise self._refused("; ".join(f"{server}: {reason}" for server, reason in reasons.items()))

    def _refused(self, reason: str) -> CannotAdminister:
        return CannotAdminister(f"cannot ask the coordinators at {self.where}: {reason}")


class _SignIn:
    """Notes whether a new connection is signing in, which has not begun: that is for the loop's next turn.

    A broker that refuses hangs up right behind its answer, and the library then drops the answer.
    """

    def __init__(self, connection: Any) -> None:
        self._begun = connection._sasl_authenticate
        self._lasts = False
        connection._sasl_authenticate = self._noted

    async def _noted(self, *arguments: Any) -> None:
        self._lasts = True
        await self._begun(*arguments)
        self._lasts = False

    def explain(self, error: Exception) -> str:
        """Return what an error on this connection means."""
        if self._lasts and isinstance(error, errors.KafkaConnectionError):
            return f"it hung up during the sign-in: {_CHECK_SIGN_IN}"
        return explain(error)


def explain(error: Exception) -> str:
    """Return what an error of kafka-python means and what to do about it."""
    said = str(error.args[0]) if error.args else ""
    if isinstance(error, errors.KafkaConnectionError) and "SSL" in said:
        return f"TLS failed ({said}): {_CHECK_TLS}"
    for kind, meaning in _MEANINGS:
        if isinstance(error, kind):
            return meaning.format(said=said)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


_CHECK_SIGN_IN = 'check "sasl.mechanism", "sasl.username" and "sasl.password"'
_CHECK_TLS = 'check "ssl.ca.location", "ssl.certificate.location" and "security.protocol"'
_MEANINGS: tuple[tuple[type[Exception], str], ...] = (
    (
        errors.SaslAuthenticationFailedError,
        f"the sign-in was refused ({{said}}): {_CHECK_SIGN_IN}",
    ),
    (
        errors.UnsupportedSaslMechanismError,
        'the broker does not take this "sasl.mechanism" ({said})',
    ),
    (
        errors.IncompatibleBrokerVersion,
        "it is older than Kafka 3.0, which began to tell of transactions",
    ),
    (errors.RequestTimedOutError, "no answer in time"),
    (errors.KafkaTimeoutError, "no answer in time"),
    (errors.NodeNotReadyError, "it was gone a moment ago and is not back yet"),
    (
        errors.KafkaConnectionError,
        'no connection ({said}): check that it runs, that the address is right and that "security.protocol" '
        "is the listener's",
    ),
)
