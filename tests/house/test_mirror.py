"""Every module that does anything has a test file that claims it (`mirror`) and executes it, or a test of real tools.

That a test file calls a function of each module it claims is measured while it runs: `tests/conftest.py`. The commands
(`cli`) are left out: they are tried as a user runs them.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import mirror
import pytest
from mirror import Watch, claims, does_anything
from sources import ROOT, parse, sources

IN_INTEROP = {
    "smartserver.plugins.breezy.branch": "test_brz_commands.py::test_push",
    "smartserver.plugins.breezy.changes": "test_brz_upkeep.py::test_a_tag",
    "smartserver.plugins.breezy.checkouts": "test_brz_light.py::test_commit",
    "smartserver.plugins.breezy.commit": "test_brz_light.py::test_commit",
    "smartserver.plugins.breezy.copy": "test_brz_upkeep.py::test_a_branch_beside_another",
    "smartserver.plugins.breezy.branch_history": "test_brz_up_to.py::test_branch",
    "smartserver.plugins.breezy.hpss_shadows": "test_brz_shadow.py::test_they_are_shown_and_removed",
    "smartserver.plugins.breezy.inter": "test_brz_commands.py::test_pull",
    "smartserver.plugins.breezy.moves": "test_brz_uncommit.py::test_of_several_revisions",
    "smartserver.plugins.breezy.push": "test_brz_commands.py::test_push",
    "smartserver.plugins.breezy.server": "test_brz_process.py::test_the_next_command_asks_anew",
    "smartserver.plugins.breezy.signatures": "test_brz_upkeep.py::test_signatures",
    "smartserver.plugins.breezy.tags": "test_brz_commands.py::test_tags_in_conflict",
    "smartserver.plugins.breezy.tracer": "test_brz_says.py::test_each_call_is_logged",
    "smartserver.plugins.breezy.upkeep": "test_brz_upkeep.py::test_pack",
    "smartserver.plugins.mercurial.evolution": "test_hg_obsolete.py::test_it_is_as_over_a_path",
    "smartserver.plugins.mercurial.extension": "test_hg_commands.py::test_a_command_does_what_hg_does",
    "smartserver.plugins.mercurial.peer": "test_hg_commands.py::test_a_command_does_what_hg_does",
    "smartserver.plugins.mercurial.push": "test_hg_commands.py::test_a_command_does_what_hg_does",
    "smartserver.plugins.mercurial.remote": "test_hg_commands.py::test_a_command_does_what_hg_does",
    "smartserver.plugins.mercurial.server": "test_hg_commands.py::test_a_command_does_what_hg_does",
    "smartserver.plugins.mercurial.words": "test_hg_commands.py::test_a_command_does_what_hg_does",
    "smartserver.vcs.base": "test_git_objects_repository.py::test_it_is_what_the_client_expects_of_any_repository",
    "smartserver.vcs.bzr.export": "test_brz_lossless.py::test_any_part_in_any_increments",
    "smartserver.vcs.bzr.insert": "test_brz_lossless.py::test_any_part_in_any_increments",
    "smartserver.vcs.bzr.plan": "test_brz_lossless.py::test_any_part_in_any_increments",
    "smartserver.vcs.bzr.repository": "test_brz_repository.py::test_it_is_a_repository_of_the_known_kinds",
    "smartserver.vcs.bzr.worker": "test_brz_repository.py::test_a_text_that_is_missing_here_is_named",
    "smartserver.vcs.hg.compat": "test_hg_lossless.py::test_any_part_in_any_increments",
    "smartserver.vcs.hg.export": "test_hg_lossless.py::test_any_part_in_any_increments",
    "smartserver.vcs.hg.insert": "test_hg_lossless.py::test_any_part_in_any_increments",
    "smartserver.vcs.hg.plan": "test_hg_lossless.py::test_any_part_in_any_increments",
    "smartserver.vcs.hg.repository": "test_hg_lossless.py::test_any_part_in_any_increments",
    "smartserver.vcs.git.build": "test_git_objects_lossless.py::test_any_subset_in_any_increments",
    "smartserver.vcs.git.insert": "test_git_objects_lossless.py::test_any_subset_in_any_increments",
    "smartserver.vcs.git.read": "test_git_objects_lossless.py::test_any_subset_in_any_increments",
    "smartserver.vcs.git.refs": "test_git_objects_refs.py::test_they_are_those_of_git_loose_or_packed",
    "smartserver.vcs.git.repository": "test_git_objects_repository.py::test_what_it_is",
}
"""Modules that only the tests with the real tools execute, where nothing is measured, and such a test of each."""


def test_every_module_has_its_test_file() -> None:
    tests = [
        path.relative_to(ROOT).as_posix() for folder in mirror.TESTS for path in (ROOT / folder).rglob("test_*.py")
    ]
    claimed = {module for path in tests for module in mirror.claimed_by(path)}
    found = {each.module for each in sources(*mirror.MIRRORED) if not each.is_package and does_anything(each)}
    alone = sorted(found - claimed - IN_INTEROP.keys())
    assert not alone, "no test file names (in its own name or docstring) and imports:\n" + "\n".join(alone)
    twice = sorted(claimed & IN_INTEROP.keys())
    assert not twice, "a test file claims them, so that they need no entry in IN_INTEROP:\n" + "\n".join(twice)
    gone = sorted(IN_INTEROP.keys() - found)
    assert not gone, "IN_INTEROP names modules that are gone:\n" + "\n".join(gone)


@pytest.mark.parametrize("module", IN_INTEROP)
def test_what_real_tools_execute_has_a_test(module: str) -> None:
    """It is there, and its file says what it is the test of."""
    name, _, function = IN_INTEROP[module].partition("::")
    test = parse(f"tests/interop/{name}", (ROOT / "tests/interop" / name).read_text())
    assert function in {node.name for node in test.tree.body if isinstance(node, ast.FunctionDef)}
    assert mirror.names_it(test, module)


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("tests/unit/wire/test_frames.py", "from smartserver.wire import frames", True),
        ("tests/unit/wire/test_wire_frames.py", "from smartserver.wire.frames import encode", True),
        (
            "tests/unit/wire/test_vectors.py",
            "'''wire.frames, wire.states: vectors.'''\nimport smartserver.wire.frames",
            True,
        ),
        ("tests/unit/wire/test_vectors.py", "'''wire.frames_old.'''\nimport smartserver.wire.frames", False),
        ("tests/unit/wire/test_vectors.py", "import smartserver.wire.frames", False),
        ("tests/unit/wire/test_frames.py", "from smartserver.wire import states", False),
        ("tests/unit/wire/test_airframes.py", "from smartserver.wire import frames", False),
        ("tests/unit/wire/test_frames.py", "from framed import Framed", True),
        ("tests/unit/wire/test_frames.py", "from other import Framed", False),
    ],
)
def test_what_a_file_claims(path: str, text: str, found: bool) -> None:
    support = {"framed": ["smartserver.wire.frames"]}
    claimed = claims(parse(path, text), ["smartserver.wire.frames"], lambda name: support.get(name, []))
    assert bool(claimed) is found


WATCHED = """
LIMITS = [number for number in range(3)]
class Frame:
    size = sum(LIMITS)
def used(): ...
"""


@pytest.mark.parametrize(("calls", "unseen"), [("", ["invented.frames"]), ("used()", [])])
def test_only_a_call_of_a_function_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: str, unseen: list[str]
) -> None:
    """What is executed when a module is imported does not."""
    monkeypatch.setattr(mirror, "ROOT", tmp_path)
    before = sys.getprofile()
    try:
        with Watch(["invented.frames"]) as watch:
            exec(compile(f"{WATCHED}\n{calls}", str(tmp_path / "invented/frames.py"), "exec"), {})
        assert watch.unseen == unseen
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize(("calls", "status"), [("assert frames.used() is None", 0), ("assert frames.LIMITS", 1)])
def test_a_file_that_executes_nothing_of_what_it_claims_fails(tmp_path: Path, calls: str, status: int) -> None:
    for path, text in {
        "smartserver/wire/frames.py": "LIMITS = [1]\ndef used():\n    return None\n",
        "tests/unit/wire/test_frames.py": f"from smartserver.wire import frames\ndef test_it(): {calls}\n",
        "pytest.ini": "[pytest]\npythonpath = .\naddopts = -p no:cacheprovider\n",
        **{f"tests/{name}": (ROOT / "tests" / name).read_text() for name in ("conftest.py", "mirror.py", "sources.py")},
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    words = [sys.executable, "-m", "pytest", "-q", "--disable-plugin-autoload"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout
    said = "test_frames.py claims modules of which it calls no function: smartserver.wire.frames"
    assert (said in done.stdout) is bool(status)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("LIMIT = 3\nclass A:\n    x: int\n    def f(self) -> int:\n        '''Gives x.'''\n", False),
        ("class A(Protocol):\n    def f(self) -> int: ...\n", False),
        ("def f(self) -> int:\n    '''Gives x.'''\n    return 1\n", True),
        ("def f(self) -> None:\n    g()\n", True),
    ],
)
def test_what_does_anything(text: str, found: bool) -> None:
    assert does_anything(parse("transports/x.py", text)) is found
