"""Components with a body: `{% tile "State" %}…{% endtile %}`; their HTML is in templates/components."""

from __future__ import annotations

from django import template
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

register = template.Library()


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
