"""The documents are in step: generated pages are complete, and every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sources import ROOT

from smartserver.cli.main import COMMANDS
from smartserver.cli.reference import pages
from smartserver.verbs.all import every_verb
from transports.errors import CodedError

DOC = ROOT / "doc"
BUILT = DOC / "built"
PAGES = pages()

LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)|!\[[^\]\n]*\]\(([^)\s]+)\)|^\[[^\]\n]+\]:\s*(\S+)", re.MULTILINE)
FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2\s*$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`[^`\n]*`")


def documents() -> list[Path]:
    """Return every page that a reader of the repository meets."""
    pages = [page for page in sorted(DOC.rglob("*.md")) if BUILT not in page.parents]
    return [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *pages]


def anchors(text: str) -> set[str]:
    """Return the anchors of a page: its headings, in the form that the web shows."""
    headings = re.findall(r"^#+ (.+?)\s*$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def targets(text: str) -> list[str]:
    """Return the targets of a page's links, without those in code."""
    prose = SPAN.sub("", FENCE.sub("", text))
    return [next(filter(None, found)) for found in LINK.findall(prose)]


def broken(page: Path, text: str) -> list[str]:
    """Return the links of a page that lead nowhere in the repository."""
    wrong = []
    for target in targets(text):
        if re.match(r"[a-z][a-z+.-]*:", target):
            continue
        name, _, place = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if name and not (path.is_relative_to(ROOT) and path.exists()):
            wrong.append(f"{page.name}: {target}")
        elif place and path.suffix == ".md":
            there = text if path == page else path.read_text(encoding="utf-8")
            if place not in anchors(there):
                wrong.append(f"{page.name}: {target}: no such heading")
    return wrong


def test_every_verb_error_and_command_has_its_place() -> None:
    for verb in every_verb():
        assert f"\n## {verb.name}\n" in PAGES["verbs.md"]
    for code in CodedError.by_code:
        assert f"\n| `{code}` |" in PAGES["errors.md"]
    for name in COMMANDS:
        assert (f"\n## smartserver {name}\n" in PAGES["cli.md"]) == (name not in ("docs", "break-lock")), name


def test_the_page_of_the_architecture_names_what_is_there() -> None:
    text = (DOC / "architecture.md").read_text(encoding="utf-8")
    tops = "|".join(each.name for each in (ROOT / "smartserver").iterdir() if each.is_dir())
    names = set(re.findall(rf"`((?:{tops}|transports|tests|native)/[a-z_/]+)(?:\.\w+)?`", text))
    assert len(names) > 60
    absent = {name for name in names if not any(list(top.glob(f"{name}*")) for top in (ROOT, ROOT / "smartserver"))}
    assert not absent


@pytest.mark.parametrize("page", documents(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page, page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", sorted(name for name in PAGES if name.endswith(".md")))
def test_links_of_a_generated_page_lead_somewhere(name: str) -> None:
    assert broken(BUILT / name, PAGES[name]) == []
