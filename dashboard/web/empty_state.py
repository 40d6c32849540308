"""Why a list is empty: four reasons, each of which reads differently to an operator. Pure."""

from __future__ import annotations

from dashboard.web.page_context import Chrome


def why_empty(frame: Chrome, *, narrowed: bool) -> str:
    """Return "unreachable", "unseen", "unmatched" or "none"."""
    if frame.freshness.blind and frame.freshness.unseen:
        return "unreachable"
    if frame.freshness.unseen or not frame.clusters:
        return "unseen"
    return "unmatched" if narrowed else "none"
