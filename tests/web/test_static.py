"""Proves what the browser is given: no foreign host, nothing inline, sound CSS, vendored files untouched; and
that scripts and styles are sent whole, in order, compressed if that is accepted, kept for ever."""

import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
import tinycss2
from django.contrib.auth.models import User
from django.test import Client

from dashboard.web.server.bundles import BUNDLES, bundle_url

ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "dashboard" / "static"
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
#: Modules that name classes too.
MAKES_HTML = [
    ROOT / "dashboard/web" / name for name in ("pages/transactions.py", "templatetags/components.py")
]
SHEETS = sorted((STATIC / "css").glob("*.css"))
SCRIPTS = sorted((STATIC / "js").glob("*.js"))
#: Not pages of the server: what they need is in them.
FILES_TO_KEEP = {ROOT / "templates" / "incidents" / "report.html"}
VENDORED = (STATIC / "vendor", ROOT / "tests" / "browser" / "vendor")
#: Classes that scripts set, and those whose ends templates fill in.
SET_BY_SCRIPTS = {"modebar-container"}
#: By it Plotly knows a sheet that it must not write to.
PLOTLYS = {"no-inline-styles"}


def without_tags(template: str) -> str:
    """Return a template's HTML with what Django fills in replaced by a word."""
    return re.sub(r"{%.*?%}|{{.*?}}", lambda m: "X" if m[0].startswith("{{") else " ", template, flags=re.S)


class Elements(HTMLParser):
    """Collects every element's attributes, and the text inside scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def elements(path: Path) -> list[tuple[str, dict[str, str | None]]]:
    parser = Elements()
    parser.feed(without_tags(path.read_text()))
    return parser.found


def test_a_template_names_no_host_and_holds_nothing_inline() -> None:
    """tests/browser/test_incidents.py opens the files that are kept without a network."""
    for path in set(TEMPLATES) - FILES_TO_KEEP:
        assert not re.search(r"(https?:)?//[a-z0-9]", path.read_text(), re.I), (path, "a host")
        for tag, attributes in elements(path):
            assert tag != "style", path
            assert tag != "script" or "src" in attributes, (path, "an inline script")
            for name in attributes:
                assert name != "style", (path, tag, "an inline style")
                assert not name.startswith(("on", "hx-on")), (path, tag, name)
            assert not str(attributes.get("href", "")).lower().startswith("javascript:"), path


@pytest.mark.parametrize("path", [*SCRIPTS, *SHEETS], ids=lambda path: path.name)
def test_our_files_name_no_host_and_stay_short(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"https?://", text)
    assert "@import" not in text
    assert len(text.splitlines()) <= (200 if path.suffix == ".js" else 400)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_our_scripts_make_no_code_and_no_html_from_text(path: Path) -> None:
    assert not re.search(
        r"\beval\(|new Function|innerHTML\s*=|insertAdjacentHTML|document\.write", path.read_text()
    )


def blocks(rules: list[object]) -> Iterator[object]:
    for rule in rules:
        if rule.type == "qualified-rule":  # type: ignore[attr-defined]
            yield rule
        elif rule.type == "at-rule" and rule.content and rule.lower_at_keyword in ("media", "keyframes"):  # type: ignore[attr-defined]
            yield from blocks(tinycss2.parse_rule_list(rule.content, True, True))  # type: ignore[attr-defined]
        else:
            assert rule.type == "at-rule", rule  # type: ignore[attr-defined]


def parsed(path: Path) -> list[object]:
    return list(blocks(tinycss2.parse_stylesheet(path.read_text(), True, True)))


@pytest.mark.parametrize("path", SHEETS, ids=lambda path: path.name)
def test_a_sheet_parses_without_an_error(path: Path) -> None:
    for rule in parsed(path):
        declarations = tinycss2.parse_declaration_list(rule.content, True, True)  # type: ignore[attr-defined]
        assert declarations, tinycss2.serialize(rule.prelude)  # type: ignore[attr-defined]
        assert all(each.type == "declaration" for each in declarations), declarations


def test_every_variable_is_defined_and_used() -> None:
    text = "\n".join(path.read_text() for path in (*SHEETS, *SCRIPTS))
    defined = set(re.findall(r"(--[\w-]+)\s*:", text))
    used = set(re.findall(r"var\((--[\w-]+)", text))
    assert used <= defined, used - defined
    assert defined <= used, defined - used


def css_classes() -> set[str]:
    preludes = (tinycss2.serialize(rule.prelude) for path in SHEETS for rule in parsed(path))  # type: ignore[attr-defined]
    return {name for prelude in preludes for name in re.findall(r"\.([A-Za-z][\w-]*)", prelude)}


def test_every_class_of_a_template_is_defined() -> None:
    known = css_classes() | PLOTLYS
    for path in TEMPLATES:
        for _, attributes in elements(path):
            for name in (attributes.get("class") or "").split():
                if "X" in name:
                    ends = [each for each in known if re.fullmatch(name.replace("X", r"[\w-]+"), each)]
                    assert ends, (path.name, name)
                else:
                    assert name in known, (path.name, name)


def test_every_class_of_a_sheet_is_used() -> None:
    text = "\n".join(path.read_text() for path in (*TEMPLATES, *MAKES_HTML))
    words = set(re.findall(r"[\w-]+", text))
    prefixes = tuple(re.findall(r"([\w-]+-){{", text))
    unused = {
        name for name in css_classes() if name not in words | SET_BY_SCRIPTS and not name.startswith(prefixes)
    }
    assert not unused


@pytest.mark.parametrize("folder", VENDORED, ids=lambda folder: folder.parent.name)
def test_vendored_files_are_what_their_manifest_says(folder: Path) -> None:
    entries = json.loads((folder / "manifest.json").read_text())
    for entry in entries:
        assert hashlib.sha256((folder / entry["file"]).read_bytes()).hexdigest() == entry["sha256"], entry[
            "file"
        ]
        assert entry["version"] in entry["file"]
        assert entry["licence"]
        assert (folder / entry["licence_file"]).read_text().strip()
    listed = {entry["file"] for entry in entries} | {entry["licence_file"] for entry in entries}
    assert {path.name for path in folder.iterdir()} == listed | {"manifest.json"}


def test_htmx_is_told_to_make_no_code() -> None:
    found = re.search(
        r"name=\"htmx-config\"\s+content='([^']+)'", (ROOT / "templates" / "base.html").read_text()
    )
    assert found
    assert json.loads(found[1]) == {
        "allowEval": False,
        "includeIndicatorStyles": False,
        "selfRequestsOnly": True,
        "allowScriptTags": False,
        "historyCacheSize": 0,
    }


#: Fonts and licences: WhiteNoise serves these.
ELSEWHERE = {".woff2", ".txt", ".json"}


def test_every_script_style_and_icon_is_in_one_bundle() -> None:
    bundled = [name for files in BUNDLES.values() for name in files]
    there = [str(path.relative_to(STATIC)) for path in STATIC.rglob("*.*") if path.suffix not in ELSEWHERE]
    assert sorted(bundled) == sorted(there)


@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundle_is_its_files_in_order(client: Client, name: str) -> None:
    content = client.get(bundle_url(name)).content
    at = [content.index((STATIC / each).read_bytes()) for each in BUNDLES[name]]
    assert at == sorted(at)
    zipped = client.get(bundle_url(name), headers={"accept-encoding": "br, gzip"})
    assert zipped.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(zipped.content) == content
    assert "Accept-Encoding" in zipped.headers["Vary"]


def test_only_the_address_of_this_content_is_kept(client: Client) -> None:
    assert "immutable" in client.get(bundle_url("app.js")).headers["Cache-Control"]
    for query in ("", "?v=", "?v=0123456789", "?v=../settings"):
        answer = client.get(f"/static/bundles/app.js{query}")
        assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-cache"), query


@pytest.mark.parametrize("name", ["app.jss", "base.css", "%2e%2e", "..%2fjs%2flive.js", "app.css%00"])
def test_no_other_file_is_found(client: Client, name: str) -> None:
    assert client.get(f"/static/bundles/{name}").status_code == 404


def test_nothing_is_sent_to_who_would_write(client: Client) -> None:
    assert client.post(bundle_url("app.js")).status_code == 405


@pytest.mark.django_db
def test_a_page_is_compressed_and_keeps_its_tag(user: User) -> None:
    client = Client()
    client.force_login(user)
    plain = client.get("/transactions")
    zipped = client.get("/transactions", headers={"accept-encoding": "gzip"})
    assert zipped.headers["Content-Encoding"] == "gzip"
    assert zipped.headers["ETag"] == plain.headers["ETag"]
    shown = gzip.decompress(zipped.content).decode()
    assert len(re.findall(r'<link rel="stylesheet"', shown)) == 1
    assert len(re.findall("<script ", shown)) <= 3
