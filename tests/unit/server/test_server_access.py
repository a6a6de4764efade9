"""server.access, rules, patterns: who may do what, what an access file gives, and what makes it unusable."""

from __future__ import annotations

import pytest
from builders import MAIN
from dialogs import Dialog, Served, message

from smartserver.errors import AccessDenied
from smartserver.server.access import EVERYTHING, Anonymous, FixedAccess, anonymous, on_streams
from smartserver.server.patterns import NamePattern, check_pattern, folded
from smartserver.server.rules import AccessRules
from smartserver.server.watched import UnusableFile
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.declare import Permission
from smartserver.wire.messages import Failure

READ, WRITE, CREATE, FORCE, DELETE, VFS, ADMIN = Permission


@pytest.mark.parametrize(
    ("policy", "local", "given"),
    [
        (Anonymous.NONE, True, set()),
        (Anonymous.NONE, False, set()),
        (Anonymous.READ, True, {READ, VFS}),
        (Anonymous.READ, False, {READ}),
        (Anonymous.WRITE, True, {READ, WRITE, CREATE, FORCE, DELETE, VFS, ADMIN}),
        (Anonymous.WRITE, False, {READ, WRITE, CREATE}),
    ],
)
def test_users_without_a_name(policy: Anonymous, local: bool, given: set[Permission]) -> None:
    access = anonymous(policy, local=local)
    assert access.user == "anonymous"
    for permission in Permission:
        if permission in given:
            access.require(permission, "project")
            access.require(permission, "project", b"refs/heads/main")
        else:
            with pytest.raises(AccessDenied):
                access.require(permission, "project")
    # A refusal tells the user what to do.
    assert bool(access.why) is (given != EVERYTHING)


@pytest.mark.parametrize(
    ("policy", "given"),
    [
        (None, EVERYTHING),
        (Anonymous.NONE, set()),
        (Anonymous.READ, {READ}),
        (Anonymous.WRITE, {READ, WRITE, CREATE}),
    ],
)
def test_a_policy_means_the_same_on_streams(policy: Anonymous | None, given: set[Permission]) -> None:
    """It means the same as for a client on another machine, which the other end of a pipe may be on."""
    access = on_streams("jane", policy)
    assert (access.user, access.permissions) == ("jane", given)
    if policy is not None:
        assert access.permissions == anonymous(policy, local=False).permissions
        with pytest.raises(AccessDenied, match="--anonymous"):
            access.require(FORCE, "project")


@pytest.mark.parametrize(
    ("ref", "what"), [(b"", "force"), (b"refs/heads/main", "force refs/heads/main"), (b"a\xff", "force a\\xff")]
)
def test_a_refusal_says_what_and_why(ref: bytes, what: str) -> None:
    with pytest.raises(AccessDenied) as denied:
        FixedAccess("jane", frozenset({READ}), "the test says so").require(FORCE, "project", ref)
    assert (denied.value.what, denied.value.why) == (what, "the test says so")


@pytest.mark.parametrize(
    ("given", "told"),
    [({WRITE}, "access-denied"), ({READ}, "access-denied"), ({READ, WRITE}, "diverged")],
    ids=["write", "read", "read and write"],
)
def test_the_state_comes_with_a_refusal_for_who_may_read(given: set[Permission], told: str) -> None:
    """A user who may only write is told nothing of what there is: neither why a push would fail, nor any ref."""
    served = Served()
    line = served.history.line(2)
    side = served.history.line(1, line[0], "side")
    served.push([*line, *side], {MAIN: line[1], b"refs/heads/secret": side[0]})
    dialog = Dialog(served.site, FixedAccess("jane", frozenset(given), "the test says so"))
    answer = dialog.ask(message((branch_set_last_revision, SetLastRevisionRequest(MAIN, side[0]))))
    assert isinstance(answer, Failure)
    assert answer.fault.code == told
    assert (answer.state is not None) is (READ in given)
    assert served.refs()[MAIN] == line[1]


TEAM = b"""
[groups]
core = ["anna", "ben"]

[[rules]]
who = ["mallory"]
path = "**"
may = "none"

[[rules]]
who = ["ci"]
path = "project/**"
refs = ["refs/tags/*", "trunk:tags/build-*"]
may = "create"

[[rules]]
who = ["@core"]
path = "project/**"
refs = ["refs/heads/main"]
may = "write"

[[rules]]
who = ["@core"]
path = "project/**"
may = "force"

[[rules]]
who = ["anna"]
path = "*/private"
may = "admin"

[[rules]]
who = ["*"]
path = "project/secret"
may = "none"

[[rules]]
who = ["*"]
path = "project/**"
may = "read"
"""


def rule(may: str, path: str = "**", who: str = "joe", refs: str = "") -> bytes:
    return f"[[rules]]\nwho = [{who!r}]\npath = {path!r}\n{refs}\nmay = {may!r}\n".encode()


@pytest.mark.parametrize(
    ("user", "permission", "path", "ref", "given"),
    [
        ("anna", READ, "project", b"", True),
        ("anna", READ, "other", b"", False),
        ("anna", CREATE, "project/new", b"", True),
        ("anna", DELETE, "project", b"", False),
        ("anna", ADMIN, "project", b"", False),
        ("anna", WRITE, "project", MAIN, True),
        ("anna", FORCE, "project", MAIN, False),
        ("anna", DELETE, "project", MAIN, False),
        ("anna", FORCE, "project", b"refs/heads/topic", True),
        ("anna", DELETE, "project", b"refs/heads/topic", True),
        ("anna", ADMIN, "of/private", b"", True),
        ("anna", VFS, "of/private", b"", True),
        ("ben", ADMIN, "of/private", b"", False),
        ("ci", WRITE, "project", b"", True),
        ("ci", CREATE, "project", b"", False),
        ("ci", CREATE, "project", b"refs/tags/v1", True),
        ("ci", WRITE, "project", MAIN, False),
        ("ci", CREATE, "project", b"trunk\0tags/build-7", True),
        ("ci", CREATE, "project", b"trunk\0tags/other", False),
        ("mallory", READ, "project", b"", False),
        ("anonymous", READ, "project/www", b"", True),
        ("anonymous", WRITE, "project/www", b"", False),
        ("anonymous", READ, "project/secret", b"", False),
        ("anonymous", READ, "Project/www", b"", False),
    ],
)
def test_the_first_rule_that_fits_decides(
    user: str, permission: Permission, path: str, ref: bytes, given: bool
) -> None:
    assert AccessRules(TEAM).gives(user, permission, path, ref) is given


@pytest.mark.parametrize("path", ["project/SECRET", "project/\u017fecret", "PROJECT/secret"])
def test_another_spelling_that_a_file_system_takes_for_the_same_gives_nothing_more(path: str) -> None:
    assert not AccessRules(TEAM).gives("joe", READ, path)


def test_a_ref_in_upper_case_is_no_way_around_a_rule() -> None:
    rules = AccessRules(rule("none", refs="refs = ['refs/heads/main']") + rule("force"))
    assert not rules.gives("joe", WRITE, "p", MAIN)
    assert not rules.gives("joe", CREATE, "p", b"refs/heads/MAIN")
    assert rules.gives("joe", FORCE, "p", b"refs/heads/other")


@pytest.mark.parametrize(
    ("pattern", "given", "not_given"),
    [
        ("trunk", [b"trunk", b"trunk\0tags/v1"], [b"trunk:x", b"trunk:x\0tags/v1", b"\0bookmarks/x"]),
        ("trunk:", [b"trunk"], [b"trunk\0tags/v1", b"trunk:"]),
        ("trunk:tags/v*", [b"trunk\0tags/v1"], [b"trunk", b"trunk:tags/v1", b"trunk:tags/v\0tags/v", b"trunk\0tags/x"]),
        ("trunk:**", [b"trunk\0tags/v1", b"trunk\0config/"], [b"trunk", b"trunk:x"]),
        ("*:tags/v:1", [b"trunk\0tags/v:1"], [b"trunk\0tags/v1", b"trunk"]),
        ("trunk:x", [b"trunk:x", b"trunk:x\0tags/v1"], [b"trunk", b"trunk\0tags/x"]),
        ("**", [b"trunk", b"trunk:x", b"trunk\0tags/v1", b"\0bookmarks/x"], []),
        ("**/v*:", [b"a/v1"], [b"a", b"a\0tags/v1", b"a/v1\0tags/v1", b"\0bookmarks/v1"]),
        (":**", [b"\0bookmarks/x"], [b"a", b"a\0tags/v1"]),
        ("*", [b"trunk", b"trunk:x", b"trunk\0tags/v1"], [b"a/b", b"\0bookmarks/x"]),
        (":bookmarks/*", [b"\0bookmarks/x"], [b"bookmarks/x", b"trunk\0bookmarks/x", b"\0public/x"]),
        ("public/**:", [b"public/site", b"public"], [b"\0public/site", b"public/site\0tags/v1"]),
        ("tags/**", [b"tags/a", b"tags/a\0tags/v1"], [b"trunk\0tags/a"]),
        (".", [b".", b".\0tags/v1"], [b"trunk", b"other\0tags/v1"]),
        (".:tags/v*", [b".\0tags/v1"], [b".", b"trunk\0tags/v1"]),
    ],
)  # fmt: skip
def test_a_ref_and_an_entry_are_never_one_name(pattern: str, given: list[bytes], not_given: list[bytes]) -> None:
    rules = AccessRules(rule("force", refs=f"refs = [{pattern!r}]") + rule("read"))
    assert [name for name in given if not rules.gives("joe", FORCE, "p", name)] == []
    assert [name for name in not_given if rules.gives("joe", FORCE, "p", name)] == []


@pytest.mark.parametrize("pattern", ["bookmarks/x", "public/**", "Signatures/*", "*/*", "**/x", "book*/x"])
def test_a_pattern_that_meant_refs_and_entries_is_refused_with_the_spellings(pattern: str) -> None:
    with pytest.raises(UnusableFile) as wrong:
        AccessRules(rule("read") + rule("none", refs=f"refs = [{pattern!r}]"))
    said = f"rule 2: refs = {pattern!r} may mean refs or entries: write {pattern + ':'!r} for refs of such names"
    assert str(wrong.value).startswith(f"{said}, {pattern + ':**'!r} for the entries that belong to them, or")
    assert str(wrong.value).endswith(f"or {':' + pattern!r} for entries that belong to no ref")
    AccessRules(rule("none", refs=f"refs = [{pattern + ':'!r}, {':' + pattern!r}]"))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no rules"),
        (b"[groups]\na = ['b']\n", "no rules"),
        (b"[[rules]\n", "line 1"),
        (b"\xff", "utf-8"),
        (b"[[rules]]\nwho = ['a']\npath = 'p'\n", "missing required field `may`"),
        (b"[[rules]]\nwho = ['a']\npath = 'p'\nmay = 'read'\nref = ['x']\n", "unknown field `ref`"),
        (b"[[rules]]\nwho = 'a'\npath = 'p'\nmay = 'read'\n", "rule 1.who"),
        (b"[[rules]]\nmay = 'read'\nwho = ['a']\npath = 'p'\n", "rule 1: `may` must be its last line"),
        (rule("read") + rule("all"), "rule 2: may = 'all': expected none, read, write"),
        (rule("read", refs="refs = ['x']"), "may = 'read' allows none"),
        (rule("delete", refs="refs = ['x']"), "is about the whole repository"),
        (rule("write", refs="refs = []"), "`refs` is empty"),
        (b"[[rules]]\nwho = []\npath = 'p'\nmay = 'read'\n", "`who` is empty"),
        (rule("read", who="@core"), "there is no group 'core'"),
        (rule("read", who="a b"), "who = 'a b'"),
        (rule("read", "/p"), "a slash at its start"),
        (b"[groups]\na = ['@b']\n" + rule("read"), "'@b' is not a valid name"),
    ],
)
def test_a_file_that_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(UnusableFile) as wrong:
        AccessRules(content)
    assert why in str(wrong.value)


def test_no_part_of_a_file_gives_more_than_the_whole() -> None:
    """An editor may have written that much when the server reads it."""
    whole = AccessRules(TEAM)
    asked = [
        (user, permission, path, ref)
        for user in ("anna", "ci", "joe")
        for permission in (READ, WRITE, CREATE, FORCE, ADMIN)
        for path in ("project", "project/secret", "of/private")
        for ref in ((b"", MAIN, b"refs/tags/v1") if permission in (WRITE, FORCE) else (b"",))
    ]
    given = {each for each in asked if whole.gives(*each)}
    usable = 0
    for length in range(len(TEAM)):
        try:
            part = AccessRules(TEAM[:length])
        except UnusableFile:
            continue
        usable += 1
        # A user whom no earlier rule refuses is read by a rule that is not there yet, or not at all.
        assert {each for each in asked if part.gives(*each)} <= given, TEAM[:length]
    assert usable


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("project", "project", True),
        ("project", "projects", False),
        ("project/**", "project", True),
        ("project/**", "project/www/inner", True),
        ("project/**", "projects", False),
        ("*/www", "project/www", True),
        ("*/www", "project/a/www", False),
        ("**/www", "project/a/www", True),
        ("a.b+(c)", "a.b+(c)", True),
        ("a.b+(c)", "axbb(c)", False),
        ("", "", True),
        ("", "a", False),
        ("**", "a\nb", True),
    ],
)
def test_what_a_pattern_matches(pattern: str, name: str, fits: bool) -> None:
    assert NamePattern(pattern).matches(name, folds=False) is fits


@pytest.mark.parametrize(("first", "second"), [("SECRET", "secret"), ("\u017fecret", "secret"), ("e\u0301", "\u00c9")])
def test_spellings_of_one_name(first: str, second: str) -> None:
    assert folded(first) == folded(second)
    assert NamePattern(first).matches(folded(second), folds=True)
    assert not NamePattern(first).matches(second, folds=False)


@pytest.mark.parametrize(
    ("patterns", "why"),
    [
        (["/a", "a/", "a//b"], "a slash at its start or end, or two together"),
        (["a/../b", "."], "'.' and '..' are in no path or ref"),
        (["a/x**"], "`**` must stand alone between slashes"),
        (["e\u0301"], "it is not in Unicode form NFC"),
    ],
)
def test_patterns_that_are_refused(patterns: list[str], why: str) -> None:
    for pattern in patterns:
        with pytest.raises(UnusableFile) as wrong:
            check_pattern("path", pattern)
        assert str(wrong.value).startswith(f"path = {pattern!r}: {why}")


def test_patterns_that_are_not_refused() -> None:
    for key, pattern in (("path", ""), ("path", "a/*/b"), ("refs", ".")):
        check_pattern(key, pattern)
