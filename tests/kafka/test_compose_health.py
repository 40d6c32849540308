"""Proves that Kafka's health check in docker-compose.yml succeeds on a broker, and only there."""

import socket
import subprocess
import threading

import pytest

from sandbox.kafka import Broker
from sandbox.ports import free_port
from tests.stack import compose_file

pytestmark = pytest.mark.kafka


def status(port: int) -> int:
    """Run the check by its own program, on another port; return its exit status."""
    kind, *command = compose_file.load({})["services"]["kafka"]["healthcheck"]["test"]
    assert kind == "CMD"
    here = [word.replace("/9092", f"/{port}") for word in command]
    return subprocess.run(here, stderr=subprocess.DEVNULL, timeout=30, check=False).returncode


def test_a_broker_is_healthy(kafka: Broker) -> None:
    assert status(int(kafka.bootstrap.rpartition(":")[2])) == 0


def test_a_closed_port_is_not() -> None:
    assert status(free_port()) != 0


@pytest.mark.parametrize("answer", [b"", b"\0\0\0\6\0\0\0\7\0\43", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_another_server_or_an_error_is_not(answer: bytes) -> None:
    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(64)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        assert status(server.getsockname()[1]) != 0
        thread.join()
