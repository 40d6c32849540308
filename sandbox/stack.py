"""The default fenceline.toml of `make up`; and `make url`, which prints its stack's address and sign-in."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox import SandboxError, folder
from sandbox.options import StackOptions, read_options
from sandbox.scenes.scene_context import flink_checkpoints

#: The limit for open transactions: scenes in a sandbox should show within seconds.
SANDBOX_OPEN_TOO_LONG_S = 10
SANDBOX_STUCK_IN_PREPARE_S = 1


def write_config(
    options: StackOptions, *, bootstrap: str, external_url: str, receiver: str, job_outputs: Path
) -> Path:
    """Write it and make its folders; return its path.

    `receiver` is the address of the demo's receiver, "" without one; `job_outputs` is the output folder of
    the demo's Spark jobs. Raises SandboxError.
    """
    path = options.data / "fenceline.toml"
    name = "sandbox" if options.has_own_kafka else "default"
    text = f'# Written by make up at each start.\n[clusters.{name}]\n"bootstrap.servers" = "{bootstrap}"\n'
    text += f'\n[alerts]\nexternal_url = "{external_url}"\n'
    if receiver:
        # On this machine, only the receiver's port is allowed.
        text += f'allow_private = ["{receiver}"]\n'
    if options.has_own_kafka:
        text += f"\n[limits]\nopen_too_long_s = {SANDBOX_OPEN_TOO_LONG_S}\n"
        text += f"stuck_in_prepare_s = {SANDBOX_STUCK_IN_PREPARE_S}\n"
        # Spark makes this folder a minute later; until then a missing folder would be an error.
        text += _checkpoints(options.data / "spark" / "checkpoints")
        # The checkpoints of the scene flink-crash.
        text += _checkpoints(flink_checkpoints(options.data), 'kind = "flink"\n')
    if options.has_full_demo:
        for job in ("audit", "history"):
            text += f"\n[{job}]\nurl = {json.dumps(str(job_outputs))}\n"
    with folder.plain_errors(path):
        path.write_text(text)
    return path


def _checkpoints(root: Path, kind: str = "") -> str:
    with folder.plain_errors(root):
        root.mkdir(parents=True, exist_ok=True)
    return f"\n[[checkpoints]]\n{kind}root = {json.dumps(str(root))}\n"


def address_lines(stack: Mapping[str, Any]) -> list[str]:
    return [f"Fenceline is up: {stack['url']}", stack["sign_in"]]


def main() -> int:
    """Print them; an error is one line on stderr and status 1."""
    try:
        data = read_options(os.environ).data
        print(*address_lines(json.loads((data / "stack.json").read_text())), sep="\n")
    except SandboxError as error:
        print(f"make url: {error}", file=sys.stderr)
        return 1
    except (OSError, ValueError, KeyError):
        print(
            f"make url: no stack is up on {data}: start one with `make up`, or wait for it", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
