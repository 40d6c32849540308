"""Components of pages, most with a body: `{% tile "State" %}…{% endtile %}`."""

from collections.abc import Iterable, Mapping
from typing import Any

from django import template
from django.forms.utils import flatatt
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from dashboard.labels.alert import rule_label
from dashboard.labels.status import TRANSACTION_STATE_TONES, StatusLabel
from dashboard.web import addresses
from dashboard.web.templatetags.fenceline import clip, transition_style

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
    (words,) = (words for words in _TABS if here in words)
    return {
        "tabs": [
            {"name": name, "words": label, "url": reverse(name), "is_current": name == here}
            for name, label in words.items()
        ]
    }


@register.simple_block_tag(takes_context=True)
def system_link(
    context: Mapping[str, Any], content: SafeString, part: str = "", cluster: str = ""
) -> SafeString:
    """Return the body as a link to a part of System; only the body if the reader may not open it."""
    if not context["chrome"].sees_system:
        return content
    url = reverse("system", query={"cluster": cluster} if cluster else None, fragment=part or None)
    return format_html('<a href="{}">{}</a>', url, content)


@register.simple_block_tag
def tile(content: SafeString, name: str, classes: str = "") -> SafeString:
    """Return one figure of a `<dl class="tiles">`: a name, and the body as its value."""
    css = f"tile-value {classes}".rstrip()
    return format_html(
        '<div class="tile"><dt class="tile-name">{}</dt><dd class="{}">{}</dd></div>', name, css, content
    )


@register.simple_block_tag
def section(
    content: SafeString, name: str, title: str, note: str = "", *, hidden: bool = False
) -> SafeString:
    """Return a section of a page: its title with a note beside it, `hidden` from all but screen readers.

    The note is text, or a `<small>` at the beginning of the body.
    """
    css = mark_safe(' class="visually-hidden"') if hidden else ""
    small = format_html("<small>{}</small>", note) if note else ""
    if content.lstrip().startswith("<small>"):
        small, end, content = map(SafeString, content.partition("</small>"))
        small += end
    return format_html(
        '<section class="block" aria-labelledby="{}"><h2 id="{}"{}>{} {}</h2>{}</section>',
        name,
        name,
        css,
        title,
        small,
        content,
    )


@register.simple_block_tag
def table(content: SafeString, css: str = "", caption: str = "", **attributes: object) -> SafeString:
    """Return a table; the body is its head (`columns`) and its rows, `caption` is for screen readers."""
    about = format_html('<caption class="visually-hidden">{}</caption>', caption) if caption else ""
    shown = _attributes(f"table {css}", attributes)
    return format_html("<table{}>{}{}</table>", shown, about, _with_body(content))


def _attributes(css: str, given: Mapping[str, object]) -> SafeString:
    """Return the attributes of an element from a tag's, which have underscores for hyphens."""
    shown = {name.replace("_", "-"): value for name, value in given.items()}
    return flatatt({"class": css.rstrip(), **shown})


def _with_body(content: SafeString) -> SafeString:
    """Return the head of a table, and its rows in a `<tbody>`."""
    head, end, rows = content.partition("</thead>")
    return SafeString(f"{head}{end}<tbody>{rows}</tbody>")


@register.simple_block_tag
def table_fold(content: SafeString, name: str, title: str, summary: str = "As a table") -> SafeString:
    """Return the fold with the figures of a chart; the body is the head and the rows of the table."""
    return format_html(
        '<details class="fold" id="{}"><summary>{}</summary>'
        '<div class="scroll card" tabindex="0" role="region" aria-label="{}, as a table">'
        '<table class="table table-bare">{}</table></div></details>',
        name,
        summary,
        title,
        _with_body(content),
    )


@register.simple_block_tag
def badge(content: SafeString, tone: str, title: str | None = None) -> SafeString:
    """Return the body as a badge in a tone, with the tone's mark."""
    return _badge(content, f"tone-{tone}", tone, title)


def _badge(words: str, css: str, mark: str, title: str | None = None) -> SafeString:
    about = "" if title is None else format_html(' title="{}"', title)
    return format_html(
        '<span class="badge {}"{}><i class="mark mark-{}" aria-hidden="true"></i>{}</span>',
        css,
        about,
        mark,
        words,
    )


@register.filter
def as_badge(look: StatusLabel) -> SafeString:
    """Return a label as a badge, with its meaning as title."""
    return _badge(look.words, f"tone-{look.tone}", look.tone, look.means)


@register.filter
def state_badge(state: str) -> SafeString:
    return _badge(state, TRANSACTION_STATE_TONES.get(state, ""), state)


@register.filter
def kind_badge(kind: str) -> SafeString:
    look = transition_style(kind)
    return _badge(look.words, f"tone-{look.tone}", kind, look.means)


@register.filter
def finding_badge(finding: Any) -> SafeString:
    """Return a finding's rule as a badge in its severity, a dash without one."""
    if not finding:
        return SafeString('<span class="muted wide-only">—</span>')
    return _badge(rule_label(finding.rule), f"tone-{finding.severity}", finding.severity, finding.summary)


@register.simple_block_tag
def notice(
    content: SafeString, tone: str, css: str = "", number: int | None = None, **attributes: object
) -> SafeString:
    """Return the body as a paragraph with a tone's mark, plain unless it warns; `number` completes its id."""
    css = css or ("notice" if tone in {"warning", "critical"} else "notice notice-plain")
    if number is not None:
        attributes["id"] = f"{attributes['id']}-{number}"
    mark = format_html('<i class="mark mark-{}" aria-hidden="true"></i>', tone)
    shown = _attributes(css, attributes)
    return format_html("<p{}>{}<span>{}</span></p>", shown, mark, SafeString(content.strip()))


@register.inclusion_tag("components/post_button.html")
def post_button(
    words: str, route: str, *args: object, css: str = "", **attributes: object
) -> Mapping[str, object]:
    """Show a button that posts a form to a route: empty, or with the button's `name` and `value`."""
    shown = _attributes(f"button {css}", attributes)
    return {"words": words, "url": reverse(route, args=args), "attributes": shown}


@register.simple_tag(takes_context=True)
def nav_count(context: Mapping[str, Any], page: str, *, swapped: bool = False) -> str | SafeString:
    """Return the number beside a page in the sidebar, of what needs attention there; "" for other pages.

    `swapped`: it replaces the one in the page, after a refetch.
    """
    chrome, worst, about = context["chrome"], "", ""
    if page == "overview":
        number, tone, words = chrome.open_number, chrome.worst_severity, "open incident"
        page, worst = "findings", format_html(' data-worst="{}"', tone)
    elif page == "alerts":
        number, words = chrome.firing_number, "firing alert"
        tone = chrome.firing[0][0] if number else ""
    elif page == "partitions":
        number, tone, words = chrome.blocked_number, "warning", "blocked"
        about = format_html(' data-blocked="{}"', number)
    elif page in ("groups", "queries"):
        findings = chrome.findings_by_list[page]
        number, tone, words = len(findings), findings[0].severity if findings else "", "open incident"
    else:
        return ""
    swap = mark_safe(' hx-swap-oob="true"') if swapped else ""
    if words != "blocked" and number != 1:
        words += "s"
    badge_of = '<span class="badge count tone-{}"{}>{}<span class="visually-hidden"> {}</span></span>'
    shown = format_html(badge_of, tone, about, number, words) if number else ""
    return format_html('<span id="nav-{}"{}{}>{}</span>', page, worst, swap, shown)


@register.simple_tag
def select_row(row_id: object, subject: object) -> SafeString:
    """Return the box that selects a row of a list for an action."""
    return format_html(
        '<input type="checkbox" class="select" id="select-{}" form="selected-rows" name="subject" value="{}" '
        'aria-label="Select {}" data-select-row>',
        row_id,
        subject,
        clip(str(subject)),
    )


@register.simple_tag
def hidden(pairs: Iterable[tuple[str, object]] = (), **values: object) -> SafeString:
    """Return the hidden fields of a form, one for each value that is not empty; a list has several."""
    lists = ((name, value if isinstance(value, list | tuple) else [value]) for name, value in values.items())
    fields = [*pairs, *((name, each) for name, several in lists for each in several if each)]
    return format_html_join("", '<input type="hidden" name="{}" value="{}">', fields)


@register.simple_block_tag
def field(
    content: SafeString, name: str, label: str, value: str, problem: str, *, code: bool = False, **given: Any
) -> SafeString:
    """Return a text of a form: the body is its hint, `code` is not prose; with `rows` it has lines."""
    hint = SafeString(content.strip())
    described = " ".join(f"{name}-{part}" for part, words in (("hint", hint), ("wrong", problem)) if words)
    given |= {"id": name, "name": name, "autocomplete": "off", "aria-describedby": described or None}
    given |= {"spellcheck": "false", "autocapitalize": "none"} if code else {}
    shown = {"name": name, "label": label, "hint": hint, "problem": problem, "attributes": flatatt(given)}
    return render_to_string("components/field.html", {**shown, "rows": given.get("rows"), "value": value})


def _choice(
    name: str, label: str, options: Iterable[tuple[str, str]], chosen: str, problem: str = ""
) -> Mapping[str, object]:
    """Show the choice of one of a few values, each with words."""
    return {"name": name, "label": label, "options": options, "chosen": chosen, "problem": problem}


register.inclusion_tag("components/select.html", name="select")(_choice)
register.inclusion_tag("components/radios.html", name="radios")(_choice)


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
