"""Who may do what. Read is given per repository; write, create and force per ref too.

A connection has an `Admission`: it says for each request who the user is and what he may do now, so that changed rules
count from the next request on.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Protocol, Self

import msgspec

from smartserver.errors import AccessDenied
from smartserver.server.rules import AccessFile, AccessRules
from smartserver.verbs.declare import Permission


class Anonymous(enum.StrEnum):
    """What users whom the medium does not name may do."""

    NONE = "none"
    READ = "read"
    WRITE = "write"


FROM_HERE = "anonymous users may do that from this machine only"


class Access:
    """What one user may do at the moment of a request."""

    user: str
    by: str = ""
    """What identified the user, for the log."""

    def objection(self, permission: Permission, path: str, ref: bytes = b"") -> str:
        """Why the user may not do that to a repository, or to a ref of it; empty if it is allowed.

        Without a ref, WRITE asks whether any ref may be changed.
        """
        raise NotImplementedError

    @property
    def admitted(self) -> bool:
        """Whether the user may do anything here."""
        raise NotImplementedError

    def may(self, permission: Permission, path: str, ref: bytes = b"") -> bool:
        """Whether a permission is given."""
        return not self.objection(permission, path, ref)

    def require(self, permission: Permission, path: str, ref: bytes = b"") -> None:
        """Check one permission.

        Raises:
            AccessDenied: it is not given.
        """
        why = self.objection(permission, path, ref)
        if why:
            name = ref.decode("utf-8", "backslashreplace")
            raise AccessDenied(f"{permission.value} {name}".rstrip(), why)


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
    """Where that is another reason."""

    def admit(self, extras: Mapping[str, msgspec.Raw]) -> Self:
        """The same for each request."""
        return self

    @property
    def admitted(self) -> bool:
        """Whether reading is given."""
        return Permission.READ in self.permissions

    def objection(self, permission: Permission, path: str, ref: bytes = b"") -> str:
        """As it is for every path and ref."""
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
    """What the access file gives a user."""

    user: str
    rules: AccessRules

    @property
    def admitted(self) -> bool:
        """Whether any rule gives the user anything."""
        return self.rules.knows(self.user)

    def objection(self, permission: Permission, path: str, ref: bytes = b"") -> str:
        """As the rules decide. It tells nothing that depends on whether there is such a repository."""
        if self.rules.gives(self.user, permission, path, ref):
            return ""
        level, _ = self.rules.decides(self.user, permission, path, ref)
        return f"the server's access rules give {self.user} {f'{level.word} and no more' if level else 'nothing'} here"


@dataclass(frozen=True, slots=True)
class RuledUser:
    """The admission of a user whom the medium names, or of the anonymous one."""

    user: str
    file: AccessFile

    def admit(self, extras: Mapping[str, msgspec.Raw]) -> RuledAccess:
        """What the rules of this moment give."""
        return RuledAccess(self.user, self.file.rules)
