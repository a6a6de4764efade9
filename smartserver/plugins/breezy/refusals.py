"""Why what Breezy can do with its own branches cannot be done with those on a server."""

from __future__ import annotations

from breezy import errors

STACKED = "a branch of an hpss:// server cannot be stacked on: leave out --stacked; a whole branch takes one round trip"
ONLY_2A = "a repository on an hpss:// server has the format 2a: `brz upgrade --2a` converts a branch of another"
EMPTY = "there is nothing to push: the branch has no revision yet; commit first"
LOSSY = "nothing of a branch is lost on the way to hpss://: push it without --lossy"
HAS_A_REVISION = "a branch of an hpss server has a revision: remove it by `brz remove-branch`"
BOUND = "a branch on an hpss:// server cannot be bound: leave out --bind"
RECONFIGURED = "a branch on an hpss:// server cannot be reconfigured: it has neither a tree nor a repository of its own"
NO_POLICY = "there are no working trees on an hpss:// server, and whether others have one is not kept there"
PAGES = "a repository on an hpss:// server keeps its pages as they were pushed"


class NotOnServer(errors.UnsupportedOperation):  # type: ignore[misc]  # Breezy is not typed.
    """What a server does not do; a command shows the reason alone."""

    _fmt = "%(why)s"

    def __init__(self, why: str) -> None:
        errors.BzrError.__init__(self, why=why)


class NoTreePolicy(NotOnServer, NotImplementedError):
    """Whether clones get working trees cannot be set; Breezy's copying goes on where this is not implemented."""


class NoTrees(errors.NotLocalUrl):  # type: ignore[misc]
    """A working tree is to be made where there can be none."""

    _fmt = "there are no working trees on an hpss:// server: %(url)s"


def deleted_by(url: str) -> str:
    """Why a repository stays where Breezy would delete it."""
    return f"a repository on an hpss:// server has other branches, too: `smartserver delete {url}` deletes all of it"


def made_by_a_push(url: str) -> str:
    """Why there is no branch without a revision."""
    return f"a branch on an hpss:// server begins with its first revision: commit it here, then `brz push {url}`"
