"""A broker that asks who is there, in every way at once: PLAIN, SCRAM, tokens, certificates; with ACLs.

Properties are a cluster's, as a user writes them, for the one who is `USER` to the broker.
"""

import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from sandbox.kafka import Broker
from sandbox.ports import HOST, free_port
from tests.acls import set_acl
from tests.identity_provider import AUDIENCE, IdentityProvider
from tests.receivers import Authority

USER, PASSWORD = "collector", "right;ful"
_SECURITY = "org.apache.kafka.common.security"
_BEARER = f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required"
#: listener -> its protocol.
LISTENERS = {"PASSWORDS": "SASL_PLAINTEXT", "BEARER": "SASL_PLAINTEXT", "CLOUD": "SASL_SSL", "TLS": "SSL"}


@dataclass(slots=True)
class Secured(Broker):
    """A broker with a listener for each way to sign in, beside the plain one of `Broker`."""

    authority: Authority | None = None
    provider: IdentityProvider | None = None
    #: How long a session may last before its client must sign in again; 0 for ever.
    session_ms: int = 0
    ports: Mapping[str, int] = field(default_factory=lambda: {name: free_port() for name in LISTENERS})

    def address(self, listener: str) -> str:
        """Return `host:port` of a listener."""
        return f"{HOST}:{self.ports[listener]}"

    def command(self) -> list[str]:
        """Let it fetch the keys of our identity provider."""
        program, *rest = Broker.command(self)
        assert self.provider
        return [program, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.provider.keys_url}", *rest]

    def _settings(self) -> dict[str, str]:
        found = Broker._settings(self)
        urls = [f"{name}://{self.address(name)}" for name in LISTENERS]
        protocols = [f"{name}:{protocol}" for name, protocol in LISTENERS.items()]
        for key, more in (
            ("listeners", urls),
            ("advertised.listeners", urls),
            ("listener.security.protocol.map", protocols),
        ):
            found[key] = ",".join((found[key], *more))
        return found | self._passwords() | self._bearer("bearer") | self._bearer("cloud") | self._tls()

    def _passwords(self) -> dict[str, str]:
        of = "listener.name.passwords"
        scrams = {
            f"{of}.scram-sha-{bits}.sasl.jaas.config": f"{_SECURITY}.scram.ScramLoginModule required;"
            for bits in (256, 512)
        }
        return {
            f"{of}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f"{of}.plain.sasl.jaas.config": f"{_SECURITY}.plain.PlainLoginModule required "
            f'user_{USER}="{PASSWORD}";',
            f"{of}.plain.connections.max.reauth.ms": str(self.session_ms),
            **scrams,
        }

    def _bearer(self, listener: str) -> dict[str, str]:
        assert self.provider
        of = f"listener.name.{listener}"
        return {
            f"{of}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{of}.oauthbearer.sasl.jaas.config": f"{_BEARER};",
            f"{of}.oauthbearer.sasl.server.callback.handler.class": f"{_SECURITY}.oauthbearer."
            "OAuthBearerValidatorCallbackHandler",
            f"{of}.oauthbearer.connections.max.reauth.ms": str(self.session_ms),
            "sasl.oauthbearer.jwks.endpoint.url": self.provider.keys_url,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
        }

    def _tls(self) -> dict[str, str]:
        assert self.authority
        certificate, key = self.authority.issue("broker", f"IP:{HOST}")
        both = self.folder / "broker.pem"
        both.write_text(key.read_text() + certificate.read_text())
        return {
            "listener.name.tls.ssl.client.auth": "required",
            "listener.name.tls.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(both),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
        }

    def let_in(self) -> None:
        """Give the user its password by SCRAM, and every right that Fenceline and its sink need."""
        client = AdminClient({"bootstrap.servers": self.bootstrap})
        for each in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            salted = UserScramCredentialUpsertion(USER, ScramCredentialInfo(each, 4096), PASSWORD.encode())
            # One by one: librdkafka takes two mechanisms of one user for a repetition.
            client.alter_user_scram_credentials([salted])[USER].result(30)
        for kind, name in (
            (ResourceType.TOPIC, "*"), (ResourceType.GROUP, "*"), (ResourceType.TRANSACTIONAL_ID, "*"),
            (ResourceType.BROKER, "kafka-cluster"),
        ):  # fmt: skip
            set_acl(self, USER, kind, name, AclOperation.ALL)

    def by_password(self, mechanism: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.address("PASSWORDS"), "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": PASSWORD,
        }  # fmt: skip

    def by_token(self) -> dict[str, str]:
        """A client's id and secret, which librdkafka and Fenceline exchange for tokens."""
        assert self.provider
        return {
            "bootstrap.servers": self.address("BEARER"), "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.provider.token_url,
            "sasl.oauthbearer.client.id": USER, "sasl.oauthbearer.client.secret": "rightful",
        }  # fmt: skip

    def by_callback(self, function: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.address("BEARER"), "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.callback": function,
        }  # fmt: skip

    def by_cloud(self) -> dict[str, str]:
        """Amazon's way, of which this broker has the outer half: TLS, and tokens that it does not trust."""
        assert self.authority
        return {
            "bootstrap.servers": self.address("CLOUD"), "security.protocol": "SASL_SSL",
            "sasl.mechanism": "AWS_MSK_IAM", "ssl.ca.location": str(self.authority.certificate),
        }  # fmt: skip

    def by_certificate(self) -> dict[str, str]:
        assert self.authority
        certificate, key = self.authority.issue(USER, f"DNS:{USER}")
        return {
            "bootstrap.servers": self.address("TLS"), "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority.certificate),
            "ssl.certificate.location": str(certificate), "ssl.key.location": str(key),
        }  # fmt: skip

    def by_text(self) -> dict[str, str]:
        """The same certificate and authority as texts."""
        pem = self.by_certificate()
        texts = {key: Path(value).read_text() for key, value in pem.items() if key.endswith(".location")}
        return {
            "bootstrap.servers": pem["bootstrap.servers"], "security.protocol": "SSL",
            "ssl.ca.pem": texts["ssl.ca.location"], "ssl.key.pem": texts["ssl.key.location"],
            "ssl.certificate.pem": texts["ssl.certificate.location"],
        }  # fmt: skip

    def by_store(self) -> dict[str, str]:
        """The same certificate and authority in stores of PKCS12."""
        assert self.authority
        pem = self.by_certificate()
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        own, trusted = folder / "own.p12", folder / "trusted.p12"
        run("openssl", "pkcs12", "-export", "-in", pem["ssl.certificate.location"], "-inkey",
            pem["ssl.key.location"], "-out", str(own), "-passout", "pass:changeit")  # fmt: skip
        self.keytool("-importcert", "-noprompt", "-alias", "ca", "-file", pem["ssl.ca.location"], "-keystore",
                     str(trusted), "-storetype", "PKCS12", "-storepass", "changeit")  # fmt: skip
        return {
            "bootstrap.servers": self.address("TLS"), "security.protocol": "SSL",
            "ssl.truststore.location": str(trusted), "ssl.truststore.password": "changeit",
            "ssl.keystore.location": str(own), "ssl.keystore.password": "changeit",
        }  # fmt: skip

    def keytool(self, *arguments: str) -> None:
        """Run Java's own tool for stores."""
        assert self.java
        run(str(Path(self.java.home, "bin", "keytool")), *arguments)


def run(*command: str) -> None:
    """Run a program that must succeed."""
    subprocess.run(command, check=True, capture_output=True)
