"""Why the audit cannot go on."""

from __future__ import annotations


class AuditError(Exception):
    """The audit cannot go on; the text is the reason and the remedy."""
