"""A plugin of pytest: a mark that fails a test in which a client makes banned calls.

    @pytest.mark.ban("vfs:*", "per-item")
    def test_pull(...): ...

The rules apply to every client that this process makes in the test and, by the environment, to those of the git, brz
and smartserver commands that it starts. The body of a test with this mark is one operation, even if it loops. The ini
option `hpss_bans` names rules for all tests; there an operation is the same as outside of tests. A test that needs such
calls gives its reason: `@pytest.mark.unbanned("the VFS baseline")`.

`pytest --hpss-trace DIR` writes a page for a browser for each test that fails, with the trace of the git, brz, hg and
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
"""The banned calls since the last check. They are kept for all tests, because the client of a fixture may outlive its
test."""


LONGEST_NAME = 150
"""The most characters of a test's id in the name of its page. The last ones are kept."""

_TRACE = pytest.StashKey[Path]()
"""The path of a test's trace."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    parser.addoption("--hpss-trace", metavar="DIR", help="put a page there with the trace of each test that fails")
    parser.addini(FOR_ALL, "rules of calls that no client may make, as for the mark `ban`", type="args", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks."""
    config.addinivalue_line("markers", f"{MARK}(rule, ...): calls that no client may make in the test")
    config.addinivalue_line("markers", f"{EXEMPT}(reason): a test to which {FOR_ALL} does not apply, and why")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Ban the calls that the test's marks and the configuration name, from the setup of the first fixture to the last
    teardown."""
    with _tracing(item), _banning(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Write the page of a failed test's trace, and add its path to the report."""
    report = yield
    trace = item.stash.get(_TRACE, None)
    if report.failed and trace is not None and trace.exists():
        from smartserver.trace.html import html
        from smartserver.trace.wait import BadTrace, traces

        page = trace.with_suffix(".html")
        try:
            page.write_bytes(html(traces(trace.read_bytes().splitlines())))
            report.sections.append(("trace", f"{page}"))
        except BadTrace as error:  # Every command was killed before it wrote an event.
            report.sections.append(("trace", f"{trace}: {error}"))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    """Refuse invalid marks, and fail the test if its fixtures made a banned call, even if the error was caught."""
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
    """Fail the test if it made a banned call, even if the error was caught."""
    with _failing(item):
        if item.get_closest_marker(MARK) is None:
            return (yield)
        from smartserver.trace.bans.operations import one_operation

        with one_operation():
            return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail the test if its fixtures made a banned call in their teardown."""
    with _failing(item):
        return (yield)


@contextmanager
def _failing(item: pytest.Item) -> Iterator[None]:
    """Fail the test at the end of the block if a banned call was made in it. If the block fails itself, its own error
    is reported."""
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
        yield  # The setup fails.
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
