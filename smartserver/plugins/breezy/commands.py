"""Every decision that hangs on which brz command runs: a row a command, and nowhere else is a command named.

A branch on a server is read before Breezy says what for, and Breezy asks the same of a branch whatever it is going to
do with the answer. So the adapters ask the row of the command that runs. A row is a guess about Breezy's code: a wrong
one costs bytes or a round trip, except where a field refuses something.

A command without a row reads what the branch is, and the revisions that its arguments name.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from smartserver.plugins.breezy import selection as reads
from smartserver.plugins.breezy.given import Arguments, arguments, current, given, is_ours, lies_beside
from smartserver.plugins.breezy.selection import Selection


class Second(enum.Enum):
    """What a command does with a second branch on the same server, of which the answer about the first one tells."""

    COMPARED = enum.auto()
    """It is compared with the first: nothing of it is read where a local repository has its tip."""
    MERGED = enum.auto()
    """It is merged, and read by itself. In a lightweight checkout the server has it before it is committed."""
    PULLED = enum.auto()
    """It is pulled into the branch of a lightweight checkout, and is asked first."""
    SWITCHED_TO = enum.auto()
    """A lightweight checkout becomes one of it, and it is asked first."""
    TREE = enum.auto()
    """The trees of both are compared (`--old`, `--new`)."""
    GRAPH = enum.auto()
    """The ancestors of both are read, from one graph."""


class Makes(enum.Enum):
    """What a command makes."""

    NOTHING = enum.auto()
    BRANCH = enum.auto()
    CHECKOUT = enum.auto()
    CLONE = enum.auto()
    """Of a whole control directory, with its branches."""
    PUSHED = enum.auto()
    """A branch at the place that is pushed to; the others go to a folder that may have to be made."""


class Gone(enum.Enum):
    """What becomes of a command whose checkout rests on a revision that is nowhere any more."""

    UNSAID = enum.auto()
    WARNS = enum.auto()
    """It goes on; Breezy is going to say that an update is the way out."""
    ENDS = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What a command reads, what it writes and what it may keep."""

    # -- what it reads

    first: Callable[[Arguments], Selection | None] | Selection | None = reads.named_revisions
    """What the first request asks for, by what the command was given; None: whole revisions, or what the branch is."""
    fetches: bool = False
    """Whether what it asks for goes into a local repository, or is compared with one. Else it is read here and kept."""
    reads_history: bool = True
    """Whether it asks for history where `first` says None; else for the tip, the tags and the options alone."""
    up_to_one: bool = False
    """Whether it brings the history of one revision where one is named."""
    second: Second = Second.COMPARED
    """What it does with a second branch on the server."""
    opens_twice: bool = False
    """Whether it opens a branch more than once; the objects share what one has read. So do those of all that reads."""
    reads_two_parts: bool = False
    """Whether it reads two branches of a repository, of which each object has its own part here."""
    only_compares: bool = False
    """Whether it compares with what it fetches, and writes nothing that names that."""
    of_repository: bool = False
    """Whether it asks of the repository alone: which branch a path leads to need not be known before."""
    tries_branches: bool = False
    """Whether it goes on with the repository where a branch cannot be opened, or changes something here before it reads
    the branch: whether that is there is asked at once.
    """
    lists_below: bool = False
    """Whether it asks which branches lie below a place."""
    if_gone: Gone = Gone.UNSAID
    """What becomes of it where the tree of a checkout rests on a revision that is nowhere."""
    counts_from_nearest: bool = False
    """Whether a revision that the branch does not reach has the number of the first below it that it does reach."""
    needs_no_number: bool = False
    """Whether it describes a revision that has no number any more all the same."""

    # -- what it shows

    shows_advice: bool = False
    """Whether it asks what the server advises, and shows it each time."""
    shows_options: bool = False
    """Whether it shows all options of a branch, and obeys none; or those for a place where no branch is."""
    shows_repository: bool = False
    """Whether it shows what a repository is, and copies nothing of it: not even that copies have trees."""

    # -- what it writes

    makes: Makes = Makes.NOTHING
    decides_without: str | None = None
    """The option that makes the command read the branch before it changes it. Without that option, what is remembered
    decides the change, and the server refuses it if that is stale. None: the command always reads first."""
    removes_revisions: bool = False
    """Whether it removes revisions from the branch, for which they must be here, and the tags of those."""
    tags_tip: bool = False
    """Whether it compares a tag that is there with the tip."""
    replaces_branch: bool = False
    """Whether it removes a branch before it asks for what replaces it: of one on a server that is refused."""
    verifies: bool = False
    """Whether it has everything checked; what else it asks then is answered by the same request."""
    upgrades: bool = False
    """Whether it upgrades a repository and then the branches in it: on a server all is in one."""

    @property
    def makes_folder(self) -> bool:
        """Whether it makes a branch, a checkout or a clone, in a folder that may have to be made."""
        return self.makes not in (Makes.NOTHING, Makes.PUSHED)

    @property
    def shares_branches(self) -> bool:
        """Whether objects of one branch share what one of them has read."""
        return self.opens_twice or not self.fetches

    @property
    def moves_checkout(self) -> bool:
        """Whether a lightweight checkout becomes like another branch, which is asked before its own."""
        return self.second in (Second.PULLED, Second.SWITCHED_TO)


FETCHES = Command(first=None, fetches=True)
"""A command that brings history, or compares history with what is here, and of which nothing else need be known."""

WHOLE = Command(first=None)
"""One that reads whole revisions, one after the other."""

OPTIONS = "bind"
"""One that asks what a branch is and no more; `commit` reads trees, too, in a lightweight checkout."""

COMMANDS: dict[str, Command] = {
    "ancestor-growth": Command(first=reads.GRAPH),
    "ancestry": Command(first=reads.ancestry),
    "annotate": Command(first=reads.file_versions, if_gone=Gone.ENDS),
    OPTIONS: Command(first=None, fetches=True, reads_history=False, tries_branches=True),
    "branch": Command(first=reads.copied_revision, fetches=True, up_to_one=True, makes=Makes.BRANCH),
    "branches": Command(tries_branches=True, lists_below=True),
    "bundle-revisions": Command(first=None, fetches=True, only_compares=True),
    "cat": Command(first=reads.file_text),
    "check": Command(of_repository=True, verifies=True),
    "checkout": Command(first=reads.new_tree, fetches=True, up_to_one=True, tries_branches=True, makes=Makes.CHECKOUT),
    "clone": Command(first=None, fetches=True, up_to_one=True, makes=Makes.CLONE),
    "commit": Command(first=reads.tree_basis, fetches=True, reads_history=False, if_gone=Gone.ENDS),
    "committer-statistics": Command(first=reads.ALL_MESSAGES),
    "config": Command(shows_options=True, decides_without="remove"),
    "diff": Command(first=reads.two_trees, second=Second.TREE),
    "export": Command(first=reads.whole_tree),
    "fast-export": WHOLE,
    "fetch-ghosts": FETCHES,
    "find-merge-base": Command(first=reads.GRAPH, second=Second.GRAPH),
    "grep": WHOLE,
    "info": Command(
        first=reads.branch_stats,
        tries_branches=True,
        counts_from_nearest=True,
        shows_advice=True,
        shows_repository=True,
    ),
    "init": Command(tries_branches=True),
    "init-shared-repository": Command(shows_repository=True),
    "join": FETCHES,
    "log": Command(first=reads.logged_revisions),
    "ls": Command(first=reads.file_names),
    "merge": Command(
        first=None,
        fetches=True,
        second=Second.MERGED,
        opens_twice=True,
        reads_two_parts=True,
        tries_branches=True,
    ),
    "merge-directive": Command(first=None, fetches=True, only_compares=True),
    "missing": FETCHES,
    "nick": Command(decides_without="remove"),
    "pack": Command(of_repository=True),
    "pull": Command(first=None, fetches=True, up_to_one=True, second=Second.PULLED, tries_branches=True),
    "push": Command(first=None, fetches=True, makes=Makes.PUSHED),
    "re-sign": WHOLE,
    "rebase": FETCHES,
    "reconfigure": Command(first=None, fetches=True, opens_twice=True, tries_branches=True, replaces_branch=True),
    "remerge": WHOLE,
    "replay": FETCHES,
    "revert": Command(first=reads.reverted_files),
    "revision-history": Command(first=reads.MAINLINE),
    "revision-info": Command(first=reads.revision_number),
    "revno": Command(first=reads.revision_number),
    "send": Command(first=None, fetches=True, reads_two_parts=True, only_compares=True, tries_branches=True),
    "sign-my-commits": WHOLE,
    "status": Command(first=reads.tree_status, if_gone=Gone.WARNS),
    "switch": Command(
        first=reads.switched_tree, fetches=True, second=Second.SWITCHED_TO, opens_twice=True, tries_branches=True
    ),
    "tag": Command(decides_without="revision", tags_tip=True),
    "tags": Command(first=reads.tag_numbers),
    "testament": Command(first=reads.testament),
    # A dry run shows only, so it must ask the server.
    "uncommit": Command(first=reads.removed_revisions, decides_without="dry_run", removes_revisions=True),
    "update": Command(first=reads.newer_tree, fetches=True, if_gone=Gone.ENDS),
    "upgrade": Command(upgrades=True),
    "verify-signatures": WHOLE,
    "version-info": Command(first=reads.described_revision, if_gone=Gone.ENDS, needs_no_number=True),
}


OTHER = Command()
"""A command without a row."""


def running() -> Command:
    """The row of the command that runs; a program that calls Breezy is taken to fetch."""
    command = current()
    return FETCHES if command is None else COMMANDS.get(command.name, OTHER)


def wanted() -> Selection | None:
    """What the first request of the command that runs asks for; None: for whole revisions, or what the branch is."""
    first = running().first
    return first(arguments()) if callable(first) else first


def wants_history() -> bool:
    """Whether the history of a branch is going to be asked for."""
    return running().reads_history and not copies_there()


def may_remember() -> bool:
    """Whether what a branch on the server is to become follows from what is remembered of it, as far as that is so."""
    option = running().decides_without
    # A checkout's own branch is compared with the server's: that must be as it is.
    return option is not None and not given(option) and any(is_ours(each) for each in arguments().values())


def copies_there() -> bool:
    """Whether a branch is made from what one beside it is."""
    return running().makes is Makes.BRANCH and lies_beside(arguments()) and not given("revision")


def up_to() -> Any:
    """The one revision that a command which brings its history was given; None where there is none such."""
    named = given("revision") or [] if running().up_to_one else []
    return named[0] if len(named) == 1 else None


@contextmanager
def reads_options() -> Iterator[None]:
    """While this lasts a branch that is opened is asked for its options alone, whatever command runs."""
    command = current()
    if command is None:
        yield
        return
    before = command.name, command.arguments
    command.name, command.arguments = OPTIONS, {}
    try:
        yield
    finally:
        command.name, command.arguments = before
