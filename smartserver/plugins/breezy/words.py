"""Converts errors of a server to Breezy's own errors. Breezy's commands catch these, print the message and exit with
Breezy's status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from breezy import errors
from breezy.repository import Repository

from smartserver.client.medium import CannotConnect, MediumError
from smartserver.client.places import damage_in_words, how_to_serve
from smartserver.client.plain import plain
from smartserver.client.request import NotOurProtocol
from smartserver.errors import (
    A_BAZAAR_REPOSITORY,
    A_GIT_REPOSITORY,
    AccessDenied,
    CorruptFile,
    CorruptRecord,
    NoSuchBranch,
    NoSuchRepository,
    OutcomeUnknown,
    ServerBusy,
    WrongVcs,
)
from smartserver.plugins.breezy.running import runs
from smartserver.records.model import HERE, RevisionId
from smartserver.records.varint import Malformed
from smartserver.vcs.base import VcsError
from smartserver.wire.errors import ProtocolError
from transports.errors import CodedError, TransportError
from transports.errors import PermissionDenied as StoreDenies

if TYPE_CHECKING:
    from smartserver.client.places import Place


@contextmanager
def in_breezys_words(url: str, location: Place) -> Iterator[None]:
    """Raise Breezy's error for any error about the place at `url`."""
    try:
        yield
    except CannotConnect as error:
        raise errors.ConnectionError(plain(str(error))) from error
    except (MediumError, ProtocolError, NotOurProtocol, ServerBusy, OutcomeUnknown) as error:
        raise errors.ConnectionError(_at(location, error)) from error
    except NoSuchRepository as error:
        there = plain(_instead(error.found, location)) if error.found else None
        raise errors.NotBranchError(path=url, detail=there) from error
    except NoSuchBranch as error:
        there = "location is a repository" if error.ref == HERE else None  # In Breezy's own words.
        raise errors.NotBranchError(path=url, detail=there) from error
    except WrongVcs as error:
        use = ", which git clones and pushes to" if error.vcs.startswith("git ") else ""
        other = errors.NotBranchError(path=url, detail=plain(f"there is a repository of {error.vcs}{use}"))
        if runs("config"):  # Without a branch it would show the options of the place in locations.conf.
            raise errors.CommandError(str(other)) from error
        raise other from error
    except (AccessDenied, StoreDenies) as error:
        raise errors.PermissionDenied(url, plain(str(error))) from error
    except Malformed as error:
        raise errors.ConnectionError(
            f"{location.where}: the server's answer cannot be read: {plain(str(error))}"
        ) from error
    except CorruptFile as error:
        raise errors.BzrError(plain(damage_in_words(location, error))) from error
    except CorruptRecord as error:
        raise errors.BzrError(plain(f"{error} (`brz check` shows whether it is damaged here)")) from error
    except TransportError as error:
        raise errors.BzrError(_at(location, error)) from error
    except (CodedError, VcsError) as error:
        raise errors.BzrError(plain(str(error))) from error


def _at(location: Place, error: Exception) -> str:
    """Return the text of an error, with the server or store in front unless the text names it."""
    said = plain(str(error))
    return said if location.where in said else f"{location.where}: {said}"


def _instead(found: str, location: Place) -> str:
    """Return a line about what was found at a place instead of a repository, and about how to serve it."""
    push = {A_GIT_REPOSITORY: "git push --mirror", A_BAZAAR_REPOSITORY: "brz push"}.get(found)
    return f"there is {found}" if push is None else f"there is {found}, {how_to_serve(location, push)}"


STACKED = "a branch of an hpss:// server cannot be stacked on: leave out --stacked; a whole branch takes one round trip"
ONLY_2A = "a repository on an hpss:// server has the format 2a: `brz upgrade --2a` converts a branch of another"
EMPTY = "there is nothing to push: the branch has no revision yet; commit first"
LOSSY = "a push to hpss:// loses nothing: leave out --lossy"
HAS_A_REVISION = "a branch on an hpss:// server cannot be empty: delete it with `brz remove-branch`"
BOUND = "a branch on an hpss:// server cannot be bound: leave out --bind"
RECONFIGURED = "a branch on an hpss:// server cannot be reconfigured: it has neither a tree nor a repository of its own"
NO_POLICY = "there are no working trees on an hpss:// server, and whether others have one is not kept there"
PAGES = "the inventory pages of a repository on an hpss:// server cannot be rewritten"


class NotOnServer(errors.UnsupportedOperation):  # type: ignore[misc]  # Breezy is not typed.
    """An operation that a server does not support. A command shows only the reason."""

    _fmt = "%(why)s"

    def __init__(self, why: str) -> None:
        errors.BzrError.__init__(self, why=why)


class NoTreePolicy(NotOnServer, NotImplementedError):
    """A policy for working trees cannot be set. Breezy's copying continues after a `NotImplementedError`."""


class NoTrees(errors.NotLocalUrl):  # type: ignore[misc]
    """A working tree would have to be created on a server."""

    _fmt = "there are no working trees on an hpss:// server: %(url)s"


def check_has(repository: Repository, revision: RevisionId, named: object = None) -> None:
    """Check that a repository has a revision. `named`: the object that the error names instead of the repository.

    Raises:
        NoSuchRevision: the revision is missing.
    """
    if not repository.has_revision(revision):
        raise errors.NoSuchRevision(repository if named is None else named, revision)


def deleted_by(url: str) -> str:
    """Return the message of a refusal to delete a repository on a server by Breezy's own command."""
    return f"a repository on an hpss:// server has other branches, too: `smartserver delete {url}` deletes all of it"


def made_by_a_push(url: str) -> str:
    """Return the message of a refusal to create a branch without a revision on a server."""
    return f"a branch on an hpss:// server begins with its first revision: commit it here, then `brz push {url}`"
