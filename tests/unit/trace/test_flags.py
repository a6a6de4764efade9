"""trace.flags: which words of SMARTSERVER_DEBUG are flags, which are rules, and which are neither."""

from __future__ import annotations

import pytest

from smartserver.trace.flags import BadFlag, check, parted


@pytest.mark.parametrize(
    ("flags", "words", "rules"),
    [
        ("", [""], []),
        ("hpss", ["hpss"], []),
        ("other,hpss", ["other", "hpss"], []),
        ("hpss-ban=silly", [], ["silly"]),
        ("hpss-ban=vfs:*,rpc:Server.ping", [], ["vfs:*", "rpc:Server.ping"]),
        (
            "hpss,hpss-ban=vfs:*,silly,hpss,other,hpss-ban=reopen",
            ["hpss", "hpss", "other"],
            ["vfs:*", "silly", "reopen"],
        ),
        ("hpss-ban=", [], [""]),
    ],
)
def test_flags_and_rules(flags: str, words: list[str], rules: list[str]) -> None:
    assert parted(flags) == (words, rules)


@pytest.mark.parametrize("flags", ["", "hpss", "hpssvfs,hpss-ban=silly,vfs:*,hpssdetail", "hpss,", "hpss-ban=nonsense"])
def test_what_is_known(flags: str) -> None:
    """Whether a rule is one is looked at where it is made."""
    check(flags, "it")


@pytest.mark.parametrize(
    ("flags", "unknown"),
    [("1", "1"), ("hpss,x", "x"), ("hpss-ban=silly,hpssx,y", "hpssx"), ("hpss, hpssvfs", " hpssvfs")],
)
def test_what_is_not(flags: str, unknown: str) -> None:
    with pytest.raises(BadFlag) as caught:
        check(flags, "SMARTSERVER_DEBUG")
    assert str(caught.value) == (
        f"no such debug flag in SMARTSERVER_DEBUG: {unknown!r} "
        "(there are hpss, hpssdetail, hpssvfs and hpss-ban=RULE[,RULE])"
    )
