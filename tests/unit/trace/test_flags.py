"""trace.flags: which words are flags, which are rules, which name a file, and which are none of these."""

from __future__ import annotations

import pytest

from smartserver.trace.flags import BadFlag, Flags, read


@pytest.mark.parametrize(
    ("given", "words", "rules", "file"),
    [
        ([""], set(), (), ""),
        (["other,hpss"], {"other", "hpss"}, (), ""),
        (["hpss-ban=vfs:*,rpc:Server.ping"], set(), ("vfs:*", "rpc:Server.ping"), ""),
        (
            ["hpss,hpss-ban=vfs:*,silly,hpss,other,hpss-ban=reopen"],
            {"hpss", "other"},
            ("vfs:*", "silly", "reopen"),
            "",
        ),
        (["hpss-ban="], set(), ("",), ""),
        (["hpss-ban=silly,hpss-json=/a/b", "hpssvfs"], {"hpssvfs"}, ("silly",), "/a/b"),
    ],
)
def test_flags_and_rules(given: list[str], words: set[str], rules: tuple[str, ...], file: str) -> None:
    assert read(given) == Flags(frozenset(words), rules, file)


def test_a_file_below_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """No shell reads a setting such as `hpss.debug`."""
    monkeypatch.setenv("HOME", "/home/me")
    assert read(["hpss-json=~/trace"]).file == "/home/me/trace"


def test_they_are_told_to_a_server_that_is_started() -> None:
    given = ["hpss-ban=vfs:*,silly", "hpssvfs,hpss,hpss-json=/a b"]
    assert read(given).told() == ["hpss", "hpssvfs", "hpss-ban=vfs:*,silly", "hpss-json=/a b"]
    assert read(read(given).told()) == read(given)


@pytest.mark.parametrize("flags", ["", "hpss", "hpssvfs,hpss-ban=silly,vfs:*,hpssdetail", "hpss,", "hpss-ban=nonsense"])
def test_what_is_known(flags: str) -> None:
    """A rule is checked where it is made."""
    read([flags]).check("it")


@pytest.mark.parametrize(
    ("flags", "unknown"),
    [("1", "1"), ("hpss,x", "x"), ("hpss-ban=silly,hpssx,y", "hpssx"), ("hpss, hpssvfs", " hpssvfs")],
)
def test_what_is_not(flags: str, unknown: str) -> None:
    with pytest.raises(BadFlag) as caught:
        read([flags]).check("SMARTSERVER_DEBUG")
    assert str(caught.value) == (
        f"no such debug flag in SMARTSERVER_DEBUG: {unknown!r} "
        "(there are hpss, hpssdetail, hpssvfs, hpssbytes, hpss-json=FILE and hpss-ban=RULE[,RULE])"
    )
