"""`make url`: print the address and the sign-in of the stack of `make up`."""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from sandbox.errors import SandboxError
from sandbox.options import read_options


def address_lines(stack: Mapping[str, Any]) -> list[str]:
    """Return the address and the sign-in from stack.json."""
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
