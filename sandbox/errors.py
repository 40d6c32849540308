"""The one exception that a user of the sandbox is meant to read."""

from __future__ import annotations


class SandboxError(Exception):
    """Something the user can act on, as one line: what, where, what to do.

    Entry points print it as it is and exit with status 1; it never reaches the user as a traceback.
    """
