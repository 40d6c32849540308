"""A transactional producer by librdkafka's C API (rdkafka.h), from confluent-kafka's library.

confluent-kafka's own producer takes records one by one and reports each delivery. Both make Python objects
for each record, which took half of a task's time. This producer passes the records of an Arrow batch
together, by their addresses in Arrow's buffers, and reports only undelivered records.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Mapping
from ctypes import c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, cimpl

#: The extension's own handle finds its librdkafka, bundled in the wheel or from the system.
_library = ctypes.CDLL(cimpl.__file__)


def _function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    try:
        found = getattr(_library, f"rd_kafka_{name}")
    except AttributeError:
        raise ImportError(
            f"confluent-kafka of this Python does not link to a librdkafka with rd_kafka_{name}: install its "
            "wheel (Linux, macOS), or build it beside a shared librdkafka of the same release"
        ) from None
    found.restype, found.argtypes = result, arguments
    return found  # type: ignore[no-any-return]


_DELIVERY = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_void_p)
_REFRESH = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_void_p)
_LOG = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_char_p)
_TEXT = (c_char_p, c_size_t)

_conf_new = _function("conf_new", c_void_p)
_conf_destroy = _function("conf_destroy", None, c_void_p)
_conf_set = _function("conf_set", c_int, c_void_p, c_char_p, c_char_p, *_TEXT)
_on_delivery = _function("conf_set_dr_msg_cb", None, c_void_p, _DELIVERY)
_on_refresh = _function("conf_set_oauthbearer_token_refresh_cb", None, c_void_p, _REFRESH)
_on_log = _function("conf_set_log_cb", None, c_void_p, _LOG)
_enable_sasl_queue = _function("conf_enable_sasl_queue", None, c_void_p, c_int)
_refresh_in_background = _function("sasl_background_callbacks_enable", c_void_p, c_void_p)
_set_token = _function(
    "oauthbearer_set_token", c_int, c_void_p, c_char_p, c_int64, c_char_p, ctypes.POINTER(c_char_p), c_size_t,
    *_TEXT,
)  # fmt: skip
_set_no_token = _function("oauthbearer_set_token_failure", c_int, c_void_p, c_char_p)
_new = _function("new", c_void_p, c_int, c_void_p, *_TEXT)
_destroy = _function("destroy", None, c_void_p)
_topic_new = _function("topic_new", c_void_p, c_void_p, c_char_p, c_void_p)
_topic_destroy = _function("topic_destroy", None, c_void_p)
_topic_name = _function("topic_name", c_char_p, c_void_p)
_init_transactions = _function("init_transactions", c_void_p, c_void_p, c_int)
_begin_transaction = _function("begin_transaction", c_void_p, c_void_p)
_abort_transaction = _function("abort_transaction", c_void_p, c_void_p, c_int)
_produce_batch = _function("produce_batch", c_int, c_void_p, c_int32, c_int, c_void_p, c_int)
_produceva = _function("produceva", c_void_p, c_void_p, c_void_p, c_size_t)
_poll = _function("poll", c_int, c_void_p, c_int)
_flush = _function("flush", c_int, c_void_p, c_int)
_outq_len = _function("outq_len", c_int, c_void_p)
_fatal_error = _function("fatal_error", c_int, c_void_p, *_TEXT)
_last_error = _function("last_error", c_int)
_err2name = _function("err2name", c_char_p, c_int)
_err2str = _function("err2str", c_char_p, c_int)
_produce_errstr = _function("message_produce_errstr", c_char_p, c_void_p)
_error_code = _function("error_code", c_int, c_void_p)
_error_string = _function("error_string", c_char_p, c_void_p)
_error_is_retriable = _function("error_is_retriable", c_int, c_void_p)
_error_destroy = _function("error_destroy", None, c_void_p)

_PRODUCER, _CONF_OK = 0, 0
#: RD_KAFKA_MSG_F_COPY: librdkafka copies a record before the call returns.
COPY = 0x2
#: RD_KAFKA_PARTITION_UA: the partitioner chooses.
ANY_PARTITION = -1
_TEXT_BYTES = 512
#: librdkafka's log lines for a producer whose transaction another client has ended.
_ENDED = (b"Fatal error", b"fenced", b"old epoch")
#: Calls return after this time, so that Python can handle signals.
_SLICE_S = 0.5


class Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("err", c_int), ("rkt", c_void_p), ("partition", c_int32), ("payload", c_void_p), ("len", c_size_t),
        ("key", c_void_p), ("key_len", c_size_t), ("offset", c_int64), ("private", c_void_p),
    )  # fmt: skip


class ProducerError(Exception):
    """An error of the producer, with librdkafka's code."""

    def __init__(self, code: int, text: str, *, is_retriable: bool = False) -> None:
        super().__init__(text)
        self.code, self.is_retriable = code, is_retriable


class Undelivered(NamedTuple):
    """A record that no broker has taken."""

    code: int
    reason: str
    topic: str
    partition: int


class TransactionalProducer:
    """A producer of one transactional id. Call `destroy` to free it; its transaction stays open."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Raise `ProducerError` for a setting that librdkafka refuses.

        `oauth_cb` returns token, expiry in seconds since 1970, principal and extensions.
        """
        self._topics: dict[str, int] = {}
        self.undelivered: list[Undelivered] = []
        #: librdkafka's log lines about a fatal error; the caller knows the cause, and prints or drops them.
        self.last_lines: list[str] = []
        # librdkafka has their addresses: keep them as long as the producer.
        self._callbacks = [_DELIVERY(_note(self.undelivered)), _LOG(_hold_fatal(self.last_lines))]
        tokens = settings.get("oauth_cb")
        if tokens:
            self._callbacks.append(_REFRESH(_refresh(tokens)))
        self._handle = self._made({key: value for key, value in settings.items() if key != "oauth_cb"})
        if tokens:
            # Provides the first token before the first request to a broker.
            _refresh(tokens)(self._handle, b"", None)
            _raise(_refresh_in_background(self._handle))

    def _made(self, settings: Mapping[str, Any]) -> int:
        configuration, problem = _conf_new(), ctypes.create_string_buffer(_TEXT_BYTES)
        given = {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in settings.items()
        }
        for key, value in {**given, "delivery.report.only.error": "true"}.items():
            if _conf_set(configuration, key.encode(), value.encode(), problem, _TEXT_BYTES) != _CONF_OK:
                _conf_destroy(configuration)
                raise ProducerError(KafkaError._INVALID_ARG, problem.value.decode())
        _on_delivery(configuration, self._callbacks[0])
        _on_log(configuration, self._callbacks[1])
        if len(self._callbacks) > 2:
            _on_refresh(configuration, self._callbacks[2])
            _enable_sasl_queue(configuration, 1)
        handle: int | None = _new(_PRODUCER, configuration, problem, _TEXT_BYTES)
        if not handle:
            _conf_destroy(configuration)
            raise ProducerError(KafkaError._INVALID_ARG, problem.value.decode())
        return handle

    def destroy(self) -> None:
        """Free its threads and connections. Its transaction stays open; queued records are dropped."""
        for topic in self._topics.values():
            _topic_destroy(topic)
        self._topics.clear()
        _destroy(self._handle)

    def init_transactions(self, seconds: float) -> None:
        """Initialise the transactional id. Raises `ProducerError`."""
        _raise(_init_transactions(self._handle, _milliseconds(seconds)))

    def begin_transaction(self) -> None:
        """Begin a transaction. Raises `ProducerError`."""
        _raise(_begin_transaction(self._handle))

    def abort_transaction(self, seconds: float) -> None:
        """Abort the transaction. Raises `ProducerError`."""
        _raise(_abort_transaction(self._handle, _milliseconds(seconds)))

    def topic(self, name: str) -> int:
        """Return librdkafka's handle of a topic. Raises `ProducerError` for an invalid topic name."""
        if name not in self._topics:
            handle = _topic_new(self._handle, name.encode(), None)
            if not handle:
                raise error_of(_last_error())
            self._topics[name] = handle
        return self._topics[name]

    def produce_batch(self, topic: int, messages: int, number: int) -> int:
        """Queue `number` `Message` structs at the address `messages`; return how many were queued.

        Each struct then has its error; after a full queue, all following records have it. The partitioner
        chooses the partitions.
        """
        return int(_produce_batch(topic, ANY_PARTITION, COPY, messages, number))

    def produce_one(self, fields: int, number: int) -> bool:
        """Queue a record from `number` `rd_kafka_vu_t` at address `fields`; return False if the queue is
        full.

        Raises `ProducerError`.
        """
        error = _produceva(self._handle, fields, number)
        if not error:
            return True
        code = _error_code(error)
        _error_destroy(error)
        if code == KafkaError._QUEUE_FULL:
            return False
        raise error_of(code)

    def poll(self, seconds: float) -> None:
        """Process reports of undelivered records, and wait up to `seconds` for the first."""
        _poll(self._handle, _milliseconds(seconds))

    def flush(self, seconds: float) -> int:
        """Send queued records for up to `seconds`; return the number of records left."""
        until = time.monotonic() + seconds
        while (left := _outq_len(self._handle)) and time.monotonic() < until:
            _flush(self._handle, _milliseconds(min(_SLICE_S, max(until - time.monotonic(), 0))))
        return int(left)

    def fatal_error(self) -> str | None:
        """Return the producer's fatal error; None without one."""
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        code = _fatal_error(self._handle, text, _TEXT_BYTES)
        return f"{text.value.decode()} ({_err2name(code).decode()})" if code else None


def _note(undelivered: list[Undelivered]) -> Callable[..., None]:
    def note(_: int, address: int, __: int) -> None:
        message = Message.from_address(address)
        reason = (_produce_errstr(address) or _err2str(message.err)).decode()
        if message.err:
            topic = _topic_name(message.rkt).decode()
            undelivered.append(Undelivered(message.err, reason, topic, message.partition))

    return note


def _hold_fatal(held: list[str]) -> Callable[..., None]:
    """Return librdkafka's log callback: it keeps the lines of a fatal error and prints all others."""

    def log(_: int, level: int, facility: bytes, text: bytes) -> None:
        line = f"%{level}|{time.time():.3f}|{facility.decode()}|{text.decode(errors='replace')}"
        if facility == b"TXNERR" or any(words in text for words in _ENDED):
            held.append(line)
        else:
            sys.stderr.write(f"{line}\n")

    return log


def _refresh(tokens: Callable[[str], tuple[str, float, str, Mapping[str, str]]]) -> Callable[..., None]:
    """Return librdkafka's token callback; it runs in a thread of librdkafka."""

    def refresh(handle: int, configuration: bytes, _: int | None) -> None:
        problem = ctypes.create_string_buffer(_TEXT_BYTES)
        try:
            token, expires, principal, extensions = tokens(configuration.decode())
        except Exception as error:
            _set_no_token(handle, str(error).encode())
            return
        pairs = [text.encode() for pair in extensions.items() for text in pair]
        if _set_token(
            handle, token.encode(), int(expires * 1000), principal.encode(),
            (c_char_p * len(pairs))(*pairs), len(pairs), problem, _TEXT_BYTES,
        ):  # fmt: skip
            _set_no_token(handle, problem.value)

    return refresh


def error_of(code: int) -> ProducerError:
    return ProducerError(code, _err2str(code).decode())


def _raise(error: int | None) -> None:
    """Raise the error of an rd_kafka_error_t, and free it."""
    if not error:
        return
    raised = ProducerError(
        _error_code(error), _error_string(error).decode(), is_retriable=bool(_error_is_retriable(error))
    )
    _error_destroy(error)
    raise raised


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)
