#!/usr/bin/env python
"""Django's command line, with Fenceline's settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from django.core.management import execute_from_command_line

from dashboard.system import origin


def main(arguments: Sequence[str]) -> None:
    """Run a command; the audit log attributes its changes to the command's name."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    with origin.command_origin(" ".join(arguments[1:2])):
        execute_from_command_line(list(arguments))


if __name__ == "__main__":
    main(sys.argv)
