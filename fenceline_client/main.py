"""The program `fenceline`: explain in one line what it lacks, else run a command. Valid on Python 3.9."""

from __future__ import annotations

import sys

#: The exit status of a command that has no answer.
NO_ANSWER = 2


def main() -> None:
    """Run the command line and exit."""
    if sys.version_info < (3, 11):
        version = ".".join(map(str, sys.version_info[:3]))
        _stop(
            f"the command line needs Python 3.11 or newer, this is {version}: install it with a newer Python."
        )
    try:
        from fenceline_client.cli import run
    except ModuleNotFoundError as error:
        if error.name not in ("click", "requests"):
            raise
        _stop(f"the package {error.name} is missing. Install it: pip install 'fenceline[cli]'")
    sys.exit(run())


def _stop(reason: str) -> None:
    sys.stderr.write(f"fenceline: {reason}\n")
    sys.exit(NO_ANSWER)


if __name__ == "__main__":
    main()
