"""Keeps one `Remote` for each branch on a server that the running command uses, and explains why a command failed."""

from __future__ import annotations

from breezy import errors
from breezy.transport import NoSuchFile

from smartserver.client.places import served_by
from smartserver.plugins import breezy_shim as hpss
from smartserver.plugins.breezy.mirror import damage
from smartserver.plugins.breezy.remote import Remote
from smartserver.plugins.breezy.running import current
from smartserver.plugins.breezy.transport import HpssTransport

UNREAD = (errors.NoSuchRevision, NoSuchFile)
"""Errors that Breezy raises if a file of a repository does not have the content that Breezy wrote, in addition to the
errors of its own stores."""

_remotes: dict[tuple[str, str, bool], tuple[hpss.RunningCommand, Remote]] = {}
"""The branches of the running command, by server, path, and whether the path may lead into a branch."""


def remote_at(transport: HpssTransport, name: str = "", *, inside: bool = False) -> Remote:
    """Return the branch at a URL; in a command the same object each time."""
    made = Remote(transport, name, inside=inside)
    command = current()
    if command is None:
        return made
    key = served_by(made.location), made.path, inside
    found = _remotes.get(key)
    if found is None or found[0] is not command:
        _remotes[key] = found = command, made
    return found[1]


def share(transport: HpssTransport, remote: Remote) -> None:
    """Use a branch that was found by a path inside it for the branch's own path as well."""
    command = current()
    if command is not None:
        own = Remote(transport)
        _remotes[served_by(own.location), own.path, False] = command, remote


def explain(error: Exception) -> None:
    """Raise CommandError with the cause if a damaged mirror, or a missing parent of a lightweight checkout, may have
    caused `error`. Otherwise return."""
    is_plain = isinstance(error, errors.BzrError) and not error.internal_error
    if is_plain and not (isinstance(error, UNREAD) or type(error).__module__.startswith("breezy.bzr.")):
        return
    gone = [remote.history.checkouts.gone for command, remote in _remotes.values() if command is current()]
    why = damage() or next(filter(None, gone), "")
    if why:
        raise errors.CommandError(why) from error
