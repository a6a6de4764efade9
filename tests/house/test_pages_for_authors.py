"""CONTRIBUTING.md and the pages `add_a_*` name what is there, and the example of a verb keeps the rules."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from sources import PACKAGES, ROOT, parse, sources
from test_docs_in_step import FENCE
from test_layers import wrong_imports
from test_no_system import words
from test_words import forbidden

from smartserver.records.system import System

PAGES = {
    name: (ROOT / name).read_text(encoding="utf-8")
    for name in ("CONTRIBUTING.md", "doc/howto/add_a_verb.md", "doc/howto/add_a_transport.md")
}
PAGE, VERB, _ = PAGES.values()

FOLLOWS = {"content_keys"}
"""A member of `System` that follows from `kinds`."""


def spans(text: str) -> list[str]:
    """What is written as code within lines."""
    return re.findall(r"`([^`\n]+)`", FENCE.sub("", text))


def paths(text: str) -> set[str]:
    """The paths among them, and in commands the paths of tests; any name for `<name>`."""
    found = [word for span in spans(text) if "(" not in span for word in re.findall(r"[^\s\"=]+", span)]
    found = [re.sub("<.*?>", "*", word) for word in found if "//" not in word and not word.startswith("~")]
    return {word.rstrip("/") for word in found if "/" in word or re.search(r"\.(md|py|toml)$", word)}


def exists(path: str) -> bool:
    """Whether there is such a path, in the project or in a folder that a row or a sentence names."""
    below = [*PACKAGES, "tests", "doc"]
    return any(ROOT.glob(path)) or any(True for folder in below for _ in (ROOT / folder).rglob(path))


@pytest.mark.parametrize("page", PAGES)
def test_every_path_is_there(page: str) -> None:
    assert [path for path in sorted(paths(PAGES[page])) if not exists(path)] == []


def test_every_constant_is_there() -> None:
    texts = [(ROOT / source.path).read_text(encoding="utf-8") for source in sources(*PACKAGES, "tests")]
    named = {span for span in spans(PAGE) if re.fullmatch("[A-Z_]{3,}", span)}
    assert {"PEERS", "FOR_TCP"} <= named
    assert [name for name in named if not any(re.search(rf"^{name}\b.*=", text, re.MULTILINE) for text in texts)] == []


def test_the_members_of_a_system() -> None:
    table = PAGE.partition("| the system says | members |")[2].partition("\n\n")[0]
    told = [name for row in table.splitlines()[2:] for name in spans(row.split("|")[2])]
    members = {name for name in {*vars(System), *System.__annotations__} if not name.startswith("_")}
    assert sorted(told) == sorted(members - FOLLOWS)


def test_the_verb_of_the_example_is_one_of_the_house() -> None:
    """It can be declared too, in a process of its own."""
    (text,) = re.findall(r"^```python\n(.*?)^```", VERB, re.MULTILINE | re.DOTALL)
    source = parse("smartserver/verbs/branch_tip.py", text)
    assert words(text) + forbidden(source) + wrong_imports(source) == []
    subprocess.run([sys.executable, "-c", text], check=True, cwd=ROOT)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`smartserver/cli` and `main.py`, `hpss://x/y` `make test` `~/a/b`", {"smartserver/cli", "main.py"}),
        ("`tests/unit/<a>_<b>/` `client.call`", {"tests/unit/*_*"}),
        ('`make check ARGS="tests/house tests/unit"`', {"tests/house", "tests/unit"}),
        ("```\n`a/b`\n```\n", set()),
    ],
)
def test_what_a_path_is(text: str, found: set[str]) -> None:
    assert paths(text) == found
    assert exists("smartserver/cli")
    assert exists("bans/*.py")
    assert not exists("smartserver/absent.py")
