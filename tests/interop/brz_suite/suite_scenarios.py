"""Breezy's interface suites with one scenario: its own of a branch behind `bzr://`, and the same of one behind ours.

The cases are those that Breezy makes for its own remote classes. On our side they get our formats and our server.
A branch without revisions cannot exist on a server of ours, but nearly every case begins with one. So a branch that is
missing reads as an empty one here, and its first revision is made in a branch in memory and pushed.
"""

from __future__ import annotations

import itertools
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from breezy import errors
from breezy.bzr import bzrdir
from breezy.bzr.groupcompress_repo import RepositoryFormat2a
from breezy.controldir import format_registry
from breezy.lock import Lock
from breezy.revision import NULL_REVISION
from breezy.tests import TestCaseWithTransport, TestUtil, apply_scenario, iter_suite_tests, test_server
from breezy.tests.per_interbranch import TestCaseWithInterBranch
from breezy.tests.per_interrepository import TestCaseWithInterRepository
from breezy.transport import memory
from suite_reasons import SUITES
from suite_servers import Server

from smartserver.plugins.breezy import controldir
from smartserver.plugins.breezy.branch import HpssBranch, HpssBranchFormat
from smartserver.plugins.breezy.controldir import HpssDir, HpssDirFormat
from smartserver.plugins.breezy.inter import FromMirror
from smartserver.plugins.breezy.patches import put_around
from smartserver.plugins.breezy.place import BranchState
from smartserver.plugins.breezy.remote import Remote
from smartserver.plugins.breezy.transport import HpssTransport
from smartserver.vcs.bzr.compat import format_2a

_folders: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_numbers = itertools.count(1)


class _HpssServer(test_server.TestServer):  # type: ignore[misc]  # Not typed.
    """A folder of the server of the run, to a case a server of its own; two servers of one case share the folder."""

    server: Server
    _number = 0

    def start_server(self, backing_server: Any = None) -> None:
        if backing_server is None:
            self._number = next(_numbers)
        else:
            self._number = _folders.setdefault(backing_server, next(_numbers))

    def stop_server(self) -> None:
        """The server goes on."""

    def get_url(self) -> str:
        return f"{self.server.url}{self._number}/"

    def get_bogus_url(self) -> str:
        return "hpss://127.0.0.1:1/"


def cases(suite: str, server: Server, reader: Server | None) -> Iterator[Any]:
    """The cases of a suite on one side; `reader`: the same folder for those that may only read."""
    _HpssServer.server = server
    # Breezy asks whatever is registered what it has to be tried with.
    controldir.get_test_permutations = list  # type: ignore[attr-defined]
    FromMirror._get_repo_format_to_test = staticmethod(lambda: None)
    whole = TestUtil.TestLoader().loadTestsFromModuleName(f"breezy.tests.{suite}")
    ours = None if reader is None else _ours(server, reader)
    for test in iter_suite_tests(whole):
        assert "_FailedTest" not in test.id(), f"{suite} cannot be loaded"
        if SUITES[suite] not in test.id():
            continue
        if suite == "per_interbranch":
            yield from _between(test, ours)
            continue
        if suite == "per_interrepository":
            test.repository_format_to, test.remote_ends = test.repository_format, ("to",)
            test.transport_server = test_server.SmartTCPServer_for_testing
        for name, value in (ours or {}).items():
            if hasattr(test, name):
                setattr(test, name, value)
        yield test


def _ours(server: Server, reader: Server) -> dict[str, Any]:
    _make_unborn()
    format_of_dirs = HpssDirFormat()
    format_of_dirs.supports_workingtrees = True  # A case then asks for one, and is told that there can be none.
    readonly = type("_ReadonlyHpssServer", (_HpssServer,), {"server": reader})
    return {
        "bzrdir_format": format_of_dirs,
        "branch_format": HpssBranchFormat(),
        "repository_format": format_2a().repository_format,
        "transport_class": HpssTransport,
        "transport_server": _HpssServer,
        "transport_readonly_server": readonly,
    }


def _between(test: Any, ours: dict[str, Any] | None) -> Iterator[Any]:
    """A case of two branches: the first remote, the second, and both."""
    for name, ends in (("from", ("from",)), ("to", ("to",)), ("both", ("from", "to"))):
        made = apply_scenario(test, (name, {"remote_ends": ends}))
        made.transport_server = test_server.SmartTCPServer_for_testing if ours is None else ours["transport_server"]
        yield made


def watch_ends() -> None:
    """Have each end of a case of two branches made where the scenario says."""
    for end in ("from", "to"):
        for kind in ("branch", "branch_and_tree", "branch_and_memory_tree", "branch_builder"):
            put_around(TestCaseWithInterBranch, f"make_{end}_{kind}", _made(end))
        put_around(TestCaseWithInterBranch, f"sprout_{end}", _made(end))
    put_around(TestCaseWithInterRepository, "make_repository", _made("from"))
    put_around(TestCaseWithInterRepository, "make_to_repository", _made("to"))


def _made(end: str) -> Callable[..., Any]:
    def made(stock: Any, test: Any, *arguments: Any, **options: Any) -> Any:
        if end not in test.remote_ends:
            test.get_url = test.get_vfs_only_url
        try:
            return stock(test, *arguments, **options)
        finally:
            test.__dict__.pop("get_url", None)

    return made


# -- a branch that is not there yet


def _make_unborn() -> None:
    put_around(bzrdir.BzrDirMetaFormat1, "initialize_on_transport", _initialize)
    put_around(RepositoryFormat2a, "initialize", _initialize_repository)
    put_around(HpssDir, "create_branch", lambda stock, control, name=None, *_, **__: control.unasked(name))
    put_around(HpssBranchFormat, "initialize", _initialize_branch)
    put_around(TestCaseWithTransport, "make_branch_and_tree", _make_tree)
    put_around(HpssDir, "create_workingtree", _create_workingtree)
    put_around(Remote, "look", _look)
    put_around(Remote, "there", _there)
    put_around(HpssBranch, "get_commit_builder", _get_builder)
    put_around(HpssBranch, "set_last_revision_info", _set_last)


def _initialize(stock: Any, format: Any, transport: Any) -> Any:  # noqa: A002
    if isinstance(transport, HpssTransport):
        return HpssDir(transport, HpssDirFormat())
    return stock(format, transport)


def _initialize_repository(stock: Any, format: Any, control: Any, *arguments: Any, **options: Any) -> Any:  # noqa: A002
    if isinstance(control, HpssDir):
        return control.create_repository()
    return stock(format, control, *arguments, **options)


def _initialize_branch(stock: Any, kind: Any, control: Any, name: str | None = None, *rest: Any, **options: Any) -> Any:
    if isinstance(control, HpssDir):
        return control.unasked(name)
    return stock(kind, control, name, *rest, **options)


def _make_tree(stock: Any, test: Any, *arguments: Any, **options: Any) -> Any:
    """A tree of a branch on a server of ours is a lightweight checkout: no folder here is that of the branch."""
    if not test.get_url().startswith("hpss://"):
        return stock(test, *arguments, **options)
    test.get_vfs_only_server()
    factory, test.vfs_transport_factory = test.vfs_transport_factory, memory.MemoryServer
    try:
        return stock(test, *arguments, **options)
    finally:
        test.vfs_transport_factory = factory


def _create_workingtree(stock: Any, control: Any, *arguments: Any, **options: Any) -> Any:
    raise errors.NotLocalUrl(control.user_url)  # The word for it that the cases know.


def _look(stock: Any, remote: Any) -> None:
    try:
        stock(remote)
    except errors.NotBranchError:
        remote.seen = BranchState("", "")
    if remote.seen is not None and remote.seen.tip is None:
        remote.load()


def _there(stock: Any, remote: Any) -> Any:
    try:
        return stock(remote)
    except errors.NotBranchError:
        return BranchState("", "")


@contextmanager
def _uncounted_locks() -> Iterator[None]:
    """Let the case, which compares what was locked with what was unlocked, see neither."""
    hooks, Lock.hooks = Lock.hooks, defaultdict(list)
    try:
        yield
    finally:
        Lock.hooks = hooks


def _get_builder(stock: Any, branch: Any, parents: Any, *arguments: Any, **options: Any) -> Any:
    if branch.last_revision() != NULL_REVISION or parents:
        return stock(branch, parents, *arguments, **options)
    first = memory.MemoryTransport()
    control = format_registry.make_controldir("2a").initialize_on_transport(first)
    control.create_repository()
    branch.first_made = control.create_branch()
    with _uncounted_locks():
        branch.first_made.lock_write()
    return branch.first_made.get_commit_builder(parents, *arguments, **options)


def _set_last(stock: Any, branch: Any, revno: int, revision: bytes) -> None:
    first = branch.__dict__.pop("first_made", None)
    if first is None:
        stock(branch, revno, revision)
        return
    with _uncounted_locks():
        first.set_last_revision_info(revno, revision)
        first.unlock()
    branch.controldir.push_branch(first, name=branch.name)
    branch._clear_cached_state()
