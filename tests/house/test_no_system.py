"""The protocol, the store and both ends know no version-control system: no word of one is in them, comments included.

What is known of one is in its package below `smartserver/vcs`, in the adapters of its tools and in the commands.
"""

from __future__ import annotations

import re

from sources import ROOT, sources

NEUTRAL = ("wire", "records", "store", "verbs", "server", "client")

SYSTEM = re.compile(
    r"(?<![a-z])(?:git|bzr|brz|bazaar|breezy|hg|mercurial|revno|inventor|left[-_ ]?hand|mainline)", re.IGNORECASE
)
"""The names of systems, and words of theirs for what is not in others."""

TELLS_OTHERS_APART = {
    "smartserver/wire/frames.py": "names the protocol of a peer that speaks another one, from HTTP to TLS",
    "smartserver/store/format.py": "names the tool whose folder this is: nothing is made inside it",
}
"""Files with words of systems that are no client's and no repository's of ours, and why."""


def words(text: str) -> list[str]:
    """Each line with such a word, and its number."""
    return [f"{number}: {line.strip()}" for number, line in enumerate(text.splitlines(), 1) if SYSTEM.search(line)]


def found() -> dict[str, list[str]]:
    """The lines of each neutral file."""
    files = [source.path for source in sources(*[f"smartserver/{package}" for package in NEUTRAL])]
    lines = {path: words((ROOT / path).read_text(encoding="utf-8")) for path in files}
    return {path: each for path, each in lines.items() if each or SYSTEM.search(path)}


def test_no_word_of_a_system() -> None:
    wrong = {path: lines for path, lines in found().items() if path not in TELLS_OTHERS_APART}
    assert not wrong, "\n" + "\n".join(f"{path}:{line}" for path, lines in wrong.items() for line in lines or ["0"])


def test_every_exception_is_used() -> None:
    assert found().keys() >= TELLS_OTHERS_APART.keys()
