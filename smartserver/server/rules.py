"""The access file: the rights of users, by path and by ref.

A TOML file has groups and an ordered list of rules:

    [groups]
    core = ["anna", "ben"]

    [[rules]]
    who = ["@core", "ci"]
    path = "project/**"
    refs = ["refs/heads/main"]
    may = "write"

    [keys]
    anna = ["ssh-ed25519 AAAA... anna@laptop"]

The first rule that fits the user, the path and the ref decides; where none does, nothing is allowed. A rule with `refs`
applies only to changes of these refs, and of the entries of maps that belong to them (`RefPattern`). In a pattern `*`
is any part of a name between slashes, and `**` is any number of names.

`[[limits]]` limits the bytes of a repository and of a file in it, by path (`sizes`). `[[hooks]]` names the commands
that are run before a change, and the receivers that are notified afterwards (`hook_rules`).

`may` must be the last line of a rule, so that a file that is only half written never gives more than the whole file. If
the file cannot be read, the rules stay as they were.

Some file systems treat two spellings as one name. So a user may do something only if the rules allow it for the path
and the ref as they are spelled, and for both in lower case.
"""

from __future__ import annotations

import base64
import enum
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from smartserver.server.hook_rules import Hook, HookText, parse_hooks
from smartserver.server.patterns import NamePattern, RefPattern, check_pattern, check_ref_pattern, folded
from smartserver.server.sizes import NO_LIMITS, SizeLimits, parse_size
from smartserver.server.watched import UnusableFile, WatchedFile
from smartserver.verbs.declare import Permission
from smartserver.wire.tls import fingerprint

EVERYBODY = "*"
"""The name in `who` for every user, including the anonymous one."""

ANONYMOUS = "anonymous"
"""The name of a user whom neither a token nor a key identifies."""

_KEY_TYPE = re.compile(r"[a-z0-9][a-z0-9@.-]+")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}")


class AccessLevel(enum.IntEnum):
    """The rights that a rule gives. Each level includes the previous ones."""

    NONE = 0
    READ = 1
    WRITE = 2
    """The right to move refs forward, and to join packs."""
    CREATE = 3
    """The right to create repositories and refs."""
    FORCE = 4
    """The right to rewind, replace and delete refs."""
    DELETE = 5
    """The right to delete the repository."""
    ADMIN = 6
    """The right to change the repository's settings, such as HEAD, and to use file-level verbs."""

    @property
    def word(self) -> str:
        """The value of `may` that gives this level."""
        return self.name.lower()


WORDS = {level.word: level for level in AccessLevel}

LEVELS = {
    Permission.READ: AccessLevel.READ,
    Permission.WRITE: AccessLevel.WRITE,
    Permission.CREATE: AccessLevel.CREATE,
    Permission.FORCE: AccessLevel.FORCE,
    Permission.DELETE: AccessLevel.DELETE,
    Permission.ADMIN: AccessLevel.ADMIN,
    Permission.VFS: AccessLevel.ADMIN,
}
"""The least level that gives each permission. Deleting a ref needs FORCE, not DELETE."""


def is_user_name(name: str) -> bool:
    """Return True if a user may have this name."""
    return _NAME.fullmatch(name) is not None


class RuleText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule as the file contains it, not yet checked."""

    who: list[str]
    path: str
    may: str
    refs: list[str] | None = None


class LimitText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of limits as the file contains it, not yet checked."""

    path: str
    repository: str | int | None = msgspec.field(name="max-repository-size", default=None)
    file: str | int | None = msgspec.field(name="max-file-size", default=None)


class RulesText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of an access file, not yet checked."""

    groups: dict[str, list[str]] = {}
    keys: dict[str, list[str]] = {}
    rules: list[RuleText] = []
    limits: list[LimitText] = []
    hooks: list[HookText] = []


class PublicKey(NamedTuple):
    """A key that logs a user in over SSH."""

    user: str
    kind: str
    """The type of the key, such as `ssh-ed25519`."""
    content: str
    """The key in base64."""

    @property
    def fingerprint(self) -> str:
        """The fingerprint in the form of `ssh-keygen -l`."""
        return fingerprint(base64.b64decode(self.content))


class AccessRule:
    """One rule of the file."""

    def __init__(self, number: int, text: RuleText, users: frozenset[str]) -> None:
        """`users`: the users of the rule, with groups resolved."""
        self.number = number
        self.text = text
        self.level = WORDS[text.may]
        self.users = users
        self._path = NamePattern(text.path)
        self._refs = [RefPattern(ref) for ref in text.refs or ()]

    def is_about(self, user: str, path: str, *, folds: bool) -> bool:
        """Return True if the rule applies to a user and path."""
        return bool(self.users & {user, EVERYBODY}) and self._path.matches(path, folds=folds)

    def is_about_ref(self, ref: str, *, folds: bool) -> bool:
        """Return True if the rule applies to changes of a ref, or of an entry of a map (`map_update.entry_name`)."""
        return any(each.matches(ref, folds=folds) for each in self._refs)

    def __str__(self) -> str:
        found = {"who": self.text.who, "path": self.text.path, "refs": self.text.refs, "may": self.text.may}
        shown = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in found.items() if value]
        return f"rule {self.number} ({', '.join(shown)})"


class AccessRules:
    """The rules, keys, limits and hooks of a file."""

    def __init__(self, content: bytes) -> None:
        """Parse a file."""
        text, orders = _parsed(content)
        self.rules = tuple(_rules(text, orders))
        self.keys = tuple(_keys(text.keys))
        self.limits = tuple(_limits(text.limits))
        self.hooks = tuple(parse_hooks(text.hooks))

    def decides(
        self, user: str, permission: Permission, path: str, ref: bytes = b""
    ) -> tuple[AccessLevel, AccessRule | None]:
        """Return the level of a user, and the rule that decides it, or None if no rule applies.

        Without a ref, WRITE means the permission to change any ref at all; the other permissions are about the whole
        repository.
        """
        name = ref.decode("utf-8", "backslashreplace")
        found = [
            self._first(user, permission, fold(path), fold(name), folds=folds)
            for folds, fold in ((False, str), (True, folded))
        ]
        return min(found, key=lambda each: each[0])

    def _first(
        self, user: str, permission: Permission, path: str, ref: str, *, folds: bool
    ) -> tuple[AccessLevel, AccessRule | None]:
        for rule in self.rules:
            if not rule.is_about(user, path, folds=folds):
                continue
            if rule.text.refs is not None:
                any_ref = not ref and permission is Permission.WRITE and rule.level >= AccessLevel.WRITE
                if not any_ref and not (ref and rule.is_about_ref(ref, folds=folds)):
                    continue
            return rule.level, rule
        return AccessLevel.NONE, None

    def gives(self, user: str, permission: Permission, path: str, ref: bytes = b"") -> bool:
        """Return True if a user has a permission."""
        needed = AccessLevel.FORCE if permission is Permission.DELETE and ref else LEVELS[permission]
        return self.decides(user, permission, path, ref)[0] >= needed

    def sizes(self, path: str) -> SizeLimits:
        """Return the limits of a repository: for each limit, the first entry that fits the path."""
        found = NO_LIMITS
        for pattern, limits in self.limits:
            if pattern.matches(path, folds=False) or pattern.matches(folded(path), folds=True):
                found = found.or_else(limits)
        return found

    def knows(self, user: str) -> bool:
        """Return True if a rule grants the user any permission."""
        return any(rule.level and rule.users & {user, EVERYBODY} for rule in self.rules)


def _parsed(content: bytes) -> tuple[RulesText, list[list[str]]]:
    """Return the decoded file, and the order of the keys in each rule."""
    try:
        raw: dict[str, Any] = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnusableFile(str(error)) from None
    try:
        text = msgspec.convert(raw, RulesText)
    except msgspec.ValidationError as error:
        raise UnusableFile(_numbered(str(error))) from None
    return text, [list(rule) for rule in raw.get("rules", ())]


def _rules(text: RulesText, orders: list[list[str]]) -> Iterator[AccessRule]:
    if not text.rules:
        raise UnusableFile("it has no rules: nobody could do anything")
    for name, members in text.groups.items():
        for each in (name, *members):
            _check_name(f"groups.{name}", each)
    for number, (rule, order) in enumerate(zip(text.rules, orders, strict=True), 1):
        try:
            yield AccessRule(number, _checked(rule, order), _users(rule.who, text.groups))
        except UnusableFile as error:
            raise UnusableFile(f"rule {number}: {error}") from None


def _limits(texts: list[LimitText]) -> Iterator[tuple[NamePattern, SizeLimits]]:
    for number, text in enumerate(texts, 1):
        try:
            check_pattern("path", text.path)
            if text.repository is None and text.file is None:
                raise UnusableFile("expected max-repository-size, max-file-size, or both")
            repository = parse_size("max-repository-size", text.repository)
            yield NamePattern(text.path), SizeLimits(repository, parse_size("max-file-size", text.file))
        except UnusableFile as error:
            raise UnusableFile(f"limit {number}: {error}") from None


def _check_name(key: str, name: str) -> None:
    if not is_user_name(name):
        raise UnusableFile(f"{key}: {name!r} is not a valid name: use letters, digits and _.@+-")


def _keys(keys: Mapping[str, list[str]]) -> Iterator[PublicKey]:
    users: dict[str, str] = {}
    for user, lines in keys.items():
        _check_name(f"keys.{user}", user)
        for line in lines:
            kind, content, *_ = [*line.split(None, 2), "", ""]
            if not _is_key(kind, content):
                raise UnusableFile(f"keys.{user}: {line[:40]!r}... is not a public key: expected a line of a .pub file")
            if users.setdefault(content, user) != user:
                raise UnusableFile(f"keys.{user}: the key {content[:40]!r}... is one of {users[content]!r} too")
            yield PublicKey(user, kind, content)


def _is_key(kind: str, content: str) -> bool:
    """Return True for a public key of OpenSSH: base64 of a blob that begins with the type of the key (RFC 4253,
    6.6)."""
    try:
        blob = base64.b64decode(content, validate=True)
    except ValueError:
        return False
    name = kind.encode()
    return _KEY_TYPE.fullmatch(kind) is not None and blob.startswith(len(name).to_bytes(4, "big") + name)


def _numbered(why: str) -> str:
    """Return an error message of msgspec with the number of the rule, limit or hook, counted from 1."""
    numbered = re.sub(r"\$\.(rule|limit|hook)s\[(\d+)\]", lambda found: f"{found[1]} {int(found[2]) + 1}", why)
    return numbered.replace("$.", "")


def _users(who: list[str], groups: Mapping[str, list[str]]) -> frozenset[str]:
    users: set[str] = set()
    for name in who:
        if name.startswith("@"):
            if name[1:] not in groups:
                raise UnusableFile(f"there is no group {name[1:]!r}")
            users.update(groups[name[1:]])
        elif name == EVERYBODY or is_user_name(name):
            users.add(name)
        else:
            raise UnusableFile(f"who = {name!r}: expected a user, @GROUP, {ANONYMOUS} or {EVERYBODY}")
    return frozenset(users)


def _checked(rule: RuleText, order: list[str]) -> RuleText:
    if order[-1] != "may":
        raise UnusableFile("`may` must be its last line, so that a file that is half written gives nobody more")
    if rule.may not in WORDS:
        raise UnusableFile(f"may = {rule.may!r}: expected {', '.join(WORDS)}")
    if not rule.who:
        raise UnusableFile("`who` is empty")
    check_pattern("path", rule.path)
    if rule.refs is not None:
        if not rule.refs:
            raise UnusableFile("`refs` is empty: leave it out where the rule is about the whole repository")
        if WORDS[rule.may] is AccessLevel.READ:
            why = "`refs` limits changes only, and may = 'read' allows none: leave out `refs`, or say 'none'"
            raise UnusableFile(why)
        if WORDS[rule.may] > AccessLevel.FORCE:
            raise UnusableFile(f"`refs` limits changes of refs, and may = {rule.may!r} is about the whole repository")
        for ref in rule.refs:
            check_ref_pattern("refs", ref)
    return rule


class AccessFile(WatchedFile[AccessRules]):
    """The rules in a file, read again whenever it has changed."""

    what = "rules"

    def parse(self, content: bytes) -> AccessRules:
        """Return the rules in the file."""
        return AccessRules(content)

    def count(self, content: AccessRules) -> int:
        """Return the number of rules."""
        return len(content.rules)

    @property
    def rules(self) -> AccessRules:
        """The current rules of the file; the previous rules if the file cannot be used."""
        return self.content

    def hooks(self) -> Sequence[Hook]:
        """Return the current hooks of the file."""
        return self.content.hooks

    def sizes(self, path: str) -> SizeLimits:
        """Return the current limits of a repository."""
        return self.content.sizes(path)
