"""Proves that a connection that is refused leaves no socket open, also where no garbage is collected, and
that a closed one leaves nothing in the selector."""

import gc
import os
import selectors
import socket
from collections.abc import Iterator

import pytest
from kafka.errors import KafkaConnectionError
from kafka.net.inet import create_connection
from kafka.net.selector import NetworkSelector

from sandbox.ports import HOST
from transaction_admin import connection

_TIMES = 20


@pytest.fixture
def net() -> Iterator[NetworkSelector]:
    """Run kafka-python's loop without garbage collections."""
    gc.collect()
    gc.disable()
    net = NetworkSelector()
    net.start()
    yield net
    net.stop()
    gc.enable()


def test_a_refused_connection_leaves_no_socket_open(net: NetworkSelector) -> None:
    with socket.socket() as closed:
        closed.bind((HOST, 0))
        port = closed.getsockname()[1]
        before = len(os.listdir("/dev/fd"))
        for _ in range(_TIMES):
            with pytest.raises(KafkaConnectionError):
                net.run(create_connection, net, HOST, port, (), connection._DEFAULTS["proxy_url"])
        # Threads of other tests may open a file or two meanwhile; a leak is one for each connection.
        assert len(os.listdir("/dev/fd")) - before < _TIMES // 2


def test_a_selector_finds_a_closed_socket_and_no_unknown_one() -> None:
    with connection.BriefSelector() as selector, socket.socket() as known, socket.socket() as unknown:
        selector.register(known, selectors.EVENT_READ)
        with pytest.raises(KeyError):
            selector.get_key(unknown)
        known.close()
        assert selector.get_key(known).fileobj is known
        selector.unregister(known)
        assert not selector.get_map()
