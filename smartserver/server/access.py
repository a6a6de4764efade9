"""The rights of a user. Read is given per repository; write, create and force per ref too.

A connection has an `Admission`: it says for each request who the user is and what he may do now, so that changed rules
count from the next request on.
"""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Protocol, Self

import msgspec

from smartserver.errors import TOKEN_REFUSED, TOKEN_WANTED, AccessDenied
from smartserver.server.rules import ANONYMOUS, AccessFile, AccessRules
from smartserver.server.tokens import KnownToken, TokenFile
from smartserver.verbs.declare import Permission

log = logging.getLogger("smartserver")


class Anonymous(enum.StrEnum):
    """The rights of users whom the medium does not name."""

    NONE = "none"
    READ = "read"
    WRITE = "write"


FROM_HERE = "anonymous users may do that from this machine only"


class Access:
    """The rights of one user at the moment of a request."""

    user: str
    by: str = ""
    """The means by which the user was identified, for the log."""
    wants: str = ""
    """The value that a refusal has for tokens (`AccessDenied.token`)."""
    sees_all: bool = True
    """True if the user may know of every repository."""

    def objection(self, permission: Permission, path: str, ref: bytes = b"") -> str:
        """Why the user may not do that to a repository, or to a ref of it; empty if it is allowed.

        Without a ref, WRITE asks whether any ref may be changed.
        """
        raise NotImplementedError

    @property
    def admitted(self) -> bool:
        """True if the user may do anything here."""
        raise NotImplementedError

    def may(self, permission: Permission, path: str) -> bool:
        """True if a permission is given."""
        return not self.objection(permission, path)

    def require(self, permission: Permission, path: str, ref: bytes = b"") -> None:
        """Check one permission.

        Raises:
            AccessDenied: it is not given.
        """
        why = self.objection(permission, path, ref)
        if why:
            name = ref.replace(b"\0", b":").decode("utf-8", "backslashreplace")
            raise AccessDenied(f"{permission.value} {name}".rstrip(), why, token=self.wants)


class Admission(Protocol):
    """Says who makes a request."""

    def admit(self, extras: Mapping[str, msgspec.Raw]) -> Access:
        """The user of a request, and what he may do. `extras`: the request's.

        Raises:
            AccessDenied: the request says that it comes from a user, and does not prove it.
        """


@dataclass(frozen=True, slots=True)
class FixedAccess(Access):
    """The same permissions for all repositories; `why` completes a refusal. It is its own admission."""

    user: str
    permissions: Set[Permission]
    why: str
    why_no_vfs: str = ""
    """The reason why file-level verbs are refused, where it is another one."""

    def admit(self, extras: Mapping[str, msgspec.Raw]) -> Self:
        """The same for each request."""
        return self

    @property
    def admitted(self) -> bool:
        """True if reading is given."""
        return Permission.READ in self.permissions

    def objection(self, permission: Permission, path: str, ref: bytes = b"") -> str:
        """The same objection for every path and ref."""
        if permission in self.permissions:
            return ""
        return (permission is Permission.VFS and self.why_no_vfs) or self.why


EVERYTHING = frozenset(Permission)


def invoking_user(user: str) -> FixedAccess:
    """The user who started the server (stdio): whatever the file system lets them."""
    return FixedAccess(user, EVERYTHING, "")


def on_streams(user: str, policy: Anonymous | None) -> FixedAccess:
    """A client on standard input and output, by default with all that the invoking user may do. A policy limits it to
    what an anonymous user on another machine may do: nothing says where the other end of a pipe is."""
    if policy is None:
        return invoking_user(user)
    given = anonymous(policy, local=False)
    if policy is Anonymous.WRITE:
        given = replace(given, why="`serve --stdio --anonymous write` does not give that permission")
    return replace(given, user=user, why_no_vfs="")


def anonymous(policy: Anonymous, *, local: bool) -> FixedAccess:
    """A user whom the medium does not name; beyond loopback (`local`) nothing more than creating is ever given."""
    if policy is Anonymous.NONE:
        return FixedAccess("anonymous", frozenset(), "this server admits no anonymous users (`serve --anonymous none`)")
    if policy is Anonymous.READ:
        why = "this server is read-only for anonymous users (start it with `--anonymous write`)"
        given = {Permission.READ, Permission.VFS} if local else {Permission.READ}
        return FixedAccess("anonymous", frozenset(given), why, FROM_HERE)
    if local:
        return FixedAccess("anonymous", EVERYTHING, "")
    return FixedAccess("anonymous", frozenset({Permission.READ, Permission.WRITE, Permission.CREATE}), FROM_HERE)


@dataclass(frozen=True, slots=True)
class RuledAccess(Access):
    """The rights that the access file gives a user, as far as the scope of a token reaches."""

    user: str
    rules: AccessRules
    by: str = ""
    token: KnownToken | None = None
    wants: str = ""
    sees_all: bool = False

    @property
    def admitted(self) -> bool:
        """True if any rule gives the user anything."""
        return self.rules.knows(self.user)

    def objection(self, permission: Permission, path: str, ref: bytes = b"") -> str:
        """The objection of the scope or the rules. It tells nothing that depends on whether there is such a
        repository."""
        beyond = "" if self.token is None else self.token.objection(permission, path)
        if beyond or self.rules.gives(self.user, permission, path, ref):
            return beyond
        level, _ = self.rules.decides(self.user, permission, path, ref)
        return f"the server's access rules give {self.user} {f'{level.word} and no more' if level else 'nothing'} here"


@dataclass(frozen=True, slots=True)
class RuledUser:
    """The admission of a user whom the medium names."""

    user: str
    file: AccessFile
    by: str = ""
    """The fingerprint of the key that logged the user in."""

    def admit(self, extras: Mapping[str, msgspec.Raw]) -> RuledAccess:
        """The rights that the rules of this moment give.

        Raises:
            AccessDenied: the key is no longer in the file.
        """
        rules = self.file.rules
        if self.by and not any(key.fingerprint == self.by and key.user == self.user for key in rules.keys):
            raise AccessDenied("log in", f"the key {self.by} is no longer one of {self.user}")
        return RuledAccess(self.user, rules, self.by)


@dataclass(frozen=True, slots=True)
class TokenAdmission:
    """The admission of users of an access file over TCP: a token says who the user is. Without one he is anonymous."""

    file: AccessFile
    tokens: TokenFile
    private: bool
    """True if nobody on the way can read what is sent."""
    clock: Callable[[], float] = time.time

    def admit(self, extras: Mapping[str, msgspec.Raw]) -> RuledAccess:
        """The rights that the rules and the tokens of this moment give.

        Raises:
            AccessDenied: the token counts no more, or never did, or others could read it.
        """
        rules, tokens = self.file.rules, self.tokens.content
        given = extras.get("token")
        if given is None:
            return RuledAccess(ANONYMOUS, rules, wants=TOKEN_WANTED if tokens.known else "")
        if not tokens.known:  # Perhaps its file is missing: the client is to keep what it has.
            raise AccessDenied("log in", "this server accepts no tokens")
        try:
            known = tokens.find(msgspec.msgpack.decode(given, type=str))
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise _refused("the token is not text") from None
        if not self.private:
            if known is not None:
                log.warning("the token %s of %s came without encryption: revoke it", known.text.id, known.text.user)
            raise _refused("the token came without encryption, and anybody on the way could read it: have it revoked")
        if known is None:
            raise _refused("the token is unknown")
        if known.text.has_expired(self.clock()):
            raise _refused(f"the token {known.text.id} has expired")
        return RuledAccess(known.text.user, rules, f"token {known.text.id}", known)


def by_token(file: AccessFile, tokens: TokenFile) -> Callable[[str, bool], TokenAdmission]:
    """From a client's address, and whether its connection is private, to its admission."""
    return lambda _host, private: TokenAdmission(file, tokens, private)


def _refused(why: str) -> AccessDenied:
    """The refusal of a token. Nothing of the token is in the message, because the message is logged."""
    return AccessDenied("log in", why, token=TOKEN_REFUSED)
