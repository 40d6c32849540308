"""A webhook receiver: the demo of deliveries, signatures and retries."""

#: The path that takes messages.
HOOK = "/hook"
#: Files of the stack's secrets: the signing secret, and the token of the list of messages.
SIGNING_SECRET, PAGE_TOKEN = "receiver_secret", "receiver_page"
READY_LINE = "receiver: listening"
