"""Keep a page's time range in its links."""

from __future__ import annotations

from typing import Any

from django import template
from django.template.base import NodeList, Parser, Token
from django.utils.safestring import SafeString, mark_safe

from dashboard.web import addresses

register = template.Library()


class KeptRangeNode(template.Node):
    """HTML whose links to pages keep this page's range, for any template."""

    def __init__(self, nodelist: NodeList) -> None:
        self.nodelist = nodelist

    def render(self, context: Any) -> SafeString:
        html = self.nodelist.render(context)
        kept = context["chrome"].time_range.query
        return mark_safe(addresses.keep_in_links(html, kept))  # noqa: S308 - a query string, escaped


@register.tag
def keepsrange(parser: Parser, token: Token) -> KeptRangeNode:
    """Parse `{% keepsrange %}…{% endkeepsrange %}`, which keeps the range of the page in its links."""
    nodelist = parser.parse(("endkeepsrange",))
    parser.delete_first_token()
    return KeptRangeNode(nodelist)
