"""pytest: a mark that fails a test in which a client makes calls that it must not.

    @pytest.mark.ban("vfs:*", "per-item")
    def test_pull(...): ...

The rules hold for every client this process makes in the test, and by the environment for those of the git, brz and
smartserver commands it starts. The body of a test with this mark is one operation, so that a loop in it is one too. The
ini option `hpss_bans` names rules for all tests, in which an operation is what it is elsewhere; a test that is to make
such calls, be it to measure what they cost, says so with its reason: `@pytest.mark.unbanned("the VFS baseline")`.

`pytest --hpss-trace DIR` keeps the trace of each test that fails, as a page for a browser: of the git, brz, hg and
smartserver commands that it started.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from smartserver.trace.flags import FILE, VARIABLE

if TYPE_CHECKING:
    from smartserver.errors import Banned

MARK = "ban"
EXEMPT = "unbanned"
FOR_ALL = "hpss_bans"

_FOUND = pytest.StashKey[list["Banned"]]()
"""The bans since they were last looked at, in whichever test: the client of a fixture may outlast the one that made
it."""


LONGEST_NAME = 150
"""Characters of a test's name that are in that of its page."""

_TRACE = pytest.StashKey[Path]()
"""The file for the trace of a test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the rules for all tests."""
    parser.addoption("--hpss-trace", metavar="DIR", help="put a page there with the trace of each test that fails")
    parser.addini(FOR_ALL, "rules of calls that no client may make, as for the mark `ban`", type="args", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks."""
    config.addinivalue_line("markers", f"{MARK}(rule, ...): calls that no client may make in the test")
    config.addinivalue_line("markers", f"{EXEMPT}(reason): a test to which {FOR_ALL} does not apply, and why")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Ban what the test's marks and the configuration name: from its first fixture on, to its last."""
    with _tracing(item), _banning(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Say with a failure where the page of its trace is."""
    report = yield
    trace = item.stash.get(_TRACE, None)
    if report.failed and trace is not None and trace.exists():
        from smartserver.trace.html import html
        from smartserver.trace.wait import BadTrace, traces

        page = trace.with_suffix(".html")
        try:
            page.write_bytes(html(traces(trace.read_bytes().splitlines())))
            report.sections.append(("trace", f"{page}"))
        except BadTrace as error:  # Every command was killed before it wrote anything.
            report.sections.append(("trace", f"{trace}: {error}"))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    """Refuse marks that say nothing, and fail the test where its fixtures made a call that was banned, whoever caught
    the error."""
    for mark in item.iter_markers(MARK):
        if not mark.args or mark.kwargs or not all(isinstance(rule, str) for rule in mark.args):
            pytest.fail(f"expected @pytest.mark.{MARK}(rule, ...), each a string", pytrace=False)
    for mark in item.iter_markers(EXEMPT):
        if len(mark.args) != 1 or mark.kwargs or not isinstance(mark.args[0], str) or not mark.args[0].strip():
            pytest.fail(f"expected @pytest.mark.{EXEMPT}(reason), a string", pytrace=False)
    if _rules(item):
        from smartserver.trace.bans.every import bans
        from smartserver.trace.bans.rule import BadRule

        try:
            bans(_rules(item))
        except BadRule as error:
            pytest.fail(str(error), pytrace=False)
    with _failing(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """The same of the test itself."""
    with _failing(item):
        if item.get_closest_marker(MARK) is None:
            return (yield)
        from smartserver.trace.bans.operations import one_operation

        with one_operation():
            return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """The same of what fixtures do at their end."""
    with _failing(item):
        return (yield)


@contextmanager
def _failing(item: pytest.Item) -> Iterator[None]:
    """Have what was banned by the end of the block fail it; what fails anyway says why by itself."""
    found = item.config.stash.setdefault(_FOUND, [])
    try:
        yield
        if found and _rules(item):
            pytest.fail("\n".join(map(str, found)), pytrace=False)
    finally:
        found.clear()


def _rules(item: pytest.Item) -> list[str]:
    for_all = [] if item.get_closest_marker(EXEMPT) is not None else item.config.getini(FOR_ALL)
    return [*for_all, *(str(rule) for mark in item.iter_markers(MARK) for rule in mark.args)]


@contextmanager
def _tracing(item: pytest.Item) -> Iterator[None]:
    folder = item.config.getoption("--hpss-trace")
    if folder is None:
        yield
        return
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", item.nodeid)[-LONGEST_NAME:]
    trace = item.stash[_TRACE] = Path(folder).resolve() / f"{name}.trace"
    trace.parent.mkdir(parents=True, exist_ok=True)
    trace.unlink(missing_ok=True)
    with pytest.MonkeyPatch.context() as patched:
        before = os.environ.get(VARIABLE)
        patched.setenv(VARIABLE, FILE + str(trace) + ("" if before is None else f",{before}"))
        yield
    trace.unlink(missing_ok=True)


@contextmanager
def _banning(item: pytest.Item) -> Iterator[None]:
    rules = _rules(item)
    if not rules:
        yield
        return
    from smartserver.client.call import Client
    from smartserver.trace.bans.every import bans
    from smartserver.trace.bans.rule import BadRule
    from smartserver.trace.bans.watcher import Watcher

    found = item.config.stash.setdefault(_FOUND, [])

    try:
        bans(rules)
    except BadRule:
        yield  # It fails as it is set up.
        return
    unwatched = Client.__init__

    def watched(client: Client, connect: Any, observers: Any = (), *more: Any, **options: Any) -> None:
        unwatched(client, connect, (*observers, Watcher(bans(rules), found.append)), *more, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Client, "__init__", watched)
        before = os.environ.get(VARIABLE)
        flags = f"hpss-ban={','.join(rules)}"
        patched.setenv(VARIABLE, flags if before is None else f"{before},{flags}")
        yield
