"""What the audit says when it cannot go on."""

from __future__ import annotations


class AuditError(Exception):
    """The audit cannot go on; the text says why and what to do."""
