"""A check of the doctor: its status, its result, and its remedy."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from fenceline.kafka.acls import TO_END, TO_LOOK, TO_WRITE_MARKERS, Resource, Right, rights_within
from fenceline.kafka.scope import EVERYTHING, Scope
from transaction_admin.api import grant_command


class CheckStatus(StrEnum):
    """The status of a check; `skip`: it could not be made, and its detail is the reason."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"
    SKIP = "skip"


class DoctorCheck(NamedTuple):
    """One check: its subject, its result, and lines that correct a problem."""

    status: CheckStatus
    what: str
    detail: str
    remedies: tuple[str, ...] = ()


ok, warn = partial(DoctorCheck, CheckStatus.OK), partial(DoctorCheck, CheckStatus.WARN)
fail, skip = partial(DoctorCheck, CheckStatus.FAIL), partial(DoctorCheck, CheckStatus.SKIP)


@dataclass(frozen=True, slots=True)
class Patient:
    """A cluster to examine: librdkafka's properties, and the timeout of a request."""

    properties: Mapping[str, str]
    #: Whether the operator vouches that no transactional id is hidden from this principal.
    sees_all_ids: bool
    timeout_s: float
    scope: Scope = EVERYTHING

    @property
    def protocol(self) -> str:
        """Return the security protocol in capitals."""
        return self.properties.get("security.protocol", "plaintext").upper()

    @property
    def principal(self) -> str:
        """Return our principal at the brokers; `User:…` if only they know it."""
        if "SASL" in self.protocol:
            return f"User:{self.properties.get('sasl.username', '…')}"
        return "User:ANONYMOUS" if self.protocol == "PLAINTEXT" else "User:…"

    @property
    def bootstrap_servers(self) -> str:
        return self.properties["bootstrap.servers"]

    @property
    def bootstrap_option(self) -> str:
        """Return the option that names the cluster to Kafka's tools."""
        return f"--bootstrap-server {self.bootstrap_servers.replace(' ', '')}"

    @property
    def grants(self) -> Mapping[Right, str]:
        """Return the line that grants each right that Fenceline uses."""
        who = shlex.quote(self.principal)
        where = self.bootstrap_option
        return {
            right: f"{grant_command(who, right.operation_name, right.resource_option)} {where}"
            for right in (*self.rights_to_look, *self.rights_to_act)
        }

    @property
    def rights_to_look(self) -> Sequence[Right]:
        """Return the rights for reading within the scope."""
        return rights_within(TO_LOOK, self.scope.patterns)

    @property
    def rights_to_act(self) -> Sequence[Right]:
        ids = {Resource.TRANSACTIONAL_ID: self.scope.transactional_ids}
        return rights_within((TO_WRITE_MARKERS, TO_END), ids)
