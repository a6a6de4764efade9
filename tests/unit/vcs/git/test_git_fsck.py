"""vcs.git.fsck: the faults of objects, compared with what `git fsck --strict` says of the same objects.

vcs.git.fsck_modules: `.gitmodules` as git reads it."""

from __future__ import annotations

import re
import subprocess
from binascii import hexlify, unhexlify
from collections.abc import Iterator
from pathlib import Path
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

import pytest
from calls import calls_of

from smartserver.records.faults import RecordRole
from smartserver.records.model import Record
from smartserver.records.system import system_of
from smartserver.vcs.git import fsck as fsck_git
from smartserver.vcs.git import fsck_modules
from smartserver.vcs.git.format import BLOB, COMMIT, FORMATS, TAG, TREE, ObjectFormat
from smartserver.vcs.git.fsck import FAULTS, MAX_ATTRIBUTE_LINE, MAX_GITMODULES
from smartserver.vcs.git.fsck_modules import STEP_BYTES, BadConfig, has_no_fault, submodule_settings
from smartserver.vcs.git.system import git_key

GIT = system_of("git sha1").faults
SHA1 = FORMATS["sha1"]
FILE = git_key("git-sha1", BLOB, b"text")
FOLDER = git_key("git-sha1", TREE, b"")
OLD_CASES = b"author A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n"
NAMES = {BLOB: "blob", TREE: "tree", COMMIT: "commit", TAG: "tag"}


def entry(mode: bytes, name: bytes, key: bytes = FILE) -> bytes:
    return mode + b" " + name + b"\0" + key


def file(name: bytes) -> bytes:
    return entry(b"100644", name)


def commit(rest: bytes) -> bytes:
    return b"tree " + hexlify(FOLDER) + b"\n" + rest


def by(author: bytes) -> bytes:
    return commit(b"author " + author + b"\ncommitter A <a@b> 1 +0000\n\nm\n")


def tag(rest: bytes) -> bytes:
    return b"object " + hexlify(FOLDER) + b"\ntype tree\n" + rest


TREES = {
    "clean": file(b".gitignore") + entry(b"100755", b"a") + entry(b"40000", b"b", FOLDER) + entry(b"120000", b"c"),
    "empty": b"",
    "a folder is sorted with its slash": file(b"a-b") + file(b"a.c") + entry(b"40000", b"a", FOLDER) + file(b"a0"),
    "a folder is sorted as a file": entry(b"40000", b"a", FOLDER) + file(b"a.c"),
    "not sorted": file(b"b") + file(b"a"),
    "twice": file(b"a") + file(b"a"),
    "a file and a folder": file(b"a") + entry(b"40000", b"a", FOLDER),
    "a file and a folder, apart": file(b"a") + file(b"a.c") + entry(b"40000", b"a", FOLDER),
    "dot": file(b"."),
    "dotdot": entry(b"40000", b"..", FOLDER),
    "dots": file(b"...") + file(b"..a"),
    "slash": file(b"a/b"),
    "leading slash": file(b"/a"),
    "null": entry(b"100644", b"a", bytes(20)),
    "null submodule": entry(b"160000", b"a", bytes(20)),
    "padded": entry(b"040000", b"a", FOLDER),
    **{
        f"a folder of the mode {mode!r} is sorted as one": entry(mode, b"a", FOLDER) + file(b"a.c")
        for mode in (b"040000", b"40755")
    },
    "odd mode": entry(b"100600", b"a") + entry(b"40755", b"b", FOLDER),
    "link to ignore": entry(b"120000", b".gitignore"),
    "link to mailmap": entry(b"120000", b".mailmap"),
    "link to attributes": entry(b"120000", b".gitattributes"),
    "link to modules": entry(b"120000", b".gitmodules"),
    "NTFS link to modules": entry(b"120000", b"GITMOD~1 ."),
    "high bytes": file(b"\xc3\xa9") + file(b"\xe2\x82\xac") + file(b"\xff"),
}
DOTGITS = [
    b".git", b".GIT", b".gIt", b".git ", b".git.", b".git . ", b".git:x", b"git~1", b"GIT~1", b"GIT~1 .", b"git~1:a",
    b"a\\.git", b"a\\git~1\\b", b".git\\x", b".g\xe2\x80\x8cit", b".git\xef\xbb\xbf", b"\xe2\x81\xaf.git", b".git\xff",
    b".git\xe2\x80", b".g\xe2\x80\xaaI\xe2\x80\xaet",
]  # fmt: skip
NO_DOTGITS = [
    b".gitx", b".git-x", b".gi", b"git", b"git~2", b"git~10", b".git~1", b"x.git", b".git\xc3\xa9", b".git\xe2\x80\x90",
    b".g\xffit", b"git~1x", b"..git",
]  # fmt: skip
TREES |= {f"dotgit {name!r}": file(name) for name in (*DOTGITS, *NO_DOTGITS)}
COMMITS = {
    "clean": commit(OLD_CASES + b"\nm\n"),
    "no message": commit(OLD_CASES),
    "no newline": commit(OLD_CASES + b"encoding x"),
    "nul in the message": commit(OLD_CASES + b"\na\0b"),
    "nul in the header": commit(b"author A\0 <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nm"),
    "no author": commit(b"committer A <a@b> 1 +0000\n\nm"),
    "no committer": commit(b"author A <a@b> 1 +0000\n\nm"),
    "nobody": commit(b"\nm"),
    "two authors": commit(b"author B <b@b> 1 +0000\n" + OLD_CASES + b"\nm"),
    "no name": by(b"<a@b> 1 +0000"),
    "a blank name": by(b" <a@b> 1 +0000"),
    "bad name": by(b"A> <a@b> 1 +0000"),
    "no mail": by(b"A 1 +0000"),
    "no blank before the mail": by(b"A<a@b> 1 +0000"),
    "bad mail": by(b"A <a@<b> 1 +0000"),
    "open mail": by(b"A <a@b 1 +0000"),
    "no blank before the date": by(b"A <a@b>1 +0000"),
    "padded date": by(b"A <a@b> 01 +0000"),
    "a date of 0": by(b"A <a@b> 0 +0000"),
    "a huge date": by(b"A <a@b> 18446744073709551614 +0000"),
    "no date": by(b"A <a@b> x +0000"),
    "a date in words": by(b"A <a@b> 1x +0000"),
    "a long zone": by(b"A <a@b> 1 +051800"),
    "a short zone": by(b"A <a@b> 1 +000"),
    "no zone": by(b"A <a@b> 1"),
    "a zone without a sign": by(b"A <a@b> 1 00000"),
}
TAGS = {
    "clean": tag(b"tag v1\ntagger A <a@b> 1 +0000\n\nm\n"),
    "no tagger": tag(b"tag v1\n\nm\n"),
    "bad name": tag(b"tag a..b\ntagger A <a@b> 1 +0000\n\nm\n"),
    "no name": tag(b"tag \ntagger A <a@b> 1 +0000\n\nm\n"),
    "bad tagger": tag(b"tag v1\ntagger A <a@b> 1 +x\n\nm\n"),
    "nul": tag(b"tag v\0\ntagger A <a@b> 1 +0000\n\nm\n"),
}
OBJECTS = [
    *[pytest.param(TREE, text, id=f"tree: {name}") for name, text in TREES.items()],
    *[pytest.param(COMMIT, text, id=f"commit: {name}") for name, text in COMMITS.items()],
    *[pytest.param(TAG, text, id=f"tag: {name}") for name, text in TAGS.items()],
]


def ids(meta: bytes, text: bytes, base: bytes | None = None) -> set[str]:
    return {fault.id for fault in GIT.look(0, meta, text, base)[0]}


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("objects") / "git"
    subprocess.run(["git", "init", "-q", "--bare", folder], check=True)
    for meta, text in ((BLOB, b"text"), (TREE, b"")):
        write(folder, meta, text)
    return folder


def write(folder: Path, meta: bytes, text: bytes) -> str:
    command: list[str | Path] = ["git", "-C", folder, "hash-object", "-w", "--literally", "-t", NAMES[meta], "--stdin"]
    return subprocess.run(command, input=text, capture_output=True, check=True).stdout.decode().strip()


def of_git(folder: Path, *objects: tuple[bytes, bytes]) -> set[str]:
    """The faults that `git fsck --strict` finds in these objects."""
    names = [write(folder, *each) for each in objects]
    done = subprocess.run(
        ["git", "-C", folder, "fsck", "--strict", "--no-dangling", "--no-progress"], capture_output=True, check=False
    )
    said = re.findall(
        r"(?:error|warning) in \w+ ([0-9a-f]+): (\w+): ", (done.stdout + done.stderr).decode("utf-8", "replace")
    )
    for name in names:
        (folder / "objects" / name[:2] / name[2:]).unlink(missing_ok=True)
    for meta, text in ((BLOB, b"text"), (TREE, b"")):
        write(folder, meta, text)
    return {fault for name, fault in said if name in names}


@pytest.mark.parametrize(("meta", "text"), OBJECTS)
def test_the_same_as_git_fsck(repository: Path, meta: bytes, text: bytes) -> None:
    found = ids(meta, text)
    assert found == of_git(repository, (meta, text))
    assert found <= FAULTS.keys()


MODULES = {
    "clean": b'[submodule "lib/x"]\n\tpath = lib/x\n\turl = https://example.org/x\n\tupdate = merge\n',
    "name": b'[submodule "../x"]\n\tpath = x\n',
    "name within": b'[submodule "a/../b"]\n\tpath = x\n',
    "no name": b'[submodule ""]\n\tpath = x\n',
    "name with backslash": b'[submodule "a\\\\..\\\\x"]\n\tpath = x\n',
    "dots in a name": b'[submodule "..x/a..b"]\n\tpath = x\n',
    "option as url": b'[submodule "x"]\n\turl = -x\n',
    "newline in url": b'[submodule "x"]\n\turl = "https://h/\\nx"\n',
    "encoded newline": b'[submodule "x"]\n\turl = git://h/%0ax\n',
    "encoded newline, https": b'[submodule "x"]\n\turl = https://h%0a/x\n',
    "no url": b'[submodule "x"]\n\turl = \n',
    "a user and no host": b'[submodule "x"]\n\turl = https://a:b@/x\n',
    "no host": b'[submodule "x"]\n\turl = https:///x\n',
    "other host": b'[submodule "x"]\n\turl = "../../../:h/x"\n',
    "empty above": b'[submodule "x"]\n\turl = ..//x\n',
    "relative": b'[submodule "x"]\n\turl = ../../x\n',
    "curl": b'[submodule "x"]\n\turl = https::https://h/x\n',
    "ssh": b'[submodule "x"]\n\turl = git@h:x\n',
    "option as path": b'[submodule "x"]\n\tpath = -x\n',
    "option as path, two blanks": b'[submodule "x"]\n\tpath =  -x\n',
    "another command": b'[submodule "x"]\n\tupdate = none!\n',
    "command": b'[submodule "x"]\n\tupdate = !sh\n',
    "no config": b"[submodule",
}


@pytest.mark.parametrize("text", MODULES.values(), ids=MODULES)
def test_gitmodules_as_git_fsck(repository: Path, text: bytes) -> None:
    blob = git_key("git-sha1", BLOB, text)
    tree = entry(b"100644", b".gitmodules", blob)
    faults, roles = GIT.look(0, TREE, tree, None)
    assert not faults
    assert roles == [RecordRole(0, blob, ".gitmodules")]
    found = {fault.id for fault in GIT.role_faults(roles[0], Record(0, blob, BLOB, text))}
    assert found == of_git(repository, (BLOB, text), (TREE, tree))
    assert not (found and fsck_modules.has_no_fault(b'[submodule "x"]\n\tpath = y\n' + text))


@pytest.mark.parametrize(
    ("text", "fault"), [(b"a" * 2047 + b"\n", None), (b"x\n" + b"a" * 2048, "gitattributesLineLength")]
)
def test_gitattributes_as_git_fsck(repository: Path, text: bytes, fault: str | None) -> None:
    blob = git_key("git-sha1", BLOB, text)
    tree = entry(b"100644", b".gitattributes", blob)
    (role,) = GIT.look(0, TREE, tree, None)[1]
    found = {each.id for each in GIT.role_faults(role, Record(0, blob, BLOB, text))}
    assert found == of_git(repository, (BLOB, text), (TREE, tree)) == ({fault} if fault else set())


@pytest.mark.parametrize(
    "name",
    [b".gitmodules", b".GitModules", b".gitmodules. ", b"GITMOD~1", b"gi7eba~1", b"gi7eb~12", b"~1000000",
     b".gitmo\xe2\x80\x8cdules", b"a\\.gitmodules", b".gitmodules\xff"],
)  # fmt: skip
def test_other_spellings_of_gitmodules(repository: Path, name: bytes) -> None:
    text = MODULES["command"]
    blob = git_key("git-sha1", BLOB, text)
    tree = entry(b"100644", name, blob)
    assert GIT.look(0, TREE, tree, None)[1] == [RecordRole(0, blob, ".gitmodules")]
    assert of_git(repository, (BLOB, text), (TREE, tree)) == {"gitmodulesUpdate"}


def test_what_is_no_file_or_too_large() -> None:
    tree = entry(b"40000", b".gitmodules", FOLDER) + entry(b"40000", b".gitattributes", FOLDER)
    roles = GIT.look(0, TREE, tree, None)[1]
    found = [fault.id for role in roles for fault in GIT.role_faults(role, Record(0, FOLDER, TREE, b""))]
    assert found == ["gitmodulesBlob", "gitattributesBlob"]
    large = Record(0, FILE, BLOB, b"#" * (MAX_GITMODULES + 1))
    assert [fault.id for fault in GIT.role_faults(roles[0], large)] == ["gitmodulesLarge"]


def test_a_tree_with_the_names_of_its_base_is_judged_by_what_differs() -> None:
    base = file(b"..") + entry(b"100644", b".gitmodules", FOLDER) + file(b"z")
    assert ids(TREE, base) == {"hasDotdot"}
    other = unhexlify(b"12" * 20)
    faults, roles = GIT.look(0, TREE, base[:-20] + other, base)
    assert (faults, roles) == ([], [])
    faults, roles = GIT.look(0, TREE, base.replace(FOLDER, other), base)
    assert (faults, roles) == ([], [RecordRole(0, other, ".gitmodules")])
    assert ids(TREE, base[:-20] + bytes(20), base) == {"nullSha1"}
    assert ids(TREE, base + file(b"zz"), base) == {"hasDotdot"}


def test_a_mode_of_old_releases_of_git_is_none_to_speak_of() -> None:
    """`git fsck` says so too, unless it is strict."""
    assert ids(TREE, entry(b"100664", b"a")) == set()


def test_sha256() -> None:
    checker = system_of("git sha256").faults
    text = b"100644 .git\0" + b"x" * 32 + b"100644 a\0" + bytes(32)
    assert [fault.id for fault in checker.look(0, TREE, text, None)[0]] == ["hasDotgit", "nullSha1"]


SEARCHED = [
    fsck_git._SUSPECT,
    fsck_git._IGNORED_BY_HFS,
    fsck_git._BAD_TAG_NAME,
    fsck_git._BAD_NAME,
    fsck_git._NEWLINE,
]
"""Expressions that are tried at each byte, apart from those of a name's parts, which begin after a backslash."""


def patterns() -> Iterator[re.Pattern[bytes]]:
    found = [*vars(fsck_git).values(), *vars(fsck_modules).values(), *vars(fsck_git.GitFaults(SHA1)).values()]
    found += [getattr(SHA1, name) for name in vars(ObjectFormat) if not name.startswith("__")]
    found += [pattern for pair in fsck_git._SPECIAL.values() for pattern in pair]
    return (each for each in found if isinstance(each, re.Pattern))


REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)


def endless(parsed: Any) -> Iterator[Any]:
    """Which kinds of repeats without a bound an expression has."""
    pair: Any = parsed if isinstance(parsed, tuple) and len(parsed) == 2 else (None, None)
    op, argument = pair
    if op is _constants.ATOMIC_GROUP and len(argument) == 1 and argument[0][0] is _constants.MAX_REPEAT:
        yield _constants.POSSESSIVE_REPEAT  # As `compiled` writes it.
        parsed = argument[0][1][2]
    elif any(op is each for each in REPEATS):
        if argument[1] is _constants.MAXREPEAT:
            yield op
        parsed = argument[2]
    if isinstance(parsed, (tuple, list, _parser.SubPattern)):
        for each in parsed:
            yield from endless(each)


def test_no_expression_goes_back() -> None:
    """An expression without backtracking reads a byte as often as it has parts, at each place where it is tried."""
    assert set(endless(_parser.parse(rb"a(?!(?:b|c*)d)"))) == {_constants.MAX_REPEAT}
    every = list(patterns())
    assert len(every) > 30
    for pattern in every:
        assert set(endless(_parser.parse(pattern.pattern, pattern.flags))) <= {_constants.POSSESSIVE_REPEAT}, pattern
    for pattern in SEARCHED:
        assert not list(endless(_parser.parse(pattern.pattern, pattern.flags))), pattern
        # Nor a bounded one that is long.
        assert _parser.parse(pattern.pattern, pattern.flags).getwidth()[1] < 20


def test_names_that_spell_out_entries_are_in_order() -> None:
    for name in (b"40000 " * 1000, b"40000 a" * 1000, b"40000 40000 a.c"):
        assert ids(TREE, entry(b"40000", name, FOLDER)) == set()
        assert ids(TREE, entry(b"40000", name, FOLDER) + entry(b"100644", name + b".c")) == {"treeNotSorted"}


@pytest.mark.parametrize(
    "line", [b"a" * 2047 + b"\n", b"\n", b"\n" + b"a" * 2046 + b"\n", b"a" * 1023 + b"\n", b"a" * 1024 + b"\n"]
)
def test_lines_are_measured_in_steps_of_half_a_line(line: bytes) -> None:
    text = line * ((1 << 20) // len(line))
    role = RecordRole(0, FILE, ".gitattributes")
    charged: list[int] = []
    checker = fsck_git.GitFaults(SHA1)
    assert not checker.role_faults(role, Record(0, FILE, BLOB, text), charged.append)
    assert sum(charged) <= 2 * len(text) / MAX_ATTRIBUTE_LINE + 2
    assert max(charged) <= 256
    found = checker.role_faults(role, Record(0, FILE, BLOB, text + b"a" * MAX_ATTRIBUTE_LINE))
    assert [fault.id for fault in found] == ["gitattributesLineLength"]


def test_a_name_is_judged_once_for_all_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted:
        count = 0

        def search(self, name: bytes) -> re.Match[bytes] | None:
            self.count += 1
            return re.search(rb"\.\.", name)

    counted = Counted()
    monkeypatch.setattr(fsck_git, "_BAD_NAME", counted)
    text = b'[submodule "%b"]\n' % (b"a/" * 10_000 + b"..") + b"a\n" * 10_000
    faults = fsck_git.GitFaults(SHA1).role_faults(RecordRole(0, FILE, ".gitmodules"), Record(0, FILE, BLOB, text))
    assert [fault.id for fault in faults] == ["gitmodulesName"]
    assert counted.count == 1


def test_a_mode_of_many_zeros_is_cut_in_the_message() -> None:
    (fault,) = GIT.look(0, TREE, entry(b"0" * 10_000 + b"100644", b"a"), None)[0]
    assert fault.id == "zeroPaddedFilemode"
    assert len(fault.why) < 60


def test_only_roles_that_the_base_does_not_give_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The many spellings in both are not compared with each other."""
    compared = calls_of(monkeypatch, RecordRole, "__eq__")
    count = 300
    base = b"".join(entry(b"100644", b".gitmodules" + b" " * n, b"%020d" % n) for n in range(count))
    text = base + entry(b"100644", b".gitmodules" + b" " * count, b"%020d" % count)
    roles = GIT.look(0, TREE, text, base)[1]
    assert [role.key for role in roles] == [b"%020d" % count]
    assert len(compared) <= 2 * count


PARSED = {
    "nothing": b"",
    "comments": b'# a\n; b\n[submodule "x"] # c\n\turl = u # d\n',
    "quotes": b'[submodule "a b"]\n url = " x # y " z  \n path=a"b"c\n',
    "escapes": b'[submodule "a\\"b\\\\c"]\n url = a\\tb\\nc\\\\\\"\n',
    "continued": b'[submodule "x"]\n url = a\\\n  b\\\nc\n',
    "no value": b'[submodule "x"]\n update\n url =\n',
    "one line": b'[submodule "x"] url = u\n',
    "others": b'[core]\n url = no\n[submodule]\n url = no\n[submodule "x"]\n Url = u\n[other "x"]\n url = no\n',
    "the older form": b"[submodule.Name]\n url = u\n",
    "nothing before blanks": b'[submodule "x"]\n url = "" "\\\n" -x\n path = \\\n \\\n  -x\n branch = "" \n',
    "blanks before quotes": b'[submodule "x"]\n url = a ""  \n path = "\\\n  -x " # c\n',
    "a backslash at the end": b'[submodule "x"]\n url = -x\\',
    "what is no blank": b'[submodule "x"]\n url = \x0b-x\x0c\n',
    "DOS": b'\xef\xbb\xbf[submodule "x"]\r\n\turl = u\r\n',
    "case": b'[SubModule "Xy"]\n URL = u\n',
    "no newline at the end": b'[submodule "x"]\n url = u',
}


@pytest.mark.parametrize("text", PARSED.values(), ids=PARSED)
def test_it_is_read_as_git_reads_it(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "config"
    file.write_bytes(text)
    done = subprocess.run(["git", "config", "-z", "--list", "-f", file], capture_output=True, check=True)
    expected = []
    for item in done.stdout.split(b"\0")[:-1]:
        key, _, value = item.partition(b"\n")
        if key.startswith(b"submodule.") and key.count(b".") > 1:
            name, _, last = key.removeprefix(b"submodule.").rpartition(b".")
            expected.append((name, last.decode(), value))
    assert list(submodule_settings(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        b"[",
        b"[submodule",
        b'[submodule "x]\n',
        b"[a]\n1=2\n",
        b"[a]\nb ? c\n",
        b'[a]\nb = "c\n',
        b"[a]\nb = \\q\n",
        b"]\n",
        b"[a]\n\x0cb = c\n",
        b"\0",
    ],
)
def test_what_git_does_not_read(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "config"
    file.write_bytes(text)
    assert subprocess.run(["git", "config", "--list", "-f", file], capture_output=True, check=False).returncode != 0
    with pytest.raises(BadConfig, match=r"line [12]"):
        list(submodule_settings(text))


CLEAN = [
    b"",
    b'# a\n\n[submodule "lib/a.b"]\n\tpath = lib/a.b\n\turl = https://example.org:81/a/b.git\n\tbranch = v1.0\n',
    b'[submodule ".vim/x y"]\r\n  path=.vim/x\r\n  url=git@example.org:~a/b\r\n  update=none\r\n',
    b'[submodule "x"]\n\turl = ../../x\n[submodule "y"]\n\turl = ssh://git@h/%s\n' % (b"y" * 1000),
]


@pytest.mark.parametrize("text", CLEAN)
def test_most_files_are_found_clean_by_one_expression(text: bytes) -> None:
    charged: list[int] = []
    assert has_no_fault(text, charged.append)
    assert charged == [len(text) // STEP_BYTES]


SIZE = 30_000
HOSTILE = {
    "quotes": b'[submodule "x"]\nurl = ' + b'"' * SIZE,
    "quoted bytes": b'[submodule "x"]\nurl = ' + b'"a"' * (SIZE // 3),
    "escapes": b'[submodule "x"]\nurl = ' + b"\\n" * (SIZE // 2),
    "continued": b'[submodule "x"]\nurl = a' + b" \\\n" * (SIZE // 3),
    "blanks": b'[submodule "x"]\nurl = a' + b" \t" * (SIZE // 2) + b"b",
    "comments": b"#\n" * (SIZE // 2),
    "a long name": b'[submodule "' + b"a/" * (SIZE // 2) + b'"]\nurl = x',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_what_is_long_takes_a_step_for_many_bytes(text: bytes) -> None:
    """A value, a name or a comment of any length is a step; its bytes are read by expressions."""
    charged: list[int] = []
    assert len(list(submodule_settings(text, charged.append))) <= 1
    assert sum(charged) <= len(text) // STEP_BYTES + 3


@pytest.mark.parametrize("line", [b"a\n", b"[a]\n", b"a=b\n"])
def test_each_line_takes_a_step_and_a_charge_ends_the_work(line: bytes) -> None:
    lines = 10_000
    text = b'[submodule "x"]\n' + line * lines
    charged: list[int] = []
    list(submodule_settings(text, charged.append))
    assert lines <= sum(charged) <= lines + 2 + len(text) // STEP_BYTES
    left = 1000

    def charge(steps: int) -> None:
        nonlocal left
        left -= steps
        if left < 0:
            raise InterruptedError

    read = submodule_settings(text, charge)
    with pytest.raises(InterruptedError):
        list(read)
    assert -300 < left < 0
