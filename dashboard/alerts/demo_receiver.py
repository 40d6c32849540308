"""The receiver of the sandbox's demo: its address, and its secret."""

from urllib.parse import urljoin

from django.conf import settings

from dashboard.models import Channel

HOOK = "/hook"


def is_demo_receiver(url: str) -> bool:
    """Whether messages to an address go to the demo's running receiver."""
    return bool(settings.DEMO_RECEIVER) and url.strip() == urljoin(settings.DEMO_RECEIVER, HOOK)


def known_secret(url: str) -> str:
    """Return the secret with which channels sign for the demo's receiver; "" for other addresses."""
    if not is_demo_receiver(url):
        return ""
    signing = Channel.objects.filter(url=url.strip(), kind=Channel.Kind.WEBHOOK).order_by("pk")
    return signing.values_list("secret", flat=True).first() or ""


def check_secret(row: Channel, url: str) -> None:
    """Raise ValueError if the demo's receiver would answer 401 to every message of a channel."""
    if not is_demo_receiver(url):
        return
    if row.kind != Channel.Kind.WEBHOOK:
        raise ValueError("The demo's receiver takes only signed messages: add a channel of kind webhook.")
    if (known := known_secret(url)) and row.secret not in (known, ""):
        raise ValueError("The demo's receiver has another secret: add a new channel, which signs with it.")
