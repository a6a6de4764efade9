"""trace.bans.every, trace.bans.rule, trace.bans.model: what rules may be asked for, and what is said of those that are
none.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from banned_talk import vfs_verbs

from smartserver.trace.bans.every import bans, of_calls
from smartserver.trace.bans.rule import BadRule, Rule
from smartserver.verbs.declare import VERBS
from smartserver.verbs.server_ping import PingRequest


@pytest.fixture(autouse=True)
def _verbs() -> Iterator[None]:
    with vfs_verbs():
        yield


def said(text: str) -> str:
    with pytest.raises(BadRule) as caught:
        bans([text])
    message = str(caught.value)
    assert message.startswith((f"no such rule: {text!r}", f"the rule {text!r} matches no verb"))
    assert "; a rule is SIDE:VERB[:PATH] with a SIDE of vfs, rpc, *" in message
    return message


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("rpc:Repository.pak", "rpc:Repository.pack"),
        ("rpc:repository.pack", "rpc:Repository.pack"),
        ("vfs:Repository.pack", "rpc:Repository.pack"),
        ("vfs:Repository.*", "rpc:Repository"),
        ("vfs:mv", ""),
        ("vfs", "vfs:*"),
        ("vsf:*", "vfs:*"),
        ("Repository.pack", "rpc:Repository.pack"),
        ("pack", "rpc:Repository.pack"),
        ("duplicates", "duplicate"),
        ("sily", "silly"),
        ("", ""),
        (":", ""),
        ("vfs:", "vfs:*"),
        ("vfs:put:", "vfs:put"),
        ("lock.*", ""),
        ("rpc:[", ""),
    ],
)
def test_one_that_would_ban_nothing_names_those_near_it(text: str, near: str) -> None:
    message = said(text)
    assert f"{near}" in message.partition("; a rule is")[0]
    assert ("; near it: " in message) or not near


def test_a_server_bans_by_name_alone() -> None:
    (rule,) = of_calls(["vfs:*:*/log/*"])
    assert rule.text == "vfs:*:*/log/*"
    by_name = r"; a server bans calls by name \(SIDE:VERB\[:PATH\]\)$"
    for name, what in (("per-item", "is a behaviour"), ("silly", "are behaviours")):
        with pytest.raises(BadRule, match=f"^'{name}' {what} of a client, which bans by -Dhpss-ban={name}{by_name}"):
            of_calls(["rpc:*", name])


@pytest.mark.parametrize(
    ("rule", "path", "bans_it"),
    [
        ("*:*", "", True),
        ("*:*:/", "", True),
        ("*:*:/team/*", "team/project", True),
        ("*:*:team/*", "/team//project/", True),
        ("*:*:team", "team/project", False),
        ("*:*:*project", "team/project", True),
        ("*:*:[st]eam/?*", "team/project", False),
        ("*:*:/[st]eam/?*", "team/project", True),
        ("rpc:Server.p*", "x", True),
        ("vfs:*", "x", False),
    ],
)
def test_a_path_is_one_from_the_root(rule: str, path: str, bans_it: bool) -> None:
    assert Rule(rule).banned(path, [(VERBS["Server.ping"], PingRequest())]) == ("Server.ping" if bans_it else "")
