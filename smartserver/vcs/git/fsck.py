"""Finds the faults of git's objects, with the message ids and mostly the order of `git fsck`.

A few expressions over the whole text show that nearly every object is clean. Only the others are read entry by entry.
`system` refuses an object that cannot be parsed at all, whatever the options say.

The texts come from clients, and an expression holds the interpreter's lock until it ends. So every expression takes
time in proportion to the text. A repeat without a bound is possessive. An expression that is searched for has no such
repeat, unless each match begins where the one before it ended. The tests check this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from smartserver.records.charge import Charge, free
from smartserver.records.faults import CHARGE_EVERY, NONE, FaultChecker, Findings, RecordFault, RecordRole, Severity
from smartserver.records.model import Record
from smartserver.vcs.git.format import BLOB, COMMIT, FOLDER, LINK, TREE, ObjectFormat, TreeEntry, entry_type
from smartserver.vcs.git.fsck_modules import BadConfig, has_no_fault, submodule_settings
from smartserver.vcs.patterns import compile_pattern

_H, _E, _N = Severity.HARM, Severity.ERROR, Severity.NOTE

FAULTS: Final[Mapping[str, Severity]] = {
    # Trees. Git's clients check out, merge or index such a tree wrongly, or not at all.
    "duplicateEntries": _H,
    "fullPathname": _H,
    "hasDot": _H,
    "hasDotdot": _H,
    "hasDotgit": _H,
    "nullSha1": _H,
    "treeNotSorted": _H,
    "badFilemode": _N,
    "zeroPaddedFilemode": _E,
    # Files that git itself reads.
    "gitattributesBlob": _H,
    "gitattributesLarge": _H,
    "gitattributesLineLength": _H,
    "gitattributesSymlink": _N,
    "gitignoreSymlink": _N,
    "gitmodulesBlob": _H,
    "gitmodulesLarge": _H,
    "gitmodulesName": _H,
    "gitmodulesParse": _N,
    "gitmodulesPath": _H,
    "gitmodulesSymlink": _H,
    "gitmodulesUpdate": _H,
    "gitmodulesUrl": _H,
    "mailmapSymlink": _N,
    # Commits and tags. The first two are fatal to `git fsck` itself.
    "nulInHeader": _H,
    "unterminatedHeader": _H,
    "badDate": _E,
    "badDateOverflow": _E,
    "badEmail": _E,
    "badName": _E,
    "badTagName": _N,
    "badTimezone": _E,
    "missingAuthor": _E,
    "missingCommitter": _E,
    "missingEmail": _E,
    "missingNameBeforeEmail": _E,
    "missingSpaceBeforeDate": _E,
    "missingSpaceBeforeEmail": _E,
    "missingTaggerEntry": _N,
    "multipleAuthors": _E,
    "nulInCommit": _E,
    "zeroPaddedDate": _E,
}

GITMODULES: Final = ".gitmodules"
GITATTRIBUTES: Final = ".gitattributes"

MAX_GITMODULES: Final = 2 << 20
"""The most bytes of a `.gitmodules` that is parsed. The largest known (emacsmirror/epkgs, about 10,000 submodules) has
875 KB. Git's own limit is `core.bigFileThreshold`, 512 MiB, which would take minutes here."""

MAX_GITATTRIBUTES: Final = 100 << 20
MAX_ATTRIBUTE_LINE: Final = 2048
"""Git's own limits of a `.gitattributes` (attr.h): older releases overflow beyond them."""

MAX_DATE: Final = (1 << 63) - 1
"""The latest date, in seconds since the epoch, that every client can represent."""

# ---- trees

_IGNORED_BY_HFS: Final = compile_pattern(rb"\xe2\x80[\x8c-\x8f\xaa-\xae]|\xe2\x81[\xaa-\xaf]|\xef\xbb\xbf")
_CODE_POINT: Final = compile_pattern(
    rb"[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xef][\x80-\xbf]{2}"
    rb"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
)
# Some clients take a backslash for a slash: each part of a name counts. No two runs of dots and blanks overlap.
_NTFS_DOTGIT: Final = compile_pattern(rb"(?:\A|\\)(?i:\.git|git~1)[. ]*+(?:[\\/:]|\Z)")
_HFS_DOTGIT: Final = compile_pattern(rb"(?i:\.git)(.*+)", re.DOTALL)


def _named(name: str, short: str) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return patterns that match the spellings of `.NAME` on HFS+ and on NTFS. `short`: the beginning of the other
    short name that NTFS may give the file."""
    forms = [
        rb"\.%b" % name.encode(),
        rb"%b~[1-4]" % name[:6].encode(),
        *(rb"%b~[1-9][0-9]{%d}" % (short[:kept].encode(), 6 - kept) for kept in range(7)),
    ]
    ntfs = rb"(?:\A|\\)(?i:%b)[. ]*+(?::|\Z)" % b"|".join(forms)
    return compile_pattern(rb"(?i:\.%b)(.*+)" % name.encode(), re.DOTALL), compile_pattern(ntfs)


_SPECIAL: Final = {
    GITMODULES: _named("gitmodules", "gi7eba"),
    GITATTRIBUTES: _named("gitattributes", "gi7d29"),
    ".gitignore": _named("gitignore", "gi250a"),
    ".mailmap": _named("mailmap", "maba30"),
}
_MODES: Final = frozenset((0o100644, 0o100755, 0o100664, 0o120000, 0o040000, 0o160000))


class GitFaults(FaultChecker):
    """Looks for the faults of git's objects."""

    severities = FAULTS

    def __init__(self, objects: ObjectFormat) -> None:
        """`objects`: the parser of the objects."""
        self._format = objects
        self._null = bytes(objects.id_bytes)

    def look(self, kind: int, meta: bytes, text: bytes, base: bytes | None) -> Findings:
        """Return the faults of an object, and the roles of those files in a tree that git itself reads. A blob can have
        faults only in such a role, which `role_faults` checks."""
        if meta == BLOB:
            return NONE
        if meta == TREE:
            return self._look_at_tree(kind, text, base)
        return (commit_faults(text) if meta == COMMIT else tag_faults(text)), ()

    def size_faults(self, role: RecordRole, meta: bytes, size: int) -> Sequence[RecordFault]:
        """Return the fault of a record that is used as one of git's own files, but is not a blob or is too large."""
        attributes = role.name == GITATTRIBUTES
        if meta != BLOB:
            return [RecordFault("gitattributesBlob" if attributes else "gitmodulesBlob", f"{role.name} is not a file")]
        most = MAX_GITATTRIBUTES if attributes else MAX_GITMODULES
        if size <= most:
            return ()
        why = f"{role.name} has {size} bytes, expected no more than {most}"
        return [RecordFault("gitattributesLarge" if attributes else "gitmodulesLarge", why)]

    def role_faults(self, role: RecordRole, record: Record, charge: Charge = free) -> Sequence[RecordFault]:
        """Return the faults of a file that git itself reads."""
        faults = self.size_faults(role, record.meta, len(record.text))
        if faults:
            return faults
        if role.name != GITATTRIBUTES:
            return _modules_faults(record.text, charge)
        if not _has_long_line(record.text, charge):
            return ()
        why = f"a line of {GITATTRIBUTES} has {MAX_ATTRIBUTE_LINE} bytes or more"
        return [RecordFault("gitattributesLineLength", why)]

    def _look_at_tree(self, kind: int, text: bytes, base: bytes | None) -> Findings:
        """Return the faults and roles of a tree. If `base` has the same names and modes, only changed objects are
        checked."""
        same = None if base is None else self._format.changed(text, base)
        if same is not None:
            return self._look_at(kind, [entry[:3] for entry in same], names=False)
        entries = self._format.tree(b"", text)
        faults, roles = self._look_at(kind, entries, names=True)
        if roles and base is not None:
            before = frozenset(self._look_at(kind, self._format.tree(b"", base), names=False)[1])
            roles = [role for role in roles if role not in before]
        return [*faults, *_order_faults(entries)], roles

    def _look_at(self, kind: int, entries: Sequence[TreeEntry], *, names: bool) -> Findings:
        """Return the faults and roles of single entries. With `names`, the entries' names and modes are checked,
        too."""
        found: dict[str, str] = {}
        roles: list[RecordRole] = []
        for mode, name, key in entries:
            suspect = _SUSPECT.search(name) is not None
            special = _special(name) if suspect else None
            said = f"an entry is named {_shown(name)}" if suspect or key == self._null else ""
            if key == self._null:
                found.setdefault("nullSha1", f"{said} and has no object: its id is all zeros")
            if special in (GITMODULES, GITATTRIBUTES) and entry_type(mode) != LINK:
                roles.append(RecordRole(kind, key, special))
            if not names:
                continue
            if suspect:
                _name_faults(name, said, found)
                if special is not None and entry_type(mode) == LINK:
                    found.setdefault(f"{special[1:]}Symlink", f"{said} and is a symbolic link")
            if mode.startswith(b"0"):
                found.setdefault("zeroPaddedFilemode", f"the mode {_mode(mode)} begins with a zero")
            if int(mode, 8) not in _MODES:
                found.setdefault("badFilemode", f"the mode {_mode(mode)}")
        return [RecordFault(*fault) for fault in found.items()], roles


def _order_faults(entries: Sequence[TreeEntry]) -> list[RecordFault]:
    found: dict[str, str] = {}
    last = b""
    seen: set[bytes] = set()
    for mode, name, _ in entries:
        place = name + (b"/" if entry_type(mode) == FOLDER else b"\0")
        if name in seen:
            found.setdefault("duplicateEntries", f"two entries are named {_shown(name)}")
        elif place <= last:
            found.setdefault("treeNotSorted", f"the entry {_shown(name)} comes too late")
        seen.add(name)
        last = place
    return [RecordFault(*fault) for fault in found.items()]


def _name_faults(name: bytes, said: str, found: dict[str, str]) -> None:
    if b"/" in name:
        found.setdefault("fullPathname", said)
    if name == b".":
        found.setdefault("hasDot", said)
    if name == b"..":
        found.setdefault("hasDotdot", said)
    if _hfs(_HFS_DOTGIT, name) or _NTFS_DOTGIT.search(name) is not None:  # After a backslash, too.
        found.setdefault("hasDotgit", f"{said}, which is git's own folder to some clients")


_SUSPECT: Final = compile_pattern(rb"[~\\/\xe2\xef]|^\.\.?\Z|^\.(?i:git|mailmap)")
"""Matches a name that is invalid, or that some file system may treat as another name."""


def _mode(mode: bytes) -> str:
    """Return the first 20 bytes of a mode for a message. Any number of zeros may precede a mode."""
    return mode[:20].decode()


def _special(name: bytes) -> str | None:
    """Return the special file, such as `.gitmodules`, that some file system would open under a name, or None."""
    for special, (hfs, ntfs) in _SPECIAL.items():
        if _hfs(hfs, name) or ntfs.search(name):
            return special
    return None


def _hfs(pattern: re.Pattern[bytes], name: bytes) -> bool:
    """Tell whether HFS+ treats a name as the file of `pattern`. HFS+ ignores some code points, and ends a name at
    invalid UTF-8."""
    found = pattern.match(_IGNORED_BY_HFS.sub(b"", name))
    if found is None:
        return False
    return not found[1] or found[1].startswith(b"/") or _CODE_POINT.match(found[1]) is None


# ---- commits and tags

_IDENT: Final = rb"[^<>\n]*+(?<= )<[^<>\n]*+> (?:0|[1-9][0-9]{0,17}) [+-][0-9]{4}\n"
_COMMIT_HEAD: Final = compile_pattern(rb"(?:(?:tree|parent) [^\n]*+\n)++")
_TAG_HEAD: Final = compile_pattern(rb"object [^\n]++\ntype [^\n]++\ntag ([^\n]*+)\n")
_BAD_TAG_NAME: Final = compile_pattern(rb"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|(?:^|/)(?:\.|\Z)|//|\.lock(?:/|\Z)|\.\Z")
_ZONE: Final = compile_pattern(rb"[+-][0-9]{4}\n")
_DATE: Final = compile_pattern(rb"\s*+([+-]?)([0-9]++)")
_NO_BRACKET: Final = compile_pattern(rb"[^<>\n]*+")
_CLEAN_AUTHORS: Final = compile_pattern(rb"(?:author (?!<)%b)*+" % _IDENT)


def commit_faults(text: bytes) -> list[RecordFault]:
    """Return the faults of a commit that can be parsed."""
    fatal = _header_fault(text)
    if fatal is not None:
        return [fatal]
    found: dict[str, str] = {}
    head = _COMMIT_HEAD.match(text)
    at = 0 if head is None else head.end()
    clean = _CLEAN_AUTHORS.match(text, at)
    assert clean is not None  # It may be empty.
    authors = text.count(b"\n", at, clean.end())
    at = clean.end()
    while not found and text.startswith(b"author ", at):  # Git stops at the first bad author, too.
        authors += 1
        at = _ident(text, at + len(b"author "), found, "author")
    if not authors:
        found["missingAuthor"] = "it has no author"
    elif authors > 1 and not found:
        found["multipleAuthors"] = f"it has {authors} authors"
    if found:  # Git looks no further, either.
        return [RecordFault(*fault) for fault in found.items()]
    if text.startswith(b"committer ", at):
        _ident(text, at + len(b"committer "), found, "committer")
    else:
        found["missingCommitter"] = "it has no committer"
    if b"\0" in text:
        found["nulInCommit"] = "its message has a NUL byte"
    return [RecordFault(*fault) for fault in found.items()]


def tag_faults(text: bytes) -> list[RecordFault]:
    """Return the faults of a tag that can be parsed."""
    fatal = _header_fault(text)
    if fatal is not None:
        return [fatal]
    found: dict[str, str] = {}
    head = _TAG_HEAD.match(text)
    at = 0 if head is None else head.end()
    if head is not None and (not head[1] or _BAD_TAG_NAME.search(head[1])):
        found["badTagName"] = f"it calls itself {_shown(head[1])}"
    if text.startswith(b"tagger ", at):
        _ident(text, at + len(b"tagger "), found, "tagger")
    else:
        found["missingTaggerEntry"] = "it has no tagger"
    return [RecordFault(*fault) for fault in found.items()]


def _header_fault(text: bytes) -> RecordFault | None:
    """Return the fault in the header at which git itself stops reading an object, or None."""
    end = text.find(b"\n\n")
    if b"\0" in (text if end < 0 else text[:end]):
        return RecordFault("nulInHeader", "a NUL byte in its header")
    if end < 0 and not text.endswith(b"\n"):
        return RecordFault("unterminatedHeader", "its header does not end")
    return None


def _ident(text: bytes, at: int, found: dict[str, str], who: str) -> int:
    """Add the first fault of a line with a person and a date to `found`. Return the offset of the next line."""
    end = text.find(b"\n", at)
    line = text[at:] if end < 0 else text[at : end + 1]
    fault = _of_ident(line)
    if fault is not None:
        found.setdefault(fault, f"its {who} is {_shown(line.rstrip())}")
    return at + len(line)


def _of_ident(line: bytes) -> str | None:
    if line.startswith(b"<"):
        return "missingNameBeforeEmail"
    name = _NO_BRACKET.match(line)
    assert name is not None  # It may be empty.
    at = name.end()
    if line.startswith(b">", at):
        return "badName"
    if not line.startswith(b"<", at):
        return "missingEmail"
    if not line.startswith(b" ", at - 1):
        return "missingSpaceBeforeEmail"
    mail = _NO_BRACKET.match(line, at + 1)
    assert mail is not None  # As before.
    at = mail.end()
    if not line.startswith(b">", at):
        return "badEmail"
    if not line.startswith(b" ", at + 1):
        return "missingSpaceBeforeDate"
    return _of_date(line[at + 2 :])


def _of_date(text: bytes) -> str | None:
    if text.startswith(b"0") and not text.startswith(b"0 "):
        return "zeroPaddedDate"
    date = _DATE.match(text)
    if date is None:
        return "badDate"
    if len(date[2]) > 20 or date[1] == b"-" or int(date[2]) > MAX_DATE:
        return "badDateOverflow"
    if not text.startswith(b" ", date.end()):
        return "badDate"
    return None if _ZONE.match(text, date.end() + 1) else "badTimezone"


# ---- files that git reads


def _has_long_line(text: bytes, charge: Charge) -> bool:
    """Tell whether a line has `MAX_ATTRIBUTE_LINE` bytes or more. The time is proportional to the text, because two
    steps together advance by more than one window."""
    at = steps = 0
    while len(text) - at >= MAX_ATTRIBUTE_LINE:
        last = text.rfind(b"\n", at, at + MAX_ATTRIBUTE_LINE)
        if last < 0:
            return True
        at = last + 1
        steps += 1
        if steps == CHARGE_EVERY:
            charge(steps)
            steps = 0
    charge(steps)
    return False


def _modules_faults(text: bytes, charge: Charge) -> list[RecordFault]:
    if has_no_fault(text, charge):
        return []
    found: dict[str, str] = {}
    last: bytes | None = None
    try:
        for name, key, value in submodule_settings(text, charge):
            fault = _of_setting(key, value)
            if name is not last:  # Once for each section: a long name may have any number of settings.
                last = name
                if _BAD_NAME.search(name):
                    found.setdefault("gitmodulesName", f"{_submodule(name)} has a name that leads elsewhere")
            if fault and fault not in found:
                found[fault] = f"{_submodule(name)} has the {key} {_shown(value)}"
    except BadConfig as error:
        found["gitmodulesParse"] = f"{GITMODULES} cannot be read: {error}"
    return [RecordFault(*item) for item in found.items()]


def _submodule(name: bytes) -> str:
    return f"the submodule {_shown(name)} of {GITMODULES}"


def _shown(said: bytes) -> str:
    """Return a name or a value in one line, for a message."""
    return repr(said[:200].decode("utf-8", "backslashreplace"))


def _of_setting(key: str, value: bytes) -> str:
    """Return the fault of one setting of a submodule, or an empty string if it has none."""
    if key == "url" and _is_bad_url(value):
        return "gitmodulesUrl"
    if key == "path" and value.startswith(b"-"):
        return "gitmodulesPath"
    if key == "update" and value.startswith(b"!"):
        return "gitmodulesUpdate"
    return ""


_BAD_NAME: Final = compile_pattern(rb"\A\Z|(?:\A|[\\/])\.\.(?:[\\/]|\Z)")
_CURL: Final = compile_pattern(rb"(?:https?|ftps?)(?:::|://)")
_CURL_PREFIX: Final = compile_pattern(rb"(?:https?|ftps?)::")
_NEWLINE: Final = compile_pattern(rb"\n|%0[aA]")
_STEPS_UP: Final = compile_pattern(rb"(?:\.\.?+/)*+")
_HOST: Final = compile_pattern(rb"[^:/]*+://(?:[^/@]*+@)?+([^/?#]*+)")


def _is_bad_url(url: bytes) -> bool:
    """Tell whether git would treat a URL as an option, as several lines or as a URL of another host
    (CVE-2020-11008)."""
    if url.startswith(b"-"):
        return True
    if url.startswith((b"./", b"../", b"git://")):
        above = _STEPS_UP.match(url)
        assert above is not None  # It may be empty.
        climbs = b"../" in above[0]
        return _NEWLINE.search(url) is not None or (climbs and url[above.end() : above.end() + 1] in (b":", b"/"))
    if _CURL.match(url):
        prefix = _CURL_PREFIX.match(url)
        host = _HOST.match(url, 0 if prefix is None else prefix.end())
        return _NEWLINE.search(url) is not None or host is None or not host[1]
    return False
