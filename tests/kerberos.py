"""A realm of Kerberos with its KDC on the loopback, and a broker that asks for its tickets."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.kafka import Broker
from sandbox.ports import HOST, free_port
from tests.brokers import PROPERTIES
from tests.waiting import wait_for

REALM = "FENCELINE.TEST"
#: Where Debian has them (krb5-kdc, krb5-admin-server); not on everybody's PATH.
_PATH = f"/usr/sbin:/usr/lib/krb5/sbin:{os.environ.get('PATH', '')}"


class Realm:
    """A KDC with principals whose keys are in key tabs; `config` is what its clients read."""

    def __init__(self, folder: Path, ticket_life: str) -> None:
        self.folder, self.config = folder, folder / "krb5.conf"
        self.port = free_port()
        self.config.write_text(
            f"[libdefaults]\ndefault_realm = {REALM}\nrdns = false\ndns_canonicalize_hostname = false\n"
            f"dns_lookup_kdc = false\nudp_preference_limit = 1\nticket_lifetime = {ticket_life}\n"
            f"default_ccache_name = FILE:{folder}/ccache\n"
            f"[realms]\n{REALM} = {{\n kdc = {HOST}:{self.port}\n}}\n"
            f"[domain_realm]\n{HOST} = {REALM}\n"
        )
        (folder / "kdc.conf").write_text(
            f"[kdcdefaults]\nkdc_listen = {HOST}:{self.port}\nkdc_tcp_listen = {HOST}:{self.port}\n"
            f"[realms]\n{REALM} = {{\n database_name = {folder}/principals\n"
            f" key_stash_file = {folder}/stash\n"
            f" max_life = {ticket_life}\n}}\n[logging]\nkdc = FILE:{folder}/kdc.log\n"
        )

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {
            "KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"), "PATH": _PATH
        }  # fmt: skip

    def make(self) -> None:
        """Make the realm's database."""
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master", "-W")

    def keytab(self, principal: str) -> Path:
        """Add a principal; return the key tab that signs in as it."""
        where = self.folder / f"{principal.replace('/', '-')}.keytab"
        self._run("kadmin.local", "-r", REALM, "addprinc", "-randkey", principal)
        self._run("kadmin.local", "-r", REALM, "ktadd", "-k", str(where), principal)
        return where

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stdout, done.stderr)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the KDC."""
        kdc = subprocess.Popen(
            ["krb5kdc", "-n", "-r", REALM],
            env=self.environment,
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        try:
            log = self.folder / "kdc.log"
            wait_for(lambda: log.exists() and "commencing operation" in log.read_text(), "the KDC listens")
            yield
        finally:
            kdc.send_signal(signal.SIGTERM)
            kdc.wait(20)


def is_installed() -> bool:
    """Whether this machine has a KDC."""
    return all(shutil.which(name, path=_PATH) for name in ("krb5kdc", "kdb5_util", "kadmin.local"))


@dataclass(slots=True)
class KerberosBroker(Broker):
    """A broker whose second listener takes tickets; sessions there last for twelve seconds."""

    realm: Realm | None = None
    kerberos_port: int = field(default_factory=free_port)

    def command(self) -> list[str]:
        """Let its JVM know the realm."""
        program, *rest = Broker.command(self)
        assert self.realm
        return [program, f"-Djava.security.krb5.conf={self.realm.config}", *rest]

    def _settings(self) -> dict[str, str]:
        assert self.realm
        found = Broker._settings(self)
        url = f"KERBEROS://{HOST}:{self.kerberos_port}"
        for key, more in (
            ("listeners", url), ("advertised.listeners", url),
            ("listener.security.protocol.map", "KERBEROS:SASL_PLAINTEXT"),
        ):  # fmt: skip
            found[key] += f",{more}"
        keytab = self.realm.folder / f"kafka-{HOST}.keytab"
        login = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
        of = "listener.name.kerberos"
        return found | PROPERTIES | {
            f"{of}.sasl.enabled.mechanisms": "GSSAPI",
            f"{of}.gssapi.sasl.jaas.config": f'{login} keyTab="{keytab}" principal="kafka/{HOST}@{REALM}";',
            f"{of}.sasl.kerberos.service.name": "kafka",
            f"{of}.gssapi.connections.max.reauth.ms": "12000",
        }  # fmt: skip
