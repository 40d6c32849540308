"""Proves that what code and docs cite is there: each Markdown file, and each section of it that is named."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: A path to a Markdown file, and the sections named behind it: `docs/design/kafka.md §0, §1.1`.
CITATION = re.compile(r"(?<![\w/{}<>*-])((?:\.{1,2}/)*[\w-][\w./-]*\.md)\b((?:,? §[\d.]*\d)*)")
SUFFIXES = {".py", ".md", ".html", ".toml", ".yml", ".sh", ".json", ".css", ".js"}


def citations(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each Markdown file that a file names, with the numbers of the sections it names of it."""
    text = re.sub(r"https?://\S+", "", path.read_text())
    for name, sections in CITATION.findall(text):
        # In tests a bare name is a file that the test makes or opens.
        if sections or name.startswith("docs/") or "tests" not in path.parts:
            yield name, re.findall(r"[\d.]+", sections)


def missing(path: Path, root: Path) -> list[str]:
    """Return the files, by path from root or citing file, and the sections that are cited and not there."""
    found = []
    for name, sections in citations(path):
        cited = next((each for each in (root / name, path.parent / name) if each.is_file()), None)
        if cited is None:
            found.append(name)
            continue
        headings = re.findall(r"^#+ ([\d.]*\d)\.? ", cited.read_text(), re.MULTILINE)
        found += [f"{name} §{section}" for section in sections if section not in headings]
    return found


def tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [ROOT / line for line in done.stdout.splitlines()]
    ours = (path for path in paths if "vendor" not in path.parts and path != Path(__file__))
    return [path for path in ours if path.suffix in SUFFIXES and path.is_file()]


def test_every_cited_file_and_section_exists() -> None:
    paths = tracked()
    found = {str(path.relative_to(ROOT)): names for path in paths if (names := missing(path, ROOT))}
    assert len(paths) > 500
    assert found == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see notes.md", ["notes.md"]),
        ("(here.md §1.2, §3)", ["here.md §3"]),
        ("[there](../here.md#top) and here.md §1", []),
        ("`docs/rules/{name}.md` names no file", []),
    ],
)
def test_a_missing_file_or_section_is_found(tmp_path: Path, text: str, expected: list[str]) -> None:
    (tmp_path / "here.md").write_text("# Here\n## 1. One\n### 1.2 Two\n")
    (tmp_path / "below").mkdir()
    citing = tmp_path / "below" / "code.py"
    citing.write_text(text)
    assert missing(citing, tmp_path) == expected
