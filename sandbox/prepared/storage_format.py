"""Format a data folder: Kafka's own tool makes the files once per version, later folders get a copy.

`bootstrap.checkpoint` holds the feature levels of a version and nothing of a node or a cluster;
`meta.properties` holds the ids of both and of the folder.
"""

import os
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

CHECKPOINT, META = "bootstrap.checkpoint", "meta.properties"


def is_formatted(data: Path) -> bool:
    """Whether a data folder belongs to a cluster."""
    return (data / META).exists()


def copy_format(template: Path, data: Path, cluster_id: str, node_id: int) -> None:
    """Format a data folder with the checkpoint of another; raises FileNotFoundError without one.

    The file that marks the folder as formatted is written last.
    """
    checkpoint = template.read_bytes()
    data.mkdir(parents=True, exist_ok=True)
    (data / CHECKPOINT).write_bytes(checkpoint)
    ids = {"node.id": node_id, "directory.id": new_id(), "version": 1, "cluster.id": cluster_id}
    _write(data / META, "".join(f"{key}={value}\n" for key, value in ids.items()).encode())


def keep_format(data: Path, template: Path) -> None:
    """Store the checkpoint of a folder that the tool has formatted."""
    template.parent.mkdir(parents=True, exist_ok=True)
    _write(template, (data / CHECKPOINT).read_bytes())


def new_id() -> str:
    """Return a random id of a cluster or a folder in Kafka's spelling."""
    made = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    # An id with a leading dash would be read as an option.
    return "F" + made[1:]


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    partial = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}")
    partial.write_bytes(content)
    partial.replace(path)
