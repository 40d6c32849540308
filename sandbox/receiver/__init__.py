"""A webhook receiver, so that the demo shows deliveries, signatures and retries."""

from __future__ import annotations

#: The path that takes messages.
HOOK = "/hook"
#: Files of the stack's secrets: what messages are signed with, and what the list of messages is behind.
SIGNING_SECRET, PAGE_TOKEN = "receiver_secret", "receiver_page"
READY_LINE = "receiver: listening"
