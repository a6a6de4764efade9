"""What the command that runs was given, and which revision `-r` names as far as its words tell: what is read before
anything is known of the branch. Which command runs, `commands` alone asks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from breezy import errors
from breezy.directory_service import directories
from breezy.errors import CommandError

from smartserver.client.plain import plain
from smartserver.plugins import breezy_shim as hpss
from smartserver.records.model import RevisionId
from smartserver.vcs.bzr.selector import Called, Named, RevisionsField, Tag
from smartserver.verbs.fields import MAX_NAME

Arguments = Mapping[str, Any]
"""What a command was given, by name."""

LOCATIONS = (
    "branch", "branch_location", "dir", "directory", "file_list", "filename", "from_location", "location", "new", "old",
    "other", "path", "submit_branch", "to_location",
)  # fmt: skip
"""Names of the arguments that may be locations."""


def current() -> hpss.RunningCommand | None:
    """The command that runs, the innermost where one has begun another; a program that calls Breezy runs none."""
    return hpss.running[-1] if hpss.running else None


def arguments() -> Arguments:
    """What the command that runs was given, with what aliases of locations (`:parent/f`) stand for; empty if none runs.

    An alias that cannot be looked up is left as it is: Breezy is going to say why.
    """
    command = current()
    if command is None:
        return {}
    locations = {name: _dereferenced(command.arguments[name]) for name in LOCATIONS if name in command.arguments}
    command.arguments = found = {**command.arguments, **locations}
    return found


def _dereferenced(location: Any) -> Any:
    if isinstance(location, list):
        return [_dereferenced(each) for each in location]
    if isinstance(location, str) and location.startswith(":"):
        try:
            return directories.dereference(location)
        except errors.BzrError:
            pass
    return location


def given(name: str) -> Any:
    """What the command that runs was given for an option or argument; None where it was given nothing, or none runs."""
    return arguments().get(name)


def is_ours(location: object) -> bool:
    """Whether something a command was given is a URL of ours."""
    return isinstance(location, str) and location.startswith(hpss.SCHEMES)


def lies_beside(arguments: Arguments) -> bool:
    """Whether a branch is made from one beside it: they are likely to be in one repository."""
    places: list[Any] = [arguments.get("from_location"), arguments.get("to_location")]
    if not all(map(is_ours, places)):
        return False
    one, other = [place.rstrip("/").rpartition("/")[0] for place in places]
    return bool(one == other)  # From one to another.


TIP = -1

_NUMBER = re.compile(r"(?:revno:)?(-?[0-9]{1,9})")
_LAST = re.compile(r"last:([0-9]{1,9})")
_BEFORE = re.compile(r"before:([0-9]{1,9})")
_ID = re.compile(r"(?:before:)*(?:revid:|(?=[^:]*@))(.+)", re.DOTALL)
"""An id, or what is likely to be one: Breezy's own have the address of the user in them."""

_TAG = re.compile(r"tag:.*|(?!-|[0-9]+(\.[0-9]+)*$|[0-9]{4}-[0-9]|(yester|to)day$|tomorrow$)[^:@]*", re.DOTALL)
"""A tag, or what is likely to be one: no number, date or revision id."""


REVISIONS = ("revision", "change", "revision_info_list")
"""Names of the arguments that are lists of revisions."""


class Unclear(Exception):
    """Only a look at the branch can tell which revision is meant; `look`: at what, None: at its tip and tags."""

    def __init__(self, look: RevisionsField | None) -> None:
        super().__init__()
        self.look = look


def revision(spec: Any) -> Named | None:
    """The revision a `RevisionSpec` names; None for what is left out.

    Raises:
        Unclear: it names none by number or id.
        CommandError: its words can be no revision's name.
    """
    said = _said(spec)
    if not said:
        return None
    if (found := _NUMBER.fullmatch(said)) and int(found[1]):
        return int(found[1])
    if (found := _LAST.fullmatch(said)) and int(found[1]):
        return -int(found[1])
    if (found := _BEFORE.fullmatch(said)) and int(found[1]) > 1:
        return int(found[1]) - 1
    if said.startswith("revid:") and len(said) > 6:
        named: RevisionId = said[6:].encode()
        if len(named) <= MAX_NAME:
            return named
    if said.startswith("date:"):
        raise Unclear(RevisionsField(left_hand=True))
    raise Unclear(None if said.startswith("tag:") else RevisionsField(bare=True))


def one(arguments: Arguments) -> Named:
    """The one revision of a command that reads one.

    Raises:
        Unclear, CommandError: as `revision`.
    """
    given = arguments.get("revision")
    found = revision(given[0]) if given else None
    return TIP if found is None else found


def ids_given() -> set[RevisionId]:
    """The IDs in the revisions that the running command was given. A branch may not reach such a revision."""
    command = current()
    specs = [] if command is None else [spec for name in REVISIONS for spec in command.arguments.get(name) or []]
    named = [found[1].encode() for spec in specs if (found := _ID.fullmatch(_said(spec)))]
    return {revision for revision in named if len(revision) <= MAX_NAME}


def until(spec: Any) -> Called | None:
    """The one revision whose history a command wants of a branch; None where it wants all, or only a look can tell.

    Raises:
        CommandError: as `revision`.
    """
    said = _said(spec)
    if found := _BEFORE.fullmatch(said):  # Its parent is looked up.
        return int(found[1]) or None
    try:
        return revision(spec)
    except Unclear:
        return tag_of(spec)


def tag_of(spec: Any) -> Tag | None:
    """The tag that a `RevisionSpec` names, or is likely to; None where it names none."""
    said = _said(spec)
    tag = said.removeprefix("tag:").encode() if _TAG.fullmatch(said) else b""
    return Tag(tag) if 0 < len(tag) <= MAX_NAME else None


def what_to_look_at(spec: Any) -> RevisionsField | None:
    """What of a branch tells which revision it is whose history a command wants, and that `until` cannot name."""
    try:
        revision(spec)
    except Unclear as unclear:
        return None if until(spec) is not None else unclear.look or RevisionsField(bare=True)
    return None


def _said(spec: Any) -> str:
    """What the user wrote; empty where he wrote nothing."""
    said: str = spec if isinstance(spec, str) else getattr(spec, "user_spec", None) or ""
    try:
        said.encode()
    except UnicodeEncodeError:
        raise CommandError(plain(f"no revision is called {said}: a name is written in UTF-8")) from None
    return said
