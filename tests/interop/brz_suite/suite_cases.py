"""Run cases of Breezy's own tests against one server, and write down their outcomes. Run by `suite_main`."""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import signal
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

import testtools
from breezy import osutils, urlutils
from breezy.branch import Branch
from breezy.commands import Command
from breezy.tests import TestCase, TestUtil, iter_suite_tests
from suite_breezy import hpss
from suite_commands import RUNS
from suite_moves import Places, forget
from suite_reasons import ARRANGEMENTS, SUITES
from suite_scenarios import cases, watch_ends
from suite_servers import SIDES, Server, serving

LONGEST, AGAIN = 120.0, 5.0
"""Seconds after which a case hangs, and after which `Hangs` is raised again if the case caught it."""

_numbers = itertools.count(1)


class Outcomes(testtools.TestResult):  # type: ignore[misc]  # Not typed.
    """Writes the outcome of each case: `pass`, `skip` or `fail`, whether it used a remote location, and a message."""

    def __init__(self, out: TextIO, *, all_remote: bool) -> None:
        super().__init__()
        self._out = out
        self._all_remote = all_remote

    def _note(self, test: Any, what: str, said: str = "") -> None:
        places = getattr(test, "remote_places", None)
        is_remote = self._all_remote or (places is not None and places.is_used)
        print(json.dumps([test.id(), what, is_remote, said]), file=self._out, flush=True)

    def addSuccess(self, test: Any, details: object = None) -> None:
        self._note(test, "pass")

    def addSkip(self, test: Any, reason: object = None, details: object = None) -> None:
        self._note(test, "skip", str(reason))

    def addExpectedFailure(self, test: Any, err: object = None, details: object = None) -> None:
        self._note(test, "pass")

    def addUnexpectedSuccess(self, test: Any, details: object = None) -> None:
        self._note(test, "fail", "unexpected success")

    def addError(self, test: Any, err: Any = None, details: Any = None) -> None:
        said = details["traceback"].as_text() if details and "traceback" in details else repr(err and err[1])
        for name, part in (details or {}).items():
            if "log" in name:
                said = part.as_text()[-1500:] + said
        self._note(test, "fail", said)

    addFailure = addError


def _prepare() -> None:
    """Install the plugin's hooks in each case, as in any process, and make the ends of a case as its scenario says."""
    clear = TestCase._clear_hooks

    def clear_hooks(test: Any) -> None:
        clear(test)
        forget()
        Branch.hooks.install_named_hook("open", hpss._remember, None)
        Command.hooks.install_named_hook("extend_command", hpss._record, None)

    TestCase._clear_hooks = clear_hooks
    watch_ends()


def _move(server: Server, run: Callable[[Sequence[str], Places, Path, Callable[[list[str]], int]], int]) -> None:
    """Run each command of a test in an arrangement."""
    core = TestCase._run_bzr_core

    def run_core(
        test: Any, args: list[str], encoding: str, stdin: object, stdout: Any, stderr: Any, working_dir: str | None
    ) -> int:
        if not hasattr(test, "test_dir"):
            result: int = core(test, args, encoding, stdin, stdout, stderr, working_dir)
            return result
        places = getattr(test, "remote_places", None)
        if places is None:
            places = test.remote_places = Places(server, Path(osutils.realpath(test.test_dir)), next(_numbers))
            test.permit_url(places.url)
            if server.side == "bzr":
                test.permit_url(urlutils.local_path_to_url(str(server.root)))
        base = Path(osutils.getcwd(), working_dir or ".")

        def command(words: list[str]) -> int:
            forget()
            result: int = core(test, words, encoding, stdin, stdout, stderr, working_dir)
            return result

        try:
            return run([str(word) for word in args], places, base, command)
        finally:
            if places.is_used:
                places.bring()
                places.restore()
                for stream in (stdout, stderr):
                    _localize(stream, places)

    TestCase._run_bzr_core = run_core


def _localize(stream: Any, places: Places) -> None:
    """Replace URLs by the test's own paths in the output of a command."""
    folder = f"{places.folder}/"
    if isinstance(stream, io.TextIOWrapper):
        stream.flush()
        raw: io.BytesIO = stream.buffer
        content = raw.getvalue().replace(places.url.encode(), folder.encode())
        raw.seek(0)
        raw.truncate()
        raw.write(content)
    elif stream is not None and hasattr(stream, "getvalue"):
        text = places.local(stream.getvalue(), folder)
        stream.seek(0)
        stream.truncate()
        stream.write(text)


class Hangs(BaseException):
    """The error of a case that takes too long. It is no `OSError`: Breezy's servers ignore these in `accept`."""


def _run(test: Any, result: Outcomes) -> None:
    def hangs(number: int, frame: object) -> None:
        raise Hangs(f"the case took {LONGEST:g} seconds")

    signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, LONGEST, AGAIN)
    here = os.getcwd()
    try:
        test.run(result)
    except Hangs as late:
        result._note(test, "fail", str(late))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.chdir(here)


def main() -> None:
    """Run the suite that the command line names, and write the outcomes to a file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", choices=SIDES, required=True)
    parser.add_argument("--suite", choices=[*ARRANGEMENTS, *SUITES], required=True)
    parser.add_argument("--only", type=Path)
    parser.add_argument("--filter", default="")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # Ignored in the background: a test that sends it would wait.
    _prepare()
    only = None if asked.only is None else set(json.loads(asked.only.read_text()))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        root = Path(folder, "served")
        server = stack.enter_context(serving(asked.side, root))
        if asked.suite in ARRANGEMENTS:
            _move(server, RUNS[asked.suite])
            tests = iter_suite_tests(TestUtil.TestLoader().loadTestsFromModuleName("breezy.tests.blackbox"))
        else:
            reader = stack.enter_context(serving("hpss", root, "read")) if asked.side == "hpss" else None
            tests = cases(asked.suite, server, reader)
        result = Outcomes(stack.enter_context(open(asked.out, "w")), all_remote=asked.suite in SUITES)
        for test in tests:
            if asked.filter in test.id() and (only is None or test.id() in only):
                _run(test, result)


if __name__ == "__main__":
    main()
