"""smartserver.cli.hgrc: which file hg reads as the user's, and what one changed item leaves as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from smartserver.cli.errors import CommandError
from smartserver.cli.hgrc import location, with_item


@pytest.mark.parametrize(
    ("there", "variables", "expected"),
    [
        ([], {}, ".hgrc"),
        ([".config/hg/hgrc"], {}, ".config/hg/hgrc"),
        ([".config/hg/hgrc", ".hgrc"], {}, ".hgrc"),
        (["settings/hg/hgrc"], {"XDG_CONFIG_HOME": "{home}/settings"}, "settings/hg/hgrc"),
        ([".config/hg/hgrc"], {"XDG_CONFIG_HOME": "not/absolute"}, ".config/hg/hgrc"),
        ([".hgrc"], {"HGRCPATH": "{home}/own"}, "own"),
        ([], {"HGRCPATH": ":{home}/own:{home}/.hgrc"}, "own"),
        (["rcs/a.rc"], {"HGRCPATH": "{home}/rcs"}, "rcs/hpss.rc"),
    ],
)
def test_the_users_file(tmp_path: Path, there: list[str], variables: dict[str, str], expected: str) -> None:
    for name in there:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    given = {name: value.format(home=tmp_path) for name, value in variables.items()}
    assert location({"HOME": str(tmp_path), **given}) == tmp_path / expected


def test_a_user_without_a_file(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="HGRCPATH is empty"):
        location({"HOME": str(tmp_path), "HGRCPATH": ""})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "[extensions]\nhpss = x\n"),
        ("[ui]\nusername = A", "[ui]\nusername = A\n\n[extensions]\nhpss = x\n"),
        ("[extensions]\nhpss = x\n", "[extensions]\nhpss = x\n"),
        ("[extensions]\nhpss=\n", "[extensions]\nhpss = x\n"),
        ("[extensions]\nhpss = !\nrebase =\n", "[extensions]\nhpss = x\nrebase =\n"),
        ("[extensions]\nhpss = y\n  z\n# c\n # w\n[ui]\n", "[extensions]\nhpss = x\n# c\n[ui]\n"),
        ("[extensions]\n# c\nrebase =\n\n[ui]\n", "[extensions]\n# c\nrebase =\nhpss = x\n\n[ui]\n"),
        ("[extensions]\nrebase =", "[extensions]\nrebase =\nhpss = x\n"),
        ("[ui]\nhpss = 1\n", "[ui]\nhpss = 1\n\n[extensions]\nhpss = x\n"),
        (
            "[extensions]\nhpss = 1\n[ui]\n[extensions]\nhpss = 2\n",
            "[extensions]\nhpss = 1\n[ui]\n[extensions]\nhpss = x\n",
        ),
        ("[extensions]\nhpss2 = 1\nhpss.sub = 2\n", "[extensions]\nhpss2 = 1\nhpss.sub = 2\nhpss = x\n"),
    ],
)
def test_one_item(before: str, after: str) -> None:
    assert with_item(before, "extensions", "hpss", "x") == after


def test_a_value_of_two_lines_is_refused() -> None:
    with pytest.raises(CommandError, match="cannot have a newline"):
        with_item("", "hpss", "path", "/a\n[hooks]")


def test_an_empty_value() -> None:
    assert with_item("[extensions]\n", "extensions", "hpss", "") == "[extensions]\nhpss =\n"
