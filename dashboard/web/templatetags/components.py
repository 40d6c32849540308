"""Components of pages, most with a body: `{% tile "State" %}…{% endtile %}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import template
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
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
def section(
    content: SafeString, name: str, title: str, note: str = "", *, hidden: bool = False
) -> SafeString:
    """Return a section of a page: its title with a note beside it, `hidden` from all but screen readers."""
    shown = {"name": name, "title": title, "note": note, "hidden": hidden, "content": content}
    return render_to_string("components/section.html", shown)


@register.simple_block_tag
def table_fold(content: SafeString, name: str, title: str, summary: str = "As a table") -> SafeString:
    """Return the fold with the figures of a chart; the body is the head and the rows of the table."""
    return render_to_string(
        "components/table_fold.html",
        {"name": name, "title": title, "summary": summary, "content": content},
    )


@register.simple_block_tag
def badge(content: SafeString, tone: str, title: str | None = None) -> SafeString:
    """Return the body as a badge in a tone, with the tone's mark."""
    about = "" if title is None else format_html(' title="{}"', title)
    mark = format_html('<i class="mark mark-{}" aria-hidden="true"></i>', tone)
    return format_html('<span class="badge tone-{}"{}>{}{}</span>', tone, about, mark, content)


@register.inclusion_tag("components/post_button.html")
def post_button(words: str, route: str, *args: object) -> Mapping[str, object]:
    """Show a button that posts an empty form to a route."""
    return {"words": words, "url": reverse(route, args=args)}


@register.simple_block_tag
def columns(content: SafeString) -> SafeString:
    """Return a table's head from `Producer; Epoch|number; At UTC`: headings, with classes after a bar.

    A final UTC becomes the name of the reader's zone.
    """
    headings = (heading.strip().partition("|") for heading in content.split(";"))
    cells = "".join(_heading(words, css) for words, _, css in headings if words)
    return mark_safe(f"<thead><tr>{cells}</tr></thead>")  # noqa: S308 - a template's text, values are escaped


def _heading(words: str, css: str) -> str:
    if words.endswith(" UTC"):
        words = f'{words.removesuffix("UTC")}<span class="muted" data-zone-name>UTC</span>'
    classes = f' class="{css}"' if css else ""
    return f'<th scope="col"{classes}>{words}</th>'


@register.simple_block_tag(takes_context=True)
def keepsrange(context: Mapping[str, Any], content: SafeString) -> SafeString:
    """Return the body with the range of the page in its links to pages."""
    kept = context["chrome"].time_range.query
    return mark_safe(addresses.keep_in_links(content, kept))  # noqa: S308 - a query string, escaped
