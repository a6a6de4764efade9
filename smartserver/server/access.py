"""The rights of a user. Read is given per repository; write, create and force per ref too.

A connection has an `Admission`, which returns the user and the user's current rights for each request. So changed rules
apply from the next request on.
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
    """The rights of users whom the medium does not identify."""

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
    """The value of `AccessDenied.token` in a refusal."""
    sees_all: bool = True
    """True if the user may know of every repository."""

    def objection(self, permission: Permission, path: str, ref: bytes = b"") -> str:
        """Return the reason why the user lacks a permission for a repository or one of its refs; empty if the user has
        it.

        Without a ref, WRITE means the permission to change any ref at all.
        """
        raise NotImplementedError

    @property
    def admitted(self) -> bool:
        """True if the user has at least one permission on this server."""
        raise NotImplementedError

    def may(self, permission: Permission, path: str) -> bool:
        """Return True if the user has a permission for a repository."""
        return not self.objection(permission, path)

    def require(self, permission: Permission, path: str, ref: bytes = b"") -> None:
        """Check one permission.

        Raises:
            AccessDenied: the user lacks the permission.
        """
        why = self.objection(permission, path, ref)
        if why:
            name = ref.replace(b"\0", b":").decode("utf-8", "backslashreplace")
            raise AccessDenied(f"{permission.value} {name}".rstrip(), why, token=self.wants)


class Admission(Protocol):
    """Identifies the user of each request."""

    def admit(self, extras: Mapping[str, msgspec.Raw]) -> Access:
        """Return the rights of the user who makes a request. `extras`: the request's extra fields, such as `token`.

        Raises:
            AccessDenied: the token or the key of the user is not accepted.
        """


@dataclass(frozen=True, slots=True)
class FixedAccess(Access):
    """The same permissions for all repositories. `why`: the reason that refusals give. The object is also the admission
    of the user."""

    user: str
    permissions: Set[Permission]
    why: str
    why_no_vfs: str = ""
    """The reason for refusals of file-level verbs; if it is empty, `why` is used."""

    def admit(self, extras: Mapping[str, msgspec.Raw]) -> Self:
        """Return this object for every request."""
        return self

    @property
    def admitted(self) -> bool:
        """True if the user may read."""
        return Permission.READ in self.permissions

    def objection(self, permission: Permission, path: str, ref: bytes = b"") -> str:
        """Return the same objection for every path and ref."""
        if permission in self.permissions:
            return ""
        return (permission is Permission.VFS and self.why_no_vfs) or self.why


EVERYTHING = frozenset(Permission)


def invoking_user(user: str) -> FixedAccess:
    """Return the access of the user who started the server (stdio): every permission, as far as the file system
    allows."""
    return FixedAccess(user, EVERYTHING, "")


def on_streams(user: str, policy: Anonymous | None) -> FixedAccess:
    """Return the access of a client on standard input and output: by default, every permission. A policy limits it to
    what an anonymous user on another machine may do, because the other end of a pipe may be anywhere."""
    if policy is None:
        return invoking_user(user)
    given = anonymous(policy, local=False)
    if policy is Anonymous.WRITE:
        given = replace(given, why="the server runs with `--stdio --anonymous write`, which does not permit it")
    return replace(given, user=user, why_no_vfs="")


def anonymous(policy: Anonymous, *, local: bool) -> FixedAccess:
    """Return the access of a user whom the medium does not identify. `local`: True if the client is on loopback. Any
    other client gets READ, WRITE and CREATE at most."""
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
    """The rights that the access file gives a user, limited by the scope of the user's token."""

    user: str
    rules: AccessRules
    by: str = ""
    token: KnownToken | None = None
    wants: str = ""
    sees_all: bool = False

    @property
    def admitted(self) -> bool:
        """True if a rule grants the user any permission."""
        return self.rules.knows(self.user)

    def objection(self, permission: Permission, path: str, ref: bytes = b"") -> str:
        """Return the objection of the token's scope or of the rules, whether the repository exists or not."""
        beyond = "" if self.token is None else self.token.objection(permission, path)
        if beyond or self.rules.gives(self.user, permission, path, ref):
            return beyond
        level, _ = self.rules.decides(self.user, permission, path, ref)
        allowed = f"only {level.word}" if level else "nothing"
        more = "" if self.user == ANONYMOUS else "; ask its administrator for more"
        return f"the server's access rules allow {self.user} {allowed} here{more}"


@dataclass(frozen=True, slots=True)
class RuledUser:
    """The admission of a user whom the medium, such as ssh, identifies."""

    user: str
    file: AccessFile
    by: str = ""
    """The fingerprint of the key that logged the user in."""

    def admit(self, extras: Mapping[str, msgspec.Raw]) -> RuledAccess:
        """Return the rights of the user by the current rules.

        Raises:
            AccessDenied: the key is no longer in the file.
        """
        rules = self.file.rules
        if self.by and not any(key.fingerprint == self.by and key.user == self.user for key in rules.keys):
            why = f"the server's access file no longer has the key {self.by} of {self.user}: ask its administrator"
            raise AccessDenied("log in", why)
        return RuledAccess(self.user, rules, self.by)


@dataclass(frozen=True, slots=True)
class TokenAdmission:
    """The admission of users over TCP by an access file. A token identifies the user; a request without one is
    anonymous."""

    file: AccessFile
    tokens: TokenFile
    private: bool
    """True if nobody can read the requests on the way, because they are encrypted or stay on this machine."""
    clock: Callable[[], float] = time.time

    def admit(self, extras: Mapping[str, msgspec.Raw]) -> RuledAccess:
        """Return the rights that the user has by the current rules and tokens.

        Raises:
            AccessDenied: the token is unknown, malformed or expired, or was sent unencrypted; or the server accepts no
            tokens.
        """
        rules, tokens = self.file.rules, self.tokens.content
        given = extras.get("token")
        if given is None:
            return RuledAccess(ANONYMOUS, rules, wants=TOKEN_WANTED if tokens.known else "")
        if not tokens.known:  # Its file may be missing: the client must keep its token.
            raise AccessDenied("log in", "this server has no tokens: log in over ssh, or ask its administrator")
        try:
            known = tokens.find(msgspec.msgpack.decode(given, type=str))
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise _refused("the token is not text") from None
        if not self.private:
            if known is not None:
                log.warning("the token %s of %s came without encryption: revoke it", known.text.id, known.text.user)
            raise _refused("the token was sent without encryption, so others may have read it: have it revoked")
        if known is None:
            raise _refused("the token is unknown")
        if known.text.has_expired(self.clock()):
            raise _refused(f"the token {known.text.id} has expired")
        return RuledAccess(known.text.user, rules, f"token {known.text.id}", known)


def by_token(file: AccessFile, tokens: TokenFile) -> Callable[[str, bool], TokenAdmission]:
    """Return a function that returns the admission of a client. Its arguments are the client's address, and True if the
    connection is private."""
    return lambda _host, private: TokenAdmission(file, tokens, private)


def _refused(why: str) -> AccessDenied:
    """Return the refusal of a token. Nothing of the token is in the message, because the message is logged."""
    return AccessDenied("log in", why, token=TOKEN_REFUSED)
