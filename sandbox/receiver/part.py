"""The receiver as a part of a stack: its port, its secrets, its page and its process."""

import base64
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path

from sandbox import folder
from sandbox.options import ROOT
from sandbox.ports import HOST
from sandbox.receiver import PAGE_TOKEN, READY_LINE, SIGNING_SECRET
from sandbox.supervisor import Part


@dataclass(frozen=True, slots=True)
class DemoReceiver:
    """The receiver of the stack whose folder is `data`."""

    data: Path
    port: int

    @property
    def page(self) -> str:
        """Return the address of its list of messages."""
        token = folder.stored_secret(self.data, PAGE_TOKEN)
        return f"http://{HOST}:{self.port}/{token}/"

    @property
    def signing_secret(self) -> str:
        """Return the signing secret in the form of Standard Webhooks, made once."""
        return folder.stored_secret(self.data, SIGNING_SECRET, _new_secret)

    def part(self) -> Part:
        """Return its process, which has none of Fenceline's secrets and stops after the senders."""
        command = [sys.executable, "-m", "sandbox.receiver.server", str(self.data), str(self.port)]
        own = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        return Part("receiver", command, own, ready_line=READY_LINE, stage=1, essential=False)


def _new_secret() -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
