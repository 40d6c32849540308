"""Settings that every Kafka client of the sandbox shares."""

import logging
from typing import Any

_silent = logging.getLogger("sandbox.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


def client_settings(bootstrap: str, name: str) -> dict[str, Any]:
    """Return the settings of a client labelled demo, whose caller reports its errors.

    librdkafka would print the intended failures of scenes: fencing as a fatal alarm, and refused connections.
    """
    client_id = name if name.startswith("demo") else f"demo-{name}"
    quiet = {"logger": _silent, "error_cb": lambda error: None}
    return {"bootstrap.servers": bootstrap, "client.id": client_id, **quiet}
