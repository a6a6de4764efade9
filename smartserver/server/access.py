"""Who may do what. Read is given per repository; write, create, force and delete per ref."""

from __future__ import annotations

import enum
from collections.abc import Set
from dataclasses import dataclass, replace

from smartserver.errors import AccessDenied
from smartserver.verbs.declare import Permission


class Anonymous(enum.StrEnum):
    """What users whom the medium does not name may do."""

    NONE = "none"
    READ = "read"
    WRITE = "write"


FROM_HERE = "anonymous users may do that from this machine only"


@dataclass(frozen=True, slots=True)
class Access:
    """One user's permissions; `why` completes a refusal."""

    user: str
    permissions: Set[Permission]
    why: str
    why_no_vfs: str = ""
    """Where that is another reason."""

    def require(self, permission: Permission, ref: bytes = b"") -> None:
        """Check one permission.

        Raises:
            AccessDenied: it is not given.
        """
        if permission not in self.permissions:
            name = ref.decode("utf-8", "backslashreplace")
            why = (permission is Permission.VFS and self.why_no_vfs) or self.why
            raise AccessDenied(f"{permission.value} {name}".rstrip(), why)


EVERYTHING = frozenset(Permission)


def invoking_user(user: str) -> Access:
    """The user who started the server (stdio): whatever the file system lets them."""
    return Access(user, EVERYTHING, "")


def on_streams(user: str, policy: Anonymous | None) -> Access:
    """A client on standard input and output, by default with all that the invoking user may do. A policy limits it to
    what an anonymous user on another machine may do: nothing says where the other end of a pipe is."""
    if policy is None:
        return invoking_user(user)
    given = anonymous(policy, local=False)
    if policy is Anonymous.WRITE:
        given = replace(given, why="`serve --stdio --anonymous write` does not give that permission")
    return replace(given, user=user, why_no_vfs="")


def anonymous(policy: Anonymous, *, local: bool) -> Access:
    """A user whom the medium does not name; force, delete and VFS are never given beyond loopback (`local`)."""
    if policy is Anonymous.NONE:
        return Access("anonymous", frozenset(), "this server admits no anonymous users (`serve --anonymous none`)")
    if policy is Anonymous.READ:
        why = "this server is read-only for anonymous users (start it with `--anonymous write`)"
        given = {Permission.READ, Permission.VFS} if local else {Permission.READ}
        return Access("anonymous", frozenset(given), why, FROM_HERE)
    if local:
        return Access("anonymous", EVERYTHING, "")
    return Access("anonymous", frozenset({Permission.READ, Permission.WRITE, Permission.CREATE}), FROM_HERE)
