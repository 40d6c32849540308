"""The exception whose text is for users of the sandbox."""


class SandboxError(Exception):
    """An error for the user in one line: what, where, what to do.

    Entry points print it as it is and exit with status 1; it never reaches the user as a traceback.
    """
