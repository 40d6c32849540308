"""Components with a body: `{% tile "State" %}…{% endtile %}`; their HTML is in templates/components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import template
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe

from dashboard.web import addresses

register = template.Library()
#: Pages that link to each other, by the name of their routes.
_TABS = (
    {
        "alerts": "Alerts",
        "channels": "Channels",
        "deliveries": "Deliveries",
        "silences": "Silences",
        "rules": "Rules",
    },
    {"actions": "Actions", "audit": "Changes and sign-ins"},
    {"access": "Users", "tokens": "API tokens"},
)


@register.inclusion_tag("components/tabs.html")
def tabs(here: str) -> Mapping[str, object]:
    """Show the links between a page and its related pages."""
    (words,) = (words for words in _TABS if here in words)
    return {
        "tabs": [
            {"name": name, "words": label, "url": reverse(name), "is_current": name == here}
            for name, label in words.items()
        ]
    }


@register.simple_block_tag
def tile(content: SafeString, name: str, classes: str = "") -> SafeString:
    """Return one figure of a `<dl class="tiles">`: a name, and the body as its value."""
    return render_to_string("components/tile.html", {"name": name, "value": content, "classes": classes})


@register.simple_block_tag
def table_fold(content: SafeString, name: str, title: str, summary: str = "As a table") -> SafeString:
    """Return the fold with the figures of a chart; the body is the head and the rows of the table."""
    return render_to_string(
        "components/table_fold.html",
        {"name": name, "title": title, "summary": summary, "content": content},
    )


@register.simple_block_tag(takes_context=True)
def keepsrange(context: Mapping[str, Any], content: SafeString) -> SafeString:
    """Return the body with the range of the page in its links to pages."""
    kept = context["chrome"].time_range.query
    return mark_safe(addresses.keep_in_links(content, kept))  # noqa: S308 - a query string, escaped
