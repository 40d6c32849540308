"""Kafka's own command-line tools, for tests that compare with what those print."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.java_gateway import JavaGateway

from sandbox.kafka import Broker

#: The version of Kafka whose classes the tests' JVM has.
VERSION = "4.2.0"


class KafkaTool:
    """The tools of a broker's own version, on that broker.

    Those of VERSION run in the JVM that is there: one of its own for each call takes a second of CPU.
    """

    def __init__(self, broker: Broker, gateway: JavaGateway) -> None:
        self._broker, self._gateway = broker, gateway

    def run(self, main_class: str, *arguments: str) -> str:
        """Return what a tool prints; its status must be 0."""
        given = "--bootstrap-server", self._broker.bootstrap, *arguments
        if self._broker.version == VERSION:
            return printed_in(self._gateway, main_class, given)
        command = self._broker.tool_command(main_class, *given)
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def printed_in(gateway: JavaGateway, main_class: str, arguments: tuple[str, ...]) -> str:
    """Return what a tool prints in a JVM that goes on."""
    java = gateway.jvm.java
    printed, before = java.io.ByteArrayOutputStream(), java.lang.System.out
    java.lang.System.setOut(java.io.PrintStream(printed, True, "UTF-8"))
    try:
        with noted_exits(gateway) as statuses:
            getattr(gateway.jvm, main_class).main(array_of(gateway, "String", *arguments))
    finally:
        java.lang.System.setOut(before)
    text = str(printed.toString("UTF-8"))
    assert statuses.nextSetBit(1) < 0, f"{main_class} ended with {statuses.nextSetBit(1)}: {text}"
    return text


@contextmanager
def noted_exits(gateway: JavaGateway) -> Iterator[Any]:
    """Let Kafka's programs set the bit of their status where they would end their JVM; yields a BitSet."""
    lang, invoke = gateway.jvm.java.lang, gateway.jvm.java.lang.invoke
    statuses = gateway.jvm.java.util.BitSet()
    takes_status = invoke.MethodType.methodType(lang.Void.TYPE, lang.Integer.TYPE)
    setter = invoke.MethodHandles.publicLookup().findVirtual(statuses.getClass(), "set", takes_status)
    message = array_of(gateway, "Class", lang.Class.forName("java.lang.String"))
    procedure = invoke.MethodHandleProxies.asInterfaceInstance(
        lang.Class.forName("org.apache.kafka.common.utils.Exit$Procedure"),
        invoke.MethodHandles.dropArguments(setter.bindTo(statuses), 1, message),
    )
    kafka_exit = gateway.jvm.org.apache.kafka.common.utils.Exit
    kafka_exit.setExitProcedure(procedure)
    try:
        yield statuses
    finally:
        kafka_exit.resetExitProcedure()


def array_of(gateway: JavaGateway, kind: str, *values: Any) -> Any:
    """Return a Java array of a class of java.lang."""
    made = gateway.new_array(getattr(gateway.jvm.java.lang, kind), len(values))
    for number, value in enumerate(values):
        made[number] = value
    return made
