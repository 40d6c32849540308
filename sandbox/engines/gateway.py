"""A JVM with Kafka's own clients, driven from Python by py4j: no JDK, nothing to compile."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import IO

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from sandbox.java import Java, classpath

#: 60 producers and an admin client live in it at once.
OPTIONS = (
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)


@contextmanager
def java_gateway(
    java: Java, jars: Iterable[Path], log: IO[bytes], options: Iterable[str] = OPTIONS
) -> Iterator[JavaGateway]:
    """Start a JVM with these jars and yield its gateway; end it afterwards."""
    gateway, process = start_jvm(java, jars, log, options)
    try:
        yield gateway
    finally:
        # Not close(): objects collected later would try to reach the JVM.
        gateway.shutdown()
        process.kill()
        process.wait()


def start_jvm(
    java: Java, jars: Iterable[Path], log: IO[bytes], options: Iterable[str], *, collects: bool = True
) -> tuple[JavaGateway, Popen[bytes]]:
    """Start a JVM with these jars; return its gateway and its process.

    It listens on a random loopback port, requires a token, writes to `log`, and ends with this process,
    because its standard input then closes. `collects`: it forgets objects that Python has forgotten.
    """
    port, token, process = launch_gateway(
        classpath=classpath(jars),
        javaopts=list(options),
        java_path=java.command,
        die_on_exit=True,
        enable_auth=True,
        redirect_stdout=log,
        redirect_stderr=log,
        return_proc=True,
    )
    parameters = GatewayParameters(
        port=port, auth_token=token, auto_convert=True, enable_memory_management=collects
    )
    return JavaGateway(gateway_parameters=parameters), process
