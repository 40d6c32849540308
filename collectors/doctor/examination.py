"""Examine a cluster before its pages are trusted: addresses, sign-in, brokers, settings, clock, rights.

Every right is tried, none is guessed; missing ones are named with the `kafka-acls` line that grants them. It
writes and creates nothing, and each request has a timeout. It knows neither Django nor the database:
`manage.py doctor` prints the checks.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from collectors.doctor.sight import (
    CheckStatus,
    DoctorCheck,
    Patient,
    check_action_rights,
    check_read_rights,
    doctor_checks,
    fail,
    look_over,
    ok,
    skip,
    warn,
)
from fenceline.authentication.mechanisms import (
    CannotAuthenticate,
    mechanism_of,
    what_to_check,
)
from fenceline.formatting import format_duration, list_names
from fenceline.kafka.scope import EVERYTHING, Scope
from transaction_admin.acl_probe import Abilities, Trials
from transaction_admin.api import AdminUnavailable, Unseen
from transaction_admin.properties import CannotTranslate, kafka_python

__all__ = ["CheckStatus", "DoctorCheck", "examine_cluster"]

_SIGN_IN = "sign-in"
#: kafka-python's error for first bytes that are not a length: its text suggests raising a limit.
_NOT_KAFKA = ("Invalid response size", "Invalid frame length")
_VERIFICATION = "transaction.partition.verification.enable"
_MAX_TIMEOUT = "transaction.max.timeout.ms"
_CLEANUP = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
#: A larger clock difference, in milliseconds, makes ages wrong before they are measured.
_CLOCK_OFF_MS = 1_000
#: librdkafka's default port.
_PORT = 9092
_LATE = "its name is not resolved in time: ask whoever runs the name servers"


def examine_cluster(
    properties: Mapping[str, str],
    *,
    sees_all_ids: bool,
    timeout_s: float,
    patience_s: float,
    scope: Scope = EVERYTHING,
) -> Iterator[DoctorCheck]:
    """Yield the checks of one cluster as they finish; `properties` are librdkafka's.

    A request waits up to `timeout_s`; after `patience_s` the remaining checks are skipped, which is a check
    too.
    """
    until = time.monotonic() + patience_s
    with closing(_examine(Patient(properties, sees_all_ids, timeout_s, scope))) as checks:
        for check in checks:
            yield check
            if time.monotonic() > until:
                waited = format_duration(int(patience_s * 1_000))
                yield fail("the rest", f"{waited} have passed, most of them spent waiting")
                return


def _examine(patient: Patient) -> Generator[DoctorCheck]:
    untranslatable = _untranslatable(patient.properties)
    yield from _configuration(patient, untranslatable)
    reached = yield from _servers(patient)
    if not reached:
        yield skip("the rest", "no bootstrap server can be reached")
        return
    if untranslatable:
        yield skip("the rest", "no connection can be made")
        return
    begun = time.monotonic()
    try:
        trials = Trials(patient.properties, patient.timeout_s)
    except AdminUnavailable as error:
        yield _no_sign_in(patient, str(error))
        yield skip("the rest", "no connection can be made")
        return
    with closing(trials):
        who = f"{patient.principal} by {patient.protocol}"
        yield ok(_SIGN_IN, f"{who}, {_ms((time.monotonic() - begun) * 1_000)}")
        try:
            yield from _within(patient, trials)
        except AdminUnavailable as error:
            yield fail("the rest", str(error))


def _within(patient: Patient, trials: Trials) -> Iterator[DoctorCheck]:
    brokers = trials.list_brokers()
    able = trials.broker_abilities(brokers)
    yield from _brokers(brokers, able, patient.timeout_s)
    known = {broker: abilities for broker, abilities in able.items() if isinstance(abilities, Abilities)}
    if not known:
        yield skip("the rest", "no broker answers at its advertised address")
        return
    yield from _versions(known)
    yield from _settings(patient, trials, known)
    yield _clock(trials)
    sight = look_over(patient, trials, able)
    yield from check_read_rights(patient, trials, sight)
    yield from check_action_rights(patient, sight)
    yield from doctor_checks(patient, sight)


def _untranslatable(properties: Mapping[str, str]) -> Sequence[CannotTranslate]:
    """Return an error for each property without an equivalent in kafka-python."""
    found = []
    left = dict(properties)
    for _ in properties:
        try:
            kafka_python(left)
        except CannotTranslate as error:
            found.append(error)
            if isinstance(error.__cause__, CannotAuthenticate):
                break  # Without its property the sign-in would differ.
            del left[error.key]
        else:
            break
    return found


def _configuration(patient: Patient, untranslatable: Sequence[CannotTranslate]) -> Iterator[DoctorCheck]:
    what = "configuration"
    for error in untranslatable:
        yield fail(what, f"{error}; nothing of the cluster can be seen")
    properties, protocol = patient.properties, patient.protocol
    unused = [key for key in properties if key.startswith("sasl.")] if "SASL" not in protocol else []
    unused += [key for key in properties if key.startswith("ssl.")] if "SSL" not in protocol else []
    if unused:
        remedy = f'"security.protocol" = "{"SASL_" if unused[0].startswith("sasl.") else ""}SSL"'
        yield warn(what, f"{list_names(unused)} have no effect with {protocol}", (remedy,))
    if not untranslatable and not unused:
        number = "1 property" if len(properties) == 1 else f"{len(properties)} properties"
        yield ok(what, f"{number}, {protocol}; all are known")


def _servers(patient: Patient) -> Generator[DoctorCheck, None, bool]:
    """Yield a check of each bootstrap server; return whether any of them gives access to the cluster."""
    texts = [text.strip() for text in patient.bootstrap_servers.split(",") if text.strip()]
    addresses = [address for text in texts if (address := parse_address(text))]
    for text in texts:
        if parse_address(text) is None:
            remedy = '"bootstrap.servers" = "host:port"'
            yield fail(f"server {text}", "this is no address", (remedy,))
    reached = connect_all(addresses, patient.timeout_s)
    for address, connection in reached.items():
        if connection.trouble:
            remedy = 'check "bootstrap.servers", that the broker runs, and what is between'
            yield fail(f"server {address}", connection.trouble, (remedy,))
        else:
            yield ok(f"server {address}", _connected(address, connection))
    return len(addresses) == len(texts) and any(not connection.trouble for connection in reached.values())


def _no_sign_in(patient: Patient, reason: str) -> DoctorCheck:
    remedy = 'check that a Kafka listener is at that port, and that "security.protocol" is its own'
    if mechanism_of(patient.properties):
        remedy += f"; {what_to_check(patient.properties)}"
    if any(sign in reason for sign in _NOT_KAFKA):
        reason = "the server at that port does not use Kafka's protocol, or uses TLS"
    return fail(_SIGN_IN, reason, (remedy,))


def _brokers(
    brokers: Mapping[int, tuple[str, int]], able: Mapping[int, Abilities | Unseen], timeout_s: float
) -> Iterator[DoctorCheck]:
    addresses = {broker: Address(*where) for broker, where in brokers.items()}
    reached = connect_all(set(addresses.values()), timeout_s)
    for broker, address in addresses.items():
        what, connection, abilities = f"broker {broker} at {address}", reached[address], able[broker]
        if connection.trouble:
            remedy = f"make it reachable from here, or change broker {broker}'s advertised.listeners"
            yield fail(what, connection.trouble, (remedy,))
        elif isinstance(abilities, Unseen):
            yield fail(what, f"{_connected(address, connection)}, then: {abilities.reason}")
        else:
            answered = f"answered in {_ms(abilities.answered_ms)}; {abilities.release} by its requests"
            yield ok(what, f"{_connected(address, connection)}, {answered}")


def _versions(known: Mapping[int, Abilities]) -> Iterator[DoctorCheck]:
    what = "versions"
    releases = sorted({able.release for able in known.values()})
    if len(releases) > 1:
        yield warn(what, f"brokers differ: {list_names(releases)}; as during a rolling upgrade")
    else:
        level = max(able.features.get("transaction.version", 0) for able in known.values())
        protocol = "epochs rise with every transaction" if level >= 2 else "clients' own ends keep the epoch"
        yield ok(what, f"{releases[0]}, transaction.version {level} ({protocol})")


def _settings(patient: Patient, trials: Trials, known: Mapping[int, Abilities]) -> Iterator[DoctorCheck]:
    names = (_VERIFICATION, _MAX_TIMEOUT, _CLEANUP)
    settings = trials.broker_settings(list(known), names)
    if not settings:
        yield skip("settings", "no broker returns them; see DESCRIBE_CONFIGS on cluster")
        return
    open_doors = [
        broker for broker, values in settings.items() if values.get(_VERIFICATION, "false") != "true"
    ]
    if open_doors:
        who = list_names([f"broker {broker}" for broker in open_doors])
        detail = f"{_VERIFICATION} is off at {who}, or not known there: hanging transactions can arise"
        how = f"--alter --entity-type brokers --entity-default --add-config {_VERIFICATION}=true"
        yield warn("settings", detail, (f"kafka-configs {how} {patient.bootstrap_option}",))
    for name in (_MAX_TIMEOUT, _CLEANUP):
        values = sorted({values[name] for values in settings.values() if name in values}, key=int)
        shown = list_names([format_duration(int(value)) for value in values]) or "unknown"
        status = CheckStatus.WARN if len(values) > 1 else CheckStatus.OK
        yield DoctorCheck(
            status, "settings", f"{name} is {shown}" + (": brokers differ" if values[1:] else "")
        )


def _clock(trials: Trials) -> DoctorCheck:
    clock = trials.controller_clock()
    rest = "tails measure those of coordinators by their records"
    if isinstance(clock, Unseen):
        return skip("clock", f"the controller's is unknown ({clock.reason}); {rest}")
    ahead_ms, unsure_ms = clock
    off = f"{_ms(abs(ahead_ms))} {'ahead of' if ahead_ms > 0 else 'behind'} ours"
    detail = f"the active controller's is {off}, give or take {_ms(unsure_ms)}; {rest}"
    if abs(ahead_ms) - unsure_ms > _CLOCK_OFF_MS:
        return warn("clock", detail, ("let NTP or chrony set the clocks of both hosts",))
    return ok("clock", detail)


def _connected(address: Address, reached: Reached) -> str:
    via = "" if reached.ip == address.host else f"resolves to {reached.ip}, "
    return f"{via}connected in {_ms(reached.connected_ms)}"


def _ms(ms: float) -> str:
    return f"{ms:.1f} ms" if ms < 10 else format_duration(int(ms))


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        """Return it in Kafka's spelling."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Reached:
    """The result of an attempt: the resolved address and the time, or the error."""

    ip: str = ""
    connected_ms: float = 0.0
    trouble: str = ""


def parse_address(text: str) -> Address | None:
    """Return the address in `host`, `host:port` or `scheme://host:port`; None for anything else."""
    try:
        # urlsplit does not know Kafka's own schemes (SASL_SSL).
        parts = urlsplit("//" + text.rpartition("://")[2])
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or parts.path or any(character.isspace() for character in host):
        return None
    return Address(host, _PORT if port is None else port)


def connect_all(addresses: Collection[Address], timeout_s: float) -> Mapping[Address, Reached]:
    """Return the result of connecting to each address, all of them within twice `timeout_s`."""
    answers: dict[Address, Reached] = {}
    # No pool: a hanging resolver would delay the end of the process.
    threads = [
        threading.Thread(target=_try, args=(address, timeout_s, answers), daemon=True)
        for address in addresses
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 2 * timeout_s
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return {address: answers.get(address, Reached(trouble=_LATE)) for address in addresses}


def _try(address: Address, timeout_s: float, answers: dict[Address, Reached]) -> None:
    try:
        places = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        answers[address] = Reached(trouble=f"its name does not resolve ({_reason(error)})")
        return
    # A name may resolve to several addresses: the first that opens suffices, as for the client libraries.
    for family, kind, _, _, where in places:
        answers[address] = _connect(socket.socket(family, kind), where, timeout_s)
        if not answers[address].trouble:
            return


def _connect(connection: socket.socket, where: Any, timeout_s: float) -> Reached:
    ip = str(where[0])
    begun = time.monotonic()
    with connection:
        try:
            connection.settimeout(timeout_s)
            connection.connect(where)
        except (OSError, OverflowError) as error:
            return Reached(ip, trouble=f"no connection to {ip} port {where[1]} ({_reason(error)})")
    return Reached(ip, (time.monotonic() - begun) * 1_000)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
