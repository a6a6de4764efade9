"""`HpssDir`: the place that a URL names, as a control directory for Breezy. Opening it makes no request."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NoReturn

from breezy import controldir, errors, trace, urlutils
from breezy.branch import Branch
from breezy.config import TransportIniFileStore
from breezy.controldir import ControlDir
from breezy.push import PushResult
from breezy.revision import NULL_REVISION
from breezy.transport import Transport
from breezy.transport.memory import MemoryTransport

from smartserver.plugins.breezy import inter
from smartserver.plugins.breezy.branch import HpssBranch, HpssBranchFormat
from smartserver.plugins.breezy.change import OPTIONS_FILE
from smartserver.plugins.breezy.copy import copy
from smartserver.plugins.breezy.patches import put_around, watch_trees, watch_uncommit
from smartserver.plugins.breezy.push import Overwrite, Selector, push
from smartserver.plugins.breezy.remote import Remote
from smartserver.plugins.breezy.remotes import remote_at, share
from smartserver.plugins.breezy.repository import HpssRepository
from smartserver.plugins.breezy.running import asks_itself, given, is_ours, runs
from smartserver.plugins.breezy.transport import HpssTransport, below, path_of
from smartserver.plugins.breezy.words import (
    BOUND,
    ONLY_2A,
    RECONFIGURED,
    STACKED,
    NotOnServer,
    NoTrees,
    deleted_by,
    made_by_a_push,
)
from smartserver.records.model import RevisionId
from smartserver.vcs.bzr.compat import BzrDir, BzrDirMetaFormat1, format_2a, git_directory

NAME = "hpss"
"""The name of the format in `brz info`."""


class HpssDirFormat(BzrDirMetaFormat1):
    """The format of a control directory on a server."""

    fixed_components = True
    supports_workingtrees = False
    colocated_branches = True

    def get_format_description(self) -> str:
        """Return the name of the format for users."""
        return "hpss server"

    def network_name(self) -> bytes:
        """Return the name of the format in Breezy's smart protocol. No server of Breezy's knows this name."""
        return NAME.encode()

    def check_support_status(self, *arguments: object, **options: object) -> None:
        """Do nothing, because the format is supported."""

    def is_initializable(self) -> bool:
        """Return False: the first push creates a control directory."""
        return False

    def supports_transport(self, transport: Transport) -> bool:
        """Tell whether a transport belongs to an hpss:// URL."""
        return isinstance(transport, HpssTransport)

    def open(self, transport: HpssTransport, _found: bool = False) -> HpssDir:
        """Open a URL, without asking the server."""
        if runs("push") and (given("stacked") or given("stacked_on")):
            raise NotOnServer(STACKED)  # Breezy would push an unstacked branch.
        if runs("reconfigure") and is_ours(given("location")):
            raise NotOnServer(RECONFIGURED)  # Breezy removes the branch before it asks for its replacement.
        return HpssDir(transport, self)

    def get_branch_format(self) -> HpssBranchFormat:
        """Return the format of the directory's branches."""
        return HpssBranchFormat()

    @property
    def repository_format(self) -> Any:
        """The format of the directory's repository, which is 2a."""
        return format_2a().repository_format


class HpssDir(BzrDir):
    """The control directory at a URL. It has a repository, or a branch and the branches below the URL."""

    root_transport: HpssTransport

    def __init__(self, transport: HpssTransport, format: HpssDirFormat, remote: Remote | None = None) -> None:  # noqa: A002
        """`remote`: the branch at the URL, if the server has already answered a request for it."""
        super().__init__(transport, format)
        self._remotes: dict[str, Remote] = {"": remote} if remote is not None else {}

    @property
    def user_url(self) -> str:
        """The URL of the control directory."""
        url: str = self.root_transport.base
        return url

    def remote(self, name: str) -> Remote:
        """Return the branch of that name; an empty name means the branch at the URL itself."""
        if name not in self._remotes:
            self._remotes[name] = remote_at(self.root_transport, name)
        return self._remotes[name]

    # -- branches

    def open_branch(self, name: str | None = None, *arguments: object, **options: object) -> HpssBranch:
        """Open a branch. No request is sent for a remembered branch, except by `brz bind` and `brz switch`.

        Raises:
            NotBranchError: the branch does not exist.
        """
        name = self._get_selected_branch() if name is None else name
        remote = self.remote(name)
        try:
            asks = runs("bind") or runs("switch") or not remote.is_remembered
            if remote.seen is None and asks and not asks_itself():
                remote.look()
            if remote.seen is not None:
                remote.there()
            remote.was_opened = True
        except errors.NotBranchError as error:
            to = given("to_location")
            if runs("switch") and is_ours(to) and HpssTransport(to).base == self.user_url:
                raise errors.CommandError(str(error)) from error  # Breezy would look for a branch beside its own.
            raise
        watch_trees()
        return self._branch(name, makes=True)

    def unasked(self, name: str | None = None) -> HpssBranch:
        """Return a branch that may be missing, as the target of a push, without asking the server."""
        return self._branch(self._get_selected_branch() if name is None else name, makes=False)

    def _branch(self, name: str, *, makes: bool) -> HpssBranch:
        remote = self.remote(name)
        return HpssBranch(self, name, remote, HpssRepository(self, remote, makes=makes))

    def branch_names(self) -> list[str]:
        """Return the names of the branches at and below the URL; the branch at the URL has an empty name."""
        remote = self.remote("")
        remote.look()
        own = remote.path[len(remote.knowledge.at or "") :].strip("/")
        return below(map(path_of, remote.knowledge.refs()), own)

    def get_branches(self) -> dict[str, Branch]:
        """Return the branches at and below the URL, by name."""
        return {name: self.unasked(name) for name in self.branch_names()}

    def find_branch_format(self, name: str | None = None) -> HpssBranchFormat:
        """Return the format of all branches."""
        return HpssBranchFormat()

    def get_branch_reference(self, name: str | None = None) -> None:
        """Return None, because a server has no branch references."""

    def set_branch_reference(self, target_branch: Branch, name: str | None = None) -> NoReturn:
        """Raise an error, because a server has no branch references."""
        raise errors.IncompatibleFormat(target_branch._format, self._format)

    def create_branch(self, name: str | None = None, repository: object = None, **options: object) -> NoReturn:
        """Raise an error, because a branch is created by its first push."""
        raise NotOnServer(made_by_a_push(self.user_url))

    def destroy_branch(self, name: str | None = None) -> None:
        """Delete a branch."""
        name = self._get_selected_branch() if name is None else name
        remote = self.remote(name)
        if not remote.delete():
            raise errors.NotBranchError(path=self.user_url)

    # -- the repository, the tree, the rest

    def open_repository(self, unsupported: bool = False) -> HpssRepository:
        """Return the repository at the URL, or the nearest one in a folder above."""
        remote = self.remote(self._get_selected_branch())
        if remote.seen is None and not remote.knowledge.met and not asks_itself():
            remote.look()
        return HpssRepository(self, remote)

    find_repository = open_repository

    def create_repository(self, shared: bool = False) -> HpssRepository:
        """Create a repository at the URL itself."""
        if not self.remote("").make():
            raise errors.AlreadyControlDirError(self.user_url)
        return self.open_repository()

    def destroy_repository(self) -> NoReturn:
        """Raise an error, because branches of other users may be in the repository."""
        repository = self.open_repository()
        repository.remote.look()  # The answer tells where the repository begins.
        raise NotOnServer(deleted_by(repository.user_url.rstrip("/")))

    def open_workingtree(self, *arguments: object, **options: object) -> NoReturn:
        """Raise an error, because a server has no working trees."""
        raise errors.NoWorkingTree(self.root_transport.base)

    def create_workingtree(self, *arguments: object, **options: object) -> NoReturn:
        """Raise an error, because a server has no working trees."""
        raise NoTrees(self.root_transport.base)

    def has_workingtree(self) -> bool:
        """Return False: a server has no working trees."""
        return False

    def needs_format_conversion(self, format: object = None) -> bool:  # noqa: A002
        """Return False, because a server has only one format."""
        return False

    def _get_file_mode(self) -> None:
        """Return None, because the files of a mirror get the user's default mode."""

    _get_dir_mode = _get_mkdir_mode = _get_file_mode

    def cloning_metadir(self, require_stacking: bool = False) -> Any:
        """Return the format of branches and checkouts that are made from a branch on a server."""
        if require_stacking:
            raise NotOnServer(STACKED)
        return format_2a()

    checkout_metadir = cloning_metadir

    def break_lock(self) -> None:
        """Tell the user that the branch has no locks."""
        self.open_branch().break_lock()

    # -- pushing and copying

    def push_branch(
        self,
        source: Branch,
        revision_id: RevisionId | None = None,
        overwrite: Overwrite = False,
        remember: bool | None = False,
        create_prefix: bool = False,
        lossy: bool = False,
        tag_selector: Selector | None = None,
        name: str | None = None,
    ) -> PushResult:
        """Push a branch, and create everything that is missing.

        `remember`: True to remember the target even if another push location is set. For `brz push` only, False means
        that no location is remembered.
        """
        target = self.unasked(name)
        try:
            pushed = push(source, target, overwrite, revision_id, tag_selector, lossy=lossy)
        except (errors.DivergedBranches, errors.AppendRevisionsOnlyViolation):
            _remember(source, target, remember)
            raise
        _remember(source, target, remember)
        result = PushResult()
        result.source_branch = source
        result.target_branch = result.master_branch = target
        result.branch_push_result = None if pushed.old_revid == NULL_REVISION else pushed
        result.old_revno, result.old_revid = pushed.old_revno, pushed.old_revid
        return result


def options_of_new(parent: str) -> bytes:
    """Return the content of a new branch's options file, with the location from which the branch is created."""
    place = MemoryTransport()
    store = TransportIniFileStore(place, OPTIONS_FILE)
    store.get_mutable_section().set("parent_location", store.quote(parent))
    store.save()
    found: bytes = place.get_bytes(OPTIONS_FILE)
    return found


def _remember(source: Branch, target: HpssBranch, remember: bool | None) -> None:
    """Let a branch remember the location to which it is pushed. `remember`: as in `HpssDir.push_branch`."""
    is_not_to = remember is False and runs("push")  # Other programs do not mean that by False.
    if not remember and (is_not_to or source.get_push_location() is not None):
        return
    try:
        source.set_push_location(target.base)
    except errors.BzrError as error:
        if not isinstance(source, HpssBranch):
            raise
        trace.warning("%s does not remember where it was pushed: %s", source.user_url, error)  # It may be read-only.


def _sprout_there(source: BzrDir, url: str, asked: Mapping[str, Any], *, clones: bool = False) -> HpssDir:
    """Create a branch on a server from another branch: by a copy within one repository of the server, else by a push.

    `asked`: the arguments of `BzrDir.sprout`, or with `clones` those of `BzrDir.clone_on_transport`, which keeps the
    parent.
    """
    if asked.get("stacked") or asked.get("stacked_on"):
        raise NotOnServer(STACKED)
    if given("bind"):
        raise NotOnServer(BOUND)
    made: HpssDir = ControlDir.open(url, asked.get("possible_transports"))
    branch, target = asked.get("source_branch") or source.open_branch(), made.unasked()
    with branch.lock_read():
        _fill(branch, target, asked, clones=clones)
    return made


def _fill(branch: Branch, target: HpssBranch, asked: Mapping[str, Any], *, clones: bool) -> None:
    """Create a branch on a server with the content of another branch."""
    parent = branch.get_parent() if clones else branch.get_bound_location() or branch.user_url
    options = options_of_new(urlutils.relative_url(target.base, parent)) if parent else b""
    revision: RevisionId | None = asked.get("revision_id")
    try:
        if isinstance(branch, HpssBranch) and asked.get("tag_selector") is None:
            revno = branch.number_of(revision)
            if copy(branch.remote, target.remote, revision, revno, options):
                return
        push(branch, target, stop_revision=revision, tag_selector=asked.get("tag_selector"), hooks=False, new=options)
    except errors.NoSuchRevision:
        target.remote.look_again()
        state = target.remote.seen
        if state is not None and state.tip is not None and not state.inner:  # Breezy looks at the target first.
            raise errors.AlreadyBranchError(target.base) from None
        raise


def _sprout(stock: Any, source: Any, url: str, *arguments: Any, **options: Any) -> Any:
    """Create a branch on a server from another branch (`brz branch`, `brz switch -b`).

    Breezy calls this on the source's directory, whose class is Breezy's own. Its method would create an empty
    repository, fill it, create a branch, and read the new tree.
    """
    if is_ours(url):
        return _sprout_there(source, url, inspect.signature(stock).bind(source, url, *arguments, **options).arguments)
    try:
        return stock(source, url, *arguments, **options)
    except OSError as error:
        if error.filename is None and isinstance(source.root_transport, HpssTransport):
            error.filename = urlutils.unescape_for_display(url, "utf-8")  # The error does not name the full disk.
        raise


def _clone(stock: Any, source: Any, transport: Any, *arguments: Any, **options: Any) -> Any:
    """Copy a branch to a server (`Branch.create_clone_on_transport`), as `_sprout` does."""
    if not isinstance(transport, HpssTransport):
        return stock(source, transport, *arguments, **options)
    asked = inspect.signature(stock).bind(source, transport, *arguments, **options).arguments
    return _sprout_there(source, transport.base, asked, clones=True)


def _open_containing(stock: Any, cls: Any, a_transport: Any, probers: object = None) -> Any:
    """Return the branch that a path leads to or into, and the rest of the path, with one request.

    Breezy opens one place after the other, each one level further up. On a server the first can always be opened,
    whether or not something is there, so Breezy would not learn where the branch ends.
    """
    if not isinstance(a_transport, HpssTransport):
        return stock(cls, a_transport, probers)
    if runs("switch") and is_ours(given("directory")):
        raise errors.NoWorkingTree(a_transport.base)
    if a_transport.get_segment_parameters().get("branch", ""):
        return ControlDir.open_from_transport(a_transport), ""
    remote = remote_at(a_transport)
    if remote.seen is not None or remote.is_remembered or asks_itself():
        return HpssDir(a_transport, HpssDirFormat()), ""
    remote = remote_at(a_transport, inside=True)
    named = remote.remembered_inside()
    if remote.seen is None and named is None:
        remote.look()
    inner = remote.seen.inner if remote.seen is not None else named or ""
    if remote.seen is not None and remote.seen.tip is None:
        inner = ""  # The branch is missing.
    above = a_transport.above(len(inner.split("/")) if inner else 0)
    if remote.seen is not None:
        share(above, remote)
    return HpssDir(above, HpssDirFormat()), inner


def _find_branches(stock: Any, cls: Any, transport: Any) -> Any:
    """Return the branches at and below a place, with one request (`brz branches -R`).

    Breezy would list folders and open each, but a server has no folders to list.
    """
    if not isinstance(transport, HpssTransport):
        return stock(cls, transport)
    places = [transport.clone(urlutils.escape(path)) if path else transport for path in transport.branches()]
    return [HpssDir(place, HpssDirFormat()).unasked("") for place in places]


def _initialize(stock: Any, wanted: Any, transport: Any, *arguments: Any, **options: Any) -> Any:
    """Create a repository at a path on a server (`brz init-shared-repository`).

    The format is one of Breezy's own, which asks only Bazaar's smart protocol before it writes files.
    """
    if not isinstance(transport, HpssTransport):
        return stock(wanted, transport, *arguments, **options)
    if wanted.repository_format.network_name() != format_2a().repository_format.network_name():
        raise NotOnServer(ONLY_2A)
    made = HpssDir(transport, HpssDirFormat())
    return made.create_repository(), made, False, None


def change_breezy() -> None:
    """Make the changes to Breezy's classes that every use of a server may need."""
    put_around(ControlDir, "open_containing_from_transport", _open_containing)
    put_around(ControlDir, "find_branches", _find_branches)
    put_around(BzrDirMetaFormat1, "initialize_on_transport_ex", _initialize)
    put_around(BzrDir, "sprout", _sprout)
    put_around(BzrDir, "clone_on_transport", _clone)
    if (kind := git_directory()) is not None:  # The source is opened before the target's URL is used.
        put_around(kind, "sprout", _sprout)
    watch_uncommit()


def _register() -> None:
    """Register the classes for transfers with a server, and the name of the format for `brz info`."""
    inter.register()
    controldir.format_registry.register(NAME, HpssDirFormat, "A branch on a server (hpss://).", hidden=True)
    change_breezy()


_register()
